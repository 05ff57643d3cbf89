//! Rows that are consecutive tokens of one sequence: what attention takes together.

use crate::vm::StepCells;

/// The sequences of a step, in the order of its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sequences {
    /// Tokens that each row sees of those at the beginning that are a sequence of their own; the
    /// sequences below are of the other rows.
    pub alone: Vec<u32>,
    /// The first row of each, and after the last.
    pub query_starts: Vec<u32>,
    /// Sums of their tokens.
    pub token_starts: Vec<u32>,
    /// Their page tables.
    pub tables: Vec<i32>,
}

impl Sequences {
    /// The sequences of checked step inputs; at most that number of rows are taken alone. Idle rows
    /// between others are a sequence without tokens; those at the end belong to none.
    pub fn of(cells: &StepCells, most_alone: usize) -> Sequences {
        let width = cells.page_table.len() / cells.positions.len().max(1);
        let table = |row: usize| &cells.page_table[row * width..][..width];
        let rows = cells.positions.iter().rposition(|&position| position >= 0).map_or(0, |last| last + 1);
        let is_alone = |row: usize| {
            let next = row + 1;
            let goes_on = next < rows && cells.positions[next] >= 0 && table(next) == table(row);
            // Attention of rows that are alone begins before this step's keys and values are all
            // there.
            let is_known = cells.positions[row] >= 0 && (0..row).any(|before| table(before) == table(row));
            cells.positions[row] >= 0 && !goes_on && !is_known
        };
        let mut first = (0..rows.min(most_alone)).find(|&row| !is_alone(row)).unwrap_or(rows.min(most_alone));
        let alone: Vec<u32> = cells.positions[..first].iter().map(|&position| position as u32 + 1).collect();
        let mut all = Sequences { alone, query_starts: vec![first as u32], token_starts: vec![0], tables: Vec::new() };
        while first < rows {
            let position = cells.positions[first];
            let mut end = first + 1;
            let goes_on = |end: usize| match position {
                0.. => cells.positions[end] == cells.positions[end - 1] + 1 && table(end) == table(first),
                _ => cells.positions[end] < 0,
            };
            while end < rows && goes_on(end) {
                end += 1;
            }
            let tokens = if position < 0 { 0 } else { cells.positions[end - 1] as u32 + 1 };
            all.query_starts.push(end as u32);
            all.token_starts.push(all.token_starts.last().map_or(0, |last| last + tokens));
            all.tables.extend_from_slice(table(first));
            first = end;
        }
        all
    }

    /// The number of sequences with several rows.
    pub fn count(&self) -> usize {
        self.query_starts.len() - 1
    }

    /// Pads with sequences without rows up to `count`.
    pub fn padded(mut self, count: usize) -> Sequences {
        let width = self.tables.len() / self.count().max(1);
        for starts in [&mut self.query_starts, &mut self.token_starts] {
            let last = starts.last().copied().unwrap_or(0);
            starts.resize(count + 1, last);
        }
        self.tables.resize(count * width, 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(positions: &[i32], page_table: &[i32]) -> Sequences {
        Sequences::of(&StepCells { tokens: &vec![0; positions.len()], positions, page_table }, 0)
    }

    #[test]
    fn rows_of_their_own_at_the_beginning_are_taken_alone() {
        let of = |positions: &[i32], page_table: &[i32], most| {
            let found = Sequences::of(&StepCells { tokens: &vec![0; positions.len()], positions, page_table }, most);
            (found.alone, found.query_starts, found.token_starts)
        };
        // Two rows that decode, then a prompt of three tokens, then a row that is after it.
        let positions = [7, 0, 4, 5, 6, 2];
        let tables = [1, 2, 3, 3, 3, 4];
        assert_eq!(of(&positions, &tables, 8), (vec![8, 1], vec![2, 5, 6], vec![0, 7, 10]));
        assert_eq!(of(&positions, &tables, 1), (vec![8], vec![1, 2, 5, 6], vec![0, 1, 8, 11]));
        assert_eq!(of(&[3, -1, -1], &[1, 9, 9], 8), (vec![4], vec![1], vec![0]));
        // A row that follows an idle row is not alone, nor is one whose sequence also has the next
        // row.
        assert_eq!(of(&[-1, 3], &[9, 1], 8), (vec![], vec![0, 1, 2], vec![0, 0, 4]));
        assert_eq!(of(&[3, 4], &[1, 1], 8), (vec![], vec![0, 2], vec![0, 5]));
        // Nor where it has one before.
        assert_eq!(of(&[3, 7, 4], &[1, 2, 1], 8), (vec![4, 8], vec![2, 3], vec![0, 5]));
    }

    #[test]
    fn rows_of_one_page_table_whose_positions_follow_each_other_are_a_sequence() {
        let found = of(&[4, 5, 6], &[1, 2, 1, 2, 1, 2]);
        assert_eq!((found.query_starts, found.token_starts, found.tables), (vec![0, 3], vec![0, 7], vec![1, 2]));
        // Another table, a gap, and the same position of another sequence each begin a new one.
        assert_eq!(of(&[4, 5, 7, 7], &[1, 2, 3, 4]).query_starts, [0, 1, 2, 3, 4]);
        assert_eq!(of(&[4, 5, 7, 8], &[1, 1, 1, 1]).query_starts, [0, 2, 4]);
    }

    #[test]
    fn idle_rows_see_no_tokens_and_belong_to_no_sequence_at_the_end() {
        let found = of(&[0, -1, -1, 3, -1], &[0, 9, 9, 1, 9]);
        assert_eq!((found.query_starts.clone(), found.token_starts.clone()), (vec![0, 1, 3, 4], vec![0, 1, 1, 5]));
        let padded = found.padded(4);
        assert_eq!((padded.query_starts, padded.tables), (vec![0, 1, 3, 4, 4], vec![0, 9, 1, 0]));
        assert_eq!(of(&[-1, -1], &[0, 0]), of(&[], &[]));
    }
}
