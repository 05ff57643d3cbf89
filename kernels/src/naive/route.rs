//! The choice of experts.

use super::{Real, softmax};
use crate::experts::{RouteShape, Routing};

/// The experts of a row with their weights, the largest logit first, by the rule of [`Routing`].
pub fn route<T: Real>(logits: &[T], chosen: usize, routing: Routing) -> Vec<(usize, T)> {
    let counted: Vec<T> =
        logits.iter().map(|&x| if x.partial_cmp(&x).is_some() { x } else { T::NEG_INFINITY }).collect();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // The sort is stable: of equal logits the least expert comes first.
    order.sort_by(|&a, &b| counted[b].partial_cmp(&counted[a]).unwrap_or(std::cmp::Ordering::Equal));
    order.truncate(chosen);
    let weights = match routing {
        Routing::Chosen => softmax(&order.iter().map(|&expert| counted[expert]).collect::<Vec<T>>()),
        Routing::All => {
            let all = softmax(&counted);
            order.iter().map(|&expert| all[expert]).collect()
        }
    };
    order.into_iter().zip(weights).collect()
}

/// The table of the routes of all rows, as [`RouteTable`](crate::experts::RouteTable) has it; NaN
/// where it is undefined.
pub fn route_table<T: Real>(logits: &[T], shape: RouteShape, routing: Routing) -> Vec<T> {
    let RouteShape { rows, experts, chosen } = shape;
    let mut weights = vec![vec![T::ZERO; rows as usize]; experts as usize];
    for (row, logits) in logits.chunks_exact(experts as usize).enumerate() {
        for (expert, weight) in route(logits, chosen as usize, routing) {
            weights[expert][row] = weight;
        }
    }
    let [height, width] = shape.table().map(|extent| extent as usize);
    let nan = T::from_f64(f64::NAN);
    let mut table = vec![nan; height * width];
    let used = weights.iter().enumerate().filter(|(_, weights)| weights.iter().any(|&weight| weight > T::ZERO));
    let mut slots = 0u32;
    let rooms = table[width..].chunks_exact_mut(width).take(shape.slots() as usize);
    for ((expert, weights), slot) in used.zip(rooms) {
        slot[0] = T::from_f64(expert as f64);
        slot[1..=weights.len()].copy_from_slice(weights);
        slots += 1;
    }
    if slots == 0 {
        table[width..=width + rows as usize].fill(T::ZERO);
        slots = 1;
    }
    for row in 0..rows {
        let first = (shape.sets_at() + row * shape.set_words()) as usize;
        let chosen = (0..slots).filter(|slot| table[(1 + *slot as usize) * width + 1 + row as usize] > T::ZERO);
        let mut words = vec![0u32; shape.set_words() as usize];
        chosen.for_each(|slot| words[slot as usize / 16] |= 1 << (slot % 16));
        for (place, word) in words.into_iter().enumerate() {
            table[first + place] = T::from_f64(f64::from(word));
        }
    }
    table[0] = T::from_f64(f64::from(slots));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_the_experts_that_some_row_has_chosen() {
        let shape = RouteShape { rows: 2, experts: 4, chosen: 1 };
        let table = route_table(&[0.0f32, 5.0, 5.0, 1.0, 0.0, 0.0, 0.0, 1.0], shape, Routing::Chosen);
        assert_eq!(
            [table[0], table[4], table[5], table[6], table[8], table[9], table[10]],
            [2.0, 1.0, 1.0, 0.0, 3.0, 0.0, 1.0]
        );
    }

    #[test]
    fn a_slot_is_in_use_even_where_no_expert_has_a_weight() {
        let shape = RouteShape { rows: 1, experts: 3, chosen: 2 };
        let table = route_table(&[f64::NEG_INFINITY; 3], shape, Routing::Chosen);
        assert_eq!([table[0], table[4], table[5]], [1.0, 0.0, 0.0]);
    }

    #[test]
    fn nan_counts_as_the_least_logit() {
        let chosen = route(&[f32::NAN, 1.0, f32::NAN], 2, Routing::All);
        assert_eq!(chosen, [(1, 1.0), (0, 0.0)]);
    }
}
