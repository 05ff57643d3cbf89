//! Routers: which experts a row takes, the rows that each expert has, and the sum of their results.

use crate::experts::RouteShape;
use crate::route::{GroupedRouter, RouterKind, RouterScore};

/// The experts of a row and their weights, in the order of the choice.
///
/// `bias` is added to the scores of a [`RouterKind::Grouped`] that is corrected. The order is that
/// of `f64::total_cmp`; of equal numbers the first wins.
///
/// ```
/// use tilewright_kernels::naive::route;
/// use tilewright_kernels::route::RouterKind;
/// let (ids, weights) = route(RouterKind::TopKThenSoftmax, &[1.0, 3.0, 3.0, 2.0], &[], 2);
/// assert_eq!((ids, weights), (vec![1, 2], vec![0.5, 0.5]));
/// ```
pub fn route(kind: RouterKind, logits: &[f64], bias: &[f64], chosen: usize) -> (Vec<u32>, Vec<f64>) {
    let softmax = |of: &[u32]| -> Vec<f64> {
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let power = |id: u32| (logits[id as usize] - most).exp();
        let sum: f64 = of.iter().map(|&id| power(id)).sum();
        of.iter().map(|&id| power(id) / sum).collect()
    };
    let all: Vec<u32> = (0..logits.len() as u32).collect();
    match kind {
        RouterKind::SoftmaxThenTopK { renormalise: false } => {
            let ids = largest(logits, chosen);
            let weights = softmax(&all);
            let weights = ids.iter().map(|&id| weights[id as usize]).collect();
            (ids, weights)
        }
        RouterKind::SoftmaxThenTopK { renormalise: true } | RouterKind::TopKThenSoftmax => {
            let ids = largest(logits, chosen);
            let weights = softmax(&ids);
            (ids, weights)
        }
        RouterKind::Grouped(router) => by_groups(router, logits, softmax(&all), bias, chosen),
    }
}

fn by_groups(
    router: GroupedRouter,
    logits: &[f64],
    softmax: Vec<f64>,
    bias: &[f64],
    chosen: usize,
) -> (Vec<u32>, Vec<f64>) {
    let GroupedRouter { score, corrected, groups, kept, renormalise, scale } = router;
    let (scores, summed): (Vec<f64>, usize) = match score {
        RouterScore::Sigmoid => (logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(), 2),
        RouterScore::Softmax => (softmax, 1),
    };
    let corrections = |id: usize| if corrected { bias[id] } else { 0.0 };
    let mut choice: Vec<f64> = scores.iter().enumerate().map(|(id, score)| score + corrections(id)).collect();
    let size = logits.len() / groups as usize;
    let best = |group: &[f64]| largest(group, summed).iter().map(|&id| group[id as usize]).sum();
    let of_groups: Vec<f64> = choice.chunks(size).map(best).collect();
    let kept = largest(&of_groups, kept as usize);
    for (id, choice) in choice.iter_mut().enumerate() {
        if !kept.contains(&((id / size) as u32)) {
            *choice = f64::NEG_INFINITY;
        }
    }
    let ids = largest(&choice, chosen);
    let weights: Vec<f64> = ids.iter().map(|&id| scores[id as usize]).collect();
    let sum = if renormalise { weights.iter().sum::<f64>() } else { 1.0 };
    (ids, weights.into_iter().map(|weight| weight / sum * f64::from(scale)).collect())
}

/// The indexes of the largest numbers, largest first; the least index first on a tie.
fn largest(numbers: &[f64], count: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..numbers.len() as u32).collect();
    ids.sort_by(|&a, &b| numbers[b as usize].total_cmp(&numbers[a as usize]));
    ids.truncate(count);
    ids
}

/// Choices sorted by expert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedChoices {
    /// The first place of each expert, and the end of the last.
    pub offsets: Vec<u32>,
    /// The number of the choice at each place.
    pub order: Vec<u32>,
    /// The place of each choice; `u32::MAX` of one that is for none of the experts.
    pub inverse: Vec<u32>,
}

