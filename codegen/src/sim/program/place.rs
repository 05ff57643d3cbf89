//! Places of values in the register file: a linear scan over their lives.

use super::live::Lives;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A row for each value (row 0 if it is never written), and the number of rows.
pub(super) fn place(lives: &Lives) -> (Vec<u32>, u32) {
    let mut order: Vec<usize> = (0..lives.ranges.len()).filter(|&value| lives.ranges[value].is_some()).collect();
    order.sort_by_key(|&value| lives.ranges[value]);
    let mut rows = vec![0; lives.ranges.len()];
    let mut free: Vec<u32> = Vec::new();
    let mut taken: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
    let mut count = 0;
    for value in order {
        let Some((first, last)) = lives.ranges[value] else { continue };
        while let Some(&Reverse((end, row))) = taken.peek() {
            // An instruction may not write a row that it reads: results of several lanes are
            // written one by one.
            if end >= first {
                break;
            }
            taken.pop();
            free.push(row);
        }
        let row = free.pop().unwrap_or_else(|| {
            count += 1;
            count - 1
        });
        rows[value] = row;
        taken.push(Reverse((last, row)));
    }
    (rows, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_share_a_row_only_when_their_lives_do_not_meet() {
        let lives = Lives { ranges: vec![Some((1, 5)), Some((2, 3)), Some((4, 6)), None, Some((6, 9)), Some((5, 5))] };
        let (rows, count) = place(&lives);
        for (a, left) in lives.ranges.iter().enumerate() {
            for (b, right) in lives.ranges.iter().enumerate() {
                if let (Some(l), Some(r)) = (left, right)
                    && a < b
                    && l.0 <= r.1
                    && r.0 <= l.1
                {
                    assert_ne!(rows[a], rows[b], "values {a} and {b}");
                }
            }
        }
        assert_eq!(count, 3);
    }
}
