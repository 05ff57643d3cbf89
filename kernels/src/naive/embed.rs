//! Rows of the embedding table.

use super::Real;

/// `scale · table[id, :]` for the table `[vocab, hidden]`; zeros for an idle row (`None`).
pub fn embed<T: Real>(table: &[T], hidden: usize, id: Option<usize>, scale: T) -> Vec<T> {
    match id {
        Some(id) => table[id * hidden..(id + 1) * hidden].iter().map(|&x| x * scale).collect(),
        None => vec![T::ZERO; hidden],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_the_row_or_zeros() {
        let table = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(embed(&table, 2, Some(2), 1.0), [5.0, 6.0]);
        assert_eq!(embed(&table, 2, Some(0), 0.5), [0.5, 1.0]);
        assert_eq!(embed(&table, 3, None, 1.0), [0.0; 3]);
    }
}
