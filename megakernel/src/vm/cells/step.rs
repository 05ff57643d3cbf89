//! Step inputs, which change from step to step: token ids, positions, page tables, requests. They
//! are checked before anything runs.

use std::collections::HashMap;

use bytemuck::{Pod, Zeroable};
use thiserror::Error;
use tilewright_kernels::naive::SamplingError;
use tilewright_kernels::sample::Request;

use crate::ops::Paging;

/// The contents of the cells for one step; empty where the program has no such cell.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepCells<'a> {
    /// The token of every row, `[rows]`. An idle row's is not looked at.
    pub tokens: &'a [i32],
    /// The position of every row in its sequence, `[rows]`; negative: the row is idle.
    pub positions: &'a [i32],
    /// The page of every run of tokens, `[rows, pages_per_sequence]`. Rows of one sequence have the
    /// same entries; those after a row's position are not looked at.
    pub page_table: &'a [i32],
}

/// Why cells are refused.
#[derive(Clone, Debug, PartialEq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum CellError {
    #[error("cell `{cell}` has {found} entries, the program has {expected}")]
    Length { cell: &'static str, expected: usize, found: usize },
    #[error("row {row}: token id {id} is not below the vocabulary's {vocab}")]
    Token { row: usize, id: i32, vocab: usize },
    #[error("row {row}: position {position} is beyond the {capacity} tokens that its page table can hold")]
    Position { row: usize, position: i32, capacity: usize },
    #[error("row {row}: entry {entry} of its page table is {page}, the pools have pages 0 to {}", .pages - 1)]
    Page { row: usize, entry: usize, page: i32, pages: usize },
    #[error(
        "row {row}: entries {first} and {second} of its page table are both page {page}; a page holds one run of tokens"
    )]
    RepeatedPage { row: usize, page: i32, first: usize, second: usize },
    #[error("rows {first} and {second} would append to the same slot: page {page}, token {token}")]
    Slot { first: usize, second: usize, page: i32, token: usize },
    #[error(
        "row {reader} reads page {page}, which row {writer} of another sequence appends to; give it a page of its own"
    )]
    SharedPage { reader: usize, writer: usize, page: i32 },
    #[error("row {row}: slot {slot} is not below the {slots} slots that there are")]
    NoSlot { row: usize, slot: i32, slots: usize },
    #[error("rows {first} and {second} both have slot {slot}; a request is at one token at a time")]
    SlotTwice { first: usize, second: usize, slot: i32 },
    #[error("row {row} asks for a choice that makes no sense")]
    Request {
        row: usize,
        #[source]
        source: SamplingError,
    },
}

/// The slot and the request of a row, for state that a request keeps between steps.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct RequestSlot {
    /// The place; negative: the row has none, and is idle.
    pub index: i32,
    /// The request that has it. Data of a request with another number in the slot counts as reset.
    pub request: i32,
}

impl RequestSlot {
    /// No slot.
    pub const NONE: RequestSlot = RequestSlot { index: -1, request: 0 };

    /// Row `r` in slot `r`, of request number 1: the assignment until the host sets another.
    ///
    /// ```
    /// use tilewright_megakernel::vm::RequestSlot;
    /// let slots = RequestSlot::of_rows(3, 2);
    /// assert_eq!(slots.map(|slot| slot.index).collect::<Vec<_>>(), [0, 1, -1]);
    /// ```
    pub fn of_rows(rows: usize, slots: usize) -> impl Iterator<Item = RequestSlot> {
        let index = move |row| if row < slots { i32::try_from(row).unwrap_or(-1) } else { -1 };
        (0..rows).map(move |row| RequestSlot { index: index(row), request: 1 })
    }
}

/// The bounds against which step inputs are checked.
#[derive(Clone, Debug)]
pub(in crate::vm) struct CellLimits {
    /// Entries of each cell: tokens, positions, page table.
    pub tokens: usize,
    pub positions: usize,
    pub page_table: usize,
    pub requests: usize,
    /// Rows that have a slot: all of them, or none.
    pub rows_with_slots: usize,
    /// Slots there are.
    pub slots: usize,
    pub vocab: Option<usize>,
    pub pagings: Vec<Paging>,
}