/// Sorts choices by expert; those of one expert stay in their order. Experts are `first` and the
/// `experts` that begin there; other choices are left out.
///
/// ```
/// use tilewright_kernels::naive::sort_choices;
/// let sorted = sort_choices(&[2, 0, 2, 1, 7], 0, 3);
/// assert_eq!((sorted.offsets, sorted.order), (vec![0, 1, 2, 4], vec![1, 3, 0, 2]));
/// assert_eq!(sorted.inverse, [2, 0, 3, 1, u32::MAX]);
/// ```
pub fn sort_choices(ids: &[u32], first: u32, experts: u32) -> SortedChoices {
    let mut sorted = SortedChoices { offsets: vec![0], order: Vec::new(), inverse: vec![u32::MAX; ids.len()] };
    for expert in first..first + experts {
        for (number, _) in ids.iter().enumerate().filter(|(_, id)| **id == expert) {
            sorted.inverse[number] = sorted.order.len() as u32;
            sorted.order.push(number as u32);
        }
        sorted.offsets.push(sorted.order.len() as u32);
    }
    sorted
}

/// `residual + Σ_j weight[j] · y[j]` for each column of a row; `y` has a row for each choice, none
/// for one that is left out.
pub fn weighted_sum(residual: &[f64], weights: &[f64], y: &[Option<&[f64]>]) -> Vec<f64> {
    let of = |column: usize| weights.iter().zip(y).filter_map(move |(weight, y)| y.map(|y| weight * y[column]));
    residual.iter().enumerate().map(|(column, residual)| residual + of(column).sum::<f64>()).collect()
}

/// The table of the routes of all rows, as [`RouteTable`](crate::experts::RouteTable) has it; NaN
/// where it is undefined. `bias` is that of [`route`].
pub fn route_table(kind: RouterKind, logits: &[f64], bias: &[f64], shape: RouteShape) -> Vec<f64> {
    let RouteShape { rows, experts, chosen } = shape;
    let mut weights = vec![vec![0.0; rows as usize]; experts as usize];
    for (row, logits) in logits.chunks_exact(experts as usize).enumerate() {
        let (ids, of_row) = route(kind, logits, bias, chosen as usize);
        ids.into_iter().zip(of_row).for_each(|(id, weight)| weights[id as usize][row] = weight);
    }
    let [height, width] = shape.table().map(|extent| extent as usize);
    let mut table = vec![f64::NAN; height * width];
    // What is zero in f32 is not chosen.
    let is_used = |weights: &[f64]| weights.iter().any(|&weight| weight as f32 > 0.0);
    let used = weights.iter().enumerate().filter(|(_, weights)| is_used(weights));
    let mut slots = 0u32;
    let rooms = table[width..].chunks_exact_mut(width).take(shape.slots() as usize);
    for ((expert, weights), slot) in used.zip(rooms) {
        slot[0] = expert as f64;
        slot[1..=weights.len()].copy_from_slice(weights);
        slots += 1;
    }
    if slots == 0 {
        table[width..=width + rows as usize].fill(0.0);
        slots = 1;
    }
    for row in 0..rows {
        let first = (shape.sets_at() + row * shape.set_words()) as usize;
        let has = |slot: &u32| table[(1 + *slot as usize) * width + 1 + row as usize] as f32 > 0.0;
        let chosen: Vec<u32> = (0..slots).filter(has).collect();
        let words = &mut table[first..][..shape.set_words() as usize];
        words.fill(0.0);
        chosen.into_iter().for_each(|slot| words[slot as usize / 16] += f64::from(1u32 << (slot % 16)));
    }
    table[0] = f64::from(slots);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_the_experts_that_some_row_has_chosen() {
        let shape = RouteShape { rows: 2, experts: 4, chosen: 1 };
        let logits = [0.0, 5.0, 5.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        let table = route_table(RouterKind::TopKThenSoftmax, &logits, &[], shape);
        assert_eq!([4, 5, 6, 8, 9, 10].map(|at| table[at]), [1.0, 1.0, 0.0, 3.0, 0.0, 1.0]);
        let sets = shape.sets_at() as usize;
        assert_eq!([table[0], table[sets], table[sets + shape.set_words() as usize]], [2.0, 1.0, 2.0]);
    }

    #[test]
    fn a_slot_is_in_use_even_where_no_expert_has_a_weight() {
        let shape = RouteShape { rows: 1, experts: 3, chosen: 2 };
        let table = route_table(RouterKind::TopKThenSoftmax, &[f64::NAN; 3], &[], shape);
        assert_eq!([table[0], table[4], table[5]], [1.0, 0.0, 0.0]);
    }
}