impl CellLimits {
    /// Checks the slot of each row: it must exist, and no two rows may share one. A negative slot
    /// means none, for an idle row.
    pub fn check_slots(&self, slots: &[RequestSlot]) -> Result<(), CellError> {
        let expected = self.rows_with_slots;
        let found = slots.len();
        if found != expected {
            return Err(CellError::Length { cell: "slot", expected, found });
        }
        let mut rows = HashMap::new();
        for (row, slot) in slots.iter().enumerate() {
            let Ok(index) = usize::try_from(slot.index) else { continue };
            if index >= self.slots {
                return Err(CellError::NoSlot { row, slot: slot.index, slots: self.slots });
            }
            if let Some(first) = rows.insert(index, row) {
                return Err(CellError::SlotTwice { first, second: row, slot: slot.index });
            }
        }
        Ok(())
    }

    /// Checks what rows ask for: a request for each of them, where the program reads any.
    pub fn check_requests(&self, requests: &[Request]) -> Result<(), CellError> {
        let expected = self.requests;
        let found = requests.len();
        if found != expected {
            return Err(CellError::Length { cell: "request", expected, found });
        }
        let mut rows = requests.iter().enumerate();
        rows.try_for_each(|(row, request)| match request.sampling() {
            Ok(_) => Ok(()),
            Err(source) => Err(CellError::Request { row, source }),
        })
    }
}

impl StepCells<'_> {
    /// Checks every entry that the step looks at.
    pub(in crate::vm) fn check(&self, limits: &CellLimits) -> Result<(), CellError> {
        self.check_steps(limits, 1)
    }

    /// Checks every entry that a launch of `steps` steps reads; all positions advance by one per
    /// step. A page that a row appends to in some step must not be a page of another sequence in
    /// any step.
    pub(in crate::vm) fn check_steps(&self, limits: &CellLimits, steps: usize) -> Result<(), CellError> {
        let lengths = [
            ("token", self.tokens.len(), limits.tokens),
            ("position", self.positions.len(), limits.positions),
            ("page_table", self.page_table.len(), limits.page_table),
        ];
        for (cell, found, expected) in lengths {
            if found != expected {
                return Err(CellError::Length { cell, expected, found });
            }
        }
        for (row, &id) in self.tokens.iter().enumerate() {
            let idle = self.positions.get(row).is_some_and(|&position| position < 0);
            if let Some(vocab) = limits.vocab
                && !idle
                && usize::try_from(id).map_or(true, |id| id >= vocab)
            {
                return Err(CellError::Token { row, id, vocab });
            }
        }
        limits.pagings.iter().try_for_each(|&paging| self.check_pages(paging, steps))
    }

    /// The rows that are not idle: row, position, page table.
    fn active(&self) -> impl Iterator<Item = (usize, usize, &[i32])> {
        let width = self.page_table.len() / self.positions.len().max(1);
        self.positions.iter().enumerate().filter_map(move |(row, &position)| {
            Some((row, usize::try_from(position).ok()?, &self.page_table[row * width..][..width]))
        })
    }

    /// Pages exist, no two rows append to one slot, and no row reads a page that another sequence
    /// appends to.
    fn check_pages(&self, Paging { pages, page_tokens }: Paging, steps: usize) -> Result<(), CellError> {
        let last = |position: usize| position.saturating_add(steps.saturating_sub(1)) / page_tokens;
        let mut slots = HashMap::new();
        // The first row that appends to each page.
        let mut writers = HashMap::new();
        // The pages that the previous row found in a table that this row shares: a prompt has
        // hundreds of such rows.
        let mut entries = HashMap::new();
        let (mut before, mut checked): (&[i32], usize) = (&[], 0);
        for (row, position, table) in self.active() {
            if table != before {
                (before, checked) = (table, 0);
                entries.clear();
            }
            let first = position / page_tokens;
            let last = last(position);
            let (Some(&page), Some(used)) = (table.get(first), table.get(..=last)) else {
                let capacity = table.len() * page_tokens;
                let ahead = i32::try_from(steps).unwrap_or(i32::MAX);
                let position = self.positions[row].saturating_add(ahead.saturating_sub(1));
                return Err(CellError::Position { row, position, capacity });
            };
            for (entry, &page) in used.iter().enumerate().skip(checked) {
                if usize::try_from(page).map_or(true, |page| page >= pages) {
                    return Err(CellError::Page { row, entry, page, pages });
                }
                if let Some(first) = entries.insert(page, entry) {
                    return Err(CellError::RepeatedPage { row, page, first, second: entry });
                }
            }
            checked = checked.max(used.len());
            // Rows of one sequence stay as far apart as they are; those of two share no page that
            // is written.
            let token = position % page_tokens;
            if let Some(first) = slots.insert((page, token), row) {
                return Err(CellError::Slot { first, second: row, page, token });
            }
            for &page in &used[first..] {
                writers.entry(page).or_insert((row, table));
            }
        }
        (before, checked) = (&[], 0);
        for (reader, position, table) in self.active() {
            if table != before {
                (before, checked) = (table, 0);
            }
            let read = last(position) + 1;
            for page in table.get(checked..read).unwrap_or_default() {
                if let Some(&(writer, _)) = writers.get(page).filter(|(_, other)| *other != table) {
                    return Err(CellError::SharedPage { reader, writer, page: *page });
                }
            }
            checked = checked.max(read);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: fn() -> CellLimits = || CellLimits {
        tokens: 2,
        positions: 2,
        page_table: 4,
        requests: 2,
        rows_with_slots: 2,
        slots: 3,
        vocab: Some(10),
        pagings: vec![Paging { pages: 5, page_tokens: 4 }],
    };

    fn check(tokens: &[i32], positions: &[i32], page_table: &[i32]) -> Result<(), CellError> {
        StepCells { tokens, positions, page_table }.check(&LIMITS())
    }

    #[test]
    fn good_cells_pass() {
        assert_eq!(check(&[0, 9], &[0, 7], &[0, -1, 1, 4]), Ok(()));
        // Idle rows are not looked at; neither are entries after the position.
        assert_eq!(check(&[-5, 9], &[-1, 3], &[77, 77, 1, 99]), Ok(()));
        // Two tokens of one sequence; two sequences that share a full page.
        assert_eq!(check(&[1, 2], &[3, 4], &[0, 1, 0, 1]), Ok(()));
        assert_eq!(check(&[1, 2], &[5, 6], &[0, 1, 0, 2]), Ok(()));
    }

    #[test]
    fn every_row_has_a_slot_of_its_own() {
        let check = |indexes: &[i32]| {
            let slots: Vec<RequestSlot> = indexes.iter().map(|&index| RequestSlot { index, request: 4 }).collect();
            LIMITS().check_slots(&slots)
        };
        assert_eq!([check(&[2, 0]), check(&[-1, 1]), check(&[-1, -1])], [Ok(()), Ok(()), Ok(())]);
        assert_eq!(check(&[0]), Err(CellError::Length { cell: "slot", expected: 2, found: 1 }));
        assert_eq!(check(&[0, 3]), Err(CellError::NoSlot { row: 1, slot: 3, slots: 3 }));
        assert_eq!(check(&[1, 1]), Err(CellError::SlotTwice { first: 0, second: 1, slot: 1 }));
        assert_eq!(LIMITS().check_slots(&RequestSlot::of_rows(2, 3).collect::<Vec<_>>()), Ok(()));
    }

    #[test]
    fn every_row_asks_for_something_that_makes_sense() {
        let hot = Request { temperature: 0.5, top_p: 1.0, top_k: 3, ..Request::default() };
        let check = |requests: &[Request]| LIMITS().check_requests(requests);
        assert_eq!(check(&[Request::default(), hot]), Ok(()));
        assert_eq!(check(&[hot]), Err(CellError::Length { cell: "request", expected: 2, found: 1 }));
        let source = SamplingError::TopK;
        assert_eq!(check(&[hot, Request { top_k: 0, ..hot }]), Err(CellError::Request { row: 1, source }));
        let nan = check(&[Request { temperature: f32::NAN, ..hot }, hot]);
        assert!(matches!(nan, Err(CellError::Request { row: 0, source: SamplingError::Temperature { .. } })));
    }

    #[test]
    fn every_bad_cell_is_named() {
        let ok = ([1, 2], [0, 0], [0, 1, 2, 3]);
        assert_eq!(check(&[1], &ok.1, &ok.2), Err(CellError::Length { cell: "token", expected: 2, found: 1 }));
        assert_eq!(check(&ok.0, &[], &ok.2), Err(CellError::Length { cell: "position", expected: 2, found: 0 }));
        assert_eq!(check(&ok.0, &ok.1, &[0]), Err(CellError::Length { cell: "page_table", expected: 4, found: 1 }));
        assert_eq!(check(&[1, 10], &ok.1, &ok.2), Err(CellError::Token { row: 1, id: 10, vocab: 10 }));
        assert_eq!(check(&[-1, 1], &ok.1, &ok.2), Err(CellError::Token { row: 0, id: -1, vocab: 10 }));
        assert_eq!(check(&ok.0, &[8, 0], &ok.2), Err(CellError::Position { row: 0, position: 8, capacity: 8 }));
        assert_eq!(check(&ok.0, &[0, 5], &[0, 1, 2, 5]), Err(CellError::Page { row: 1, entry: 1, page: 5, pages: 5 }));
        assert_eq!(
            check(&ok.0, &[0, 5], &[0, 1, -1, 3]),
            Err(CellError::Page { row: 1, entry: 0, page: -1, pages: 5 })
        );
        let slot = CellError::Slot { first: 0, second: 1, page: 0, token: 2 };
        assert_eq!(check(&ok.0, &[2, 2], &[0, 1, 0, 1]), Err(slot));
        let shared = CellError::SharedPage { reader: 1, writer: 0, page: 0 };
        assert_eq!(check(&ok.0, &[3, 4], &[0, 1, 0, 2]), Err(shared.clone()));
        assert!(shared.to_string().contains("row 0 of another sequence"));
        // A sequence that itself holds a page twice would read its own future.
        let twice = check(&ok.0, &[4, -1], &[0, 0, 0, 0]);
        assert_eq!(twice, Err(CellError::RepeatedPage { row: 0, page: 0, first: 0, second: 1 }));
    }

    fn steps(positions: &[i32], page_table: &[i32], limits: &CellLimits, steps: usize) -> Result<(), CellError> {
        StepCells { tokens: &[0, 1], positions, page_table }.check_steps(limits, steps)
    }

    /// Positions 15 of two sequences: steps 1 to 16 of 18 append to page 7, the first and the last
    /// do not.
    #[test]
    fn pages_written_between_the_first_and_the_last_step_of_a_launch_are_checked() {
        let pagings = vec![Paging { pages: 8, page_tokens: 16 }];
        let limits = CellLimits { page_table: 8, pagings, ..LIMITS() };
        let table = [0, 7, 2, 3, 1, 7, 5, 6];
        let apart = [0, 7, 2, 3, 1, 4, 5, 6];
        assert_eq!(steps(&[15, 15], &table, &limits, 1), Ok(()));
        let shared = CellError::SharedPage { reader: 1, writer: 0, page: 7 };
        assert_eq!(steps(&[15, 15], &table, &limits, 18), Err(shared));
        assert_eq!(steps(&[15, 15], &apart, &limits, 18), Ok(()));
        let beyond = CellError::Position { row: 0, position: 64, capacity: 64 };
        assert_eq!(steps(&[15, 15], &apart, &limits, 50), Err(beyond));
    }

    /// The rule for launches, step by step: every step is right, and no page that some step appends
    /// to is another sequence's in any step.
    #[test]
    fn a_launch_is_right_where_its_steps_are_and_written_pages_are_one_sequences() {
        let pagings = vec![Paging { pages: 5, page_tokens: 2 }];
        let limits = CellLimits { page_table: 6, pagings, ..LIMITS() };
        let mut refused = 0;
        let mut accepted = 0;
        let mut seed = 12345u32;
        let mut draw = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % below
        };
        for _ in 0..20_000 {
            let positions: [i32; 2] = std::array::from_fn(|_| draw(6) as i32 - 1);
            let mut table: [i32; 6] = std::array::from_fn(|_| draw(5) as i32);
            if draw(3) == 0 {
                table.copy_within(0..3, 3);
            }
            let count = 1 + draw(5) as usize;
            let at =
                |step: usize| positions.map(|position| if position < 0 { position } else { position + step as i32 });
            let single = (0..count).all(|step| steps(&at(step), &table, &limits, 1).is_ok());
            let pages = |row: usize, from: i32, to: i32| {
                let entries = from.max(0) as usize / 2..=to.max(0) as usize / 2;
                table[row * 3..][..3].get(entries).unwrap_or_default().to_vec()
            };
            let clash = |a: usize, b: usize| {
                let active = positions[a] >= 0 && positions[b] >= 0 && table[a * 3..][..3] != table[b * 3..][..3];
                let written = pages(a, positions[a], at(count - 1)[a]);
                active && pages(b, 0, at(count - 1)[b]).iter().any(|page| written.contains(page))
            };
            let expected = single && !clash(0, 1) && !clash(1, 0);
            assert_eq!(steps(&positions, &table, &limits, count).is_ok(), expected, "{positions:?} {table:?} {count}");
            if expected { accepted += 1 } else { refused += 1 }
        }
        assert!(accepted > 500 && refused > 500, "{accepted} accepted, {refused} refused");
    }
}
