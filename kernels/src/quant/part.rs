//! Parts of a quantised matrix: some rows, some columns, such as one of several devices has.
//!
//! Rows are whole and keep the form. A cut along K may fall within a group: its factors then belong
//! to both sides. So that all devices generate the same code, groups become as long as the common
//! divisor of the group, the cut and the part ([`group_of_part`]), whose factors are those of the
//! group around them: no number changes.
//!
//! With an act-order the columns of a part lie anywhere among the places. The part has them in the
//! order of places. A group's places must then be all in the part, or none of them: runs of several
//! lengths are not groups.

use std::ops::Range;

use thiserror::Error;

use super::{QuantMatrix, QuantParts, Zeros};

/// Why a matrix has no such part.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum PartError {
    #[error("rows {rows:?} and columns {columns:?} are no part of a matrix of {n} x {k}")]
    Range { rows: Range<usize>, columns: Range<usize>, n: usize, k: usize },
    #[error(
        "columns {columns:?} have {found} of the {expected} places of group {group}, which an act-order spreads over all columns"
    )]
    Order { columns: Range<usize>, group: usize, found: usize, expected: usize },
}

/// Codes of a group of a part that has these of `k` columns, where the matrix has groups of `group`
/// and no act-order.
///
/// ```
/// use tilewright_kernels::quant::group_of_part;
/// // Eight devices share 18944 columns: 2368 each, 18 groups and a half.
/// assert_eq!(group_of_part(128, 18944, &(2368..4736)), 64);
/// assert_eq!(group_of_part(128, 14336, &(3584..7168)), 128);
/// // A row that is one group is one in each part.
/// assert_eq!(group_of_part(14336, 14336, &(0..100)), 100);
/// ```
pub fn group_of_part(group: usize, k: usize, columns: &Range<usize>) -> usize {
    if *columns == (0..k) {
        return group;
    }
    if group >= k {
        return columns.len();
    }
    common_divisor(common_divisor(group, columns.start), columns.len())
}

/// The largest number that divides both.
///
/// ```
/// assert_eq!(tilewright_kernels::quant::common_divisor(2368, 128), 64);
/// ```
pub const fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

impl QuantMatrix {
    /// The part of these rows and columns, a matrix of its own: codes and factors are copied.
    ///
    /// ```
    /// use tilewright_kernels::naive::dequantize;
    /// use tilewright_kernels::quant::{Code, QuantMatrix, QuantParts, Zeros};
    /// let codes = vec![0x21, 0x43];
    /// let scales = vec![1.0, 2.0];
    /// let parts = QuantParts { n: 1, k: 4, code: Code::U4, group: 3, codes, scales, zeros: Zeros::Same(0), order: None };
    /// let part = QuantMatrix::new(parts)?.part(0..1, 2..4)?;
    /// assert_eq!((part.group(), dequantize::<f32>(&part)), (1, vec![3.0, 8.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`PartError`] for ranges outside of the matrix, empty ones, and columns that an act-order
    /// does not keep together.
    pub fn part(&self, rows: Range<usize>, columns: Range<usize>) -> Result<QuantMatrix, PartError> {
        let part = self.places_of_part(&rows, &columns)?;
        let n = rows.len();
        let k = columns.len();
        let row_bytes = k.div_ceil(8 / self.code().bits());
        let mut codes = Vec::with_capacity(n * row_bytes);
        rows.clone().for_each(|row| self.codes_of_part(row, &part.places, &mut codes));
        let groups = &part.groups;
        let scales = rows.clone().flat_map(|row| groups.iter().map(move |&group| self.scales(row)[group])).collect();
        let zeros = match &self.parts().zeros {
            Zeros::Same(zero) => Zeros::Same(*zero),
            Zeros::Each(_) => {
                let each = rows.clone().flat_map(|row| groups.iter().map(move |&group| self.zero(row, group)));
                Zeros::Each(each.collect())
            }
        };
        let order = self.order().map(|order| {
            let of = |place: usize| order[place] - columns.start as u32;
            part.places.each().map(of).collect()
        });
        let parts = QuantParts { n, k, code: self.code(), group: part.group, codes, scales, zeros, order };
        // The parts of what is sound are sound.
        let part = QuantMatrix::new(parts).map_err(|_| self.out_of_range(&rows, &columns))?;
        Ok(match self.blocks() {
            Some(scale) => part.with_tensor_scale(scale),
            None => part,
        })
    }

    /// Checks that a part exists, as [`QuantMatrix::part`] does, without copying anything.
    ///
    /// # Errors
    /// As [`QuantMatrix::part`].
    pub fn check_part(&self, rows: &Range<usize>, columns: &Range<usize>) -> Result<(), PartError> {
        self.places_of_part(rows, columns).map(drop)
    }

    fn out_of_range(&self, rows: &Range<usize>, columns: &Range<usize>) -> PartError {
        PartError::Range { rows: rows.clone(), columns: columns.clone(), n: self.n(), k: self.k() }
    }

    fn places_of_part(&self, rows: &Range<usize>, columns: &Range<usize>) -> Result<PartPlaces, PartError> {
        let n = self.n();
        let k = self.k();
        let group = self.group();
        if rows.is_empty() || columns.is_empty() || rows.end > n || columns.end > k {
            return Err(self.out_of_range(rows, columns));
        }
        let Some(order) = self.order().filter(|_| *columns != (0..k)) else {
            let own = group_of_part(group, k, columns);
            let groups = columns.clone().step_by(own).map(|first| first / group).collect();
            return Ok(PartPlaces { places: RowPlaces::Run(columns.clone()), group: own, groups });
        };
        let mut places = Vec::with_capacity(columns.len());
        let mut groups = Vec::new();
        for (number, of_group) in order.chunks(group).enumerate() {
            let before = places.len();
            let inside = of_group.iter().enumerate().filter(|(_, column)| columns.contains(&(**column as usize)));
            places.extend(inside.map(|(at, _)| number * group + at));
            let found = places.len() - before;
            let expected = of_group.len();
            if found > 0 {
                groups.push(number);
            }
            // A row that is one group is one in each part.
            if found > 0 && found < expected && group < k {
                return Err(PartError::Order { columns: columns.clone(), group: number, found, expected });
            }
        }
        Ok(PartPlaces { places: RowPlaces::List(places), group: group.min(columns.len()), groups })
    }

    /// Appends a row's codes of these places.
    fn codes_of_part(&self, row: usize, places: &RowPlaces, codes: &mut Vec<u8>) {
        let per_byte = 8 / self.code().bits();
        match places {
            RowPlaces::Run(run) if run.start.is_multiple_of(per_byte) => {
                codes.extend(&self.row(row)[run.start / per_byte..run.end.div_ceil(per_byte)]);
            }
            RowPlaces::Run(_) | RowPlaces::List(_) => {
                let mut own = places.each().map(|place| self.bits(row, place));
                while let Some(low) = own.next() {
                    let high = if per_byte == 2 { own.next().unwrap_or(0) << 4 } else { 0 };
                    codes.push(low | high);
                }
            }
        }
    }
}

/// The places of a part in a row.
struct PartPlaces {
    places: RowPlaces,
    /// Codes of a group of the part.
    group: usize,
    /// The group of the matrix whose factors each of these has.
    groups: Vec<usize>,
}

/// Places of a row, in their order.
enum RowPlaces {
    Run(Range<usize>),
    List(Vec<usize>),
}

impl RowPlaces {
    fn each(&self) -> impl Iterator<Item = usize> + '_ {
        let (run, list) = match self {
            RowPlaces::Run(run) => (run.clone(), &[][..]),
            RowPlaces::List(list) => (0..0, &list[..]),
        };
        run.chain(list.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::naive;
    use crate::quant::Code;
    use crate::quant::trials::drawn;
    use tilewright_codegen::trial::Draw;

    fn matrix(extents: [usize; 3], code: Code, each: bool, order: Option<Vec<u32>>, seed: u64) -> QuantMatrix {
        drawn(&mut Draw::new(seed), extents, code, each, order)
    }

    /// The columns of a matrix's numbers.
    fn sliced(matrix: &QuantMatrix, rows: Range<usize>, columns: Range<usize>) -> Vec<f64> {
        let all = naive::dequantize::<f64>(matrix);
        rows.flat_map(|row| all[row * matrix.k()..][columns.clone()].to_vec()).collect()
    }

    proptest! {
        /// Whatever the cut is, the numbers of a part are those of the matrix.
        #[test]
        fn a_part_has_the_numbers_of_the_matrix(
            n in 1usize..6, k in 1usize..150, group in 1usize..70, which in 0usize..6, each: bool, seed: u64,
            at in (0usize..6, 1usize..6, 0usize..150, 1usize..150),
        ) {
            let matrix = matrix([n, k, group], Code::ALL[which], each, None, seed);
            let row = at.0 % n;
            let column = at.2 % k;
            let rows = row..n.min(row + at.1);
            let columns = column..k.min(column + at.3);
            let part = matrix.part(rows.clone(), columns.clone()).expect("inside");
            prop_assert_eq!(naive::dequantize::<f64>(&part), sliced(&matrix, rows, columns.clone()));
            prop_assert_eq!(part.group(), group_of_part(matrix.group(), k, &columns));
        }

        /// Equal parts have one length of groups.
        #[test]
        fn equal_parts_have_equal_groups(each in 1usize..200, devices in 1usize..9, group in 1usize..150) {
            let k = each * devices;
            let of = |device: usize| group_of_part(group.min(k), k, &(device * each..(device + 1) * each));
            prop_assert!((0..devices).all(|device| of(device) == of(0)));
            prop_assert!(group >= k || group.is_multiple_of(of(0)));
        }

        /// An act-order that keeps groups together is cut in the order of places; rows of one group
        /// by any order.
        #[test]
        fn an_order_of_whole_groups_is_cut(groups in 2usize..7, group in 1usize..20, whole: bool, which in 0usize..6, seed: u64) {
            let k = groups * group;
            let mut columns: Vec<u32> = (0..k as u32).collect();
            // Within a group, or of all columns.
            let run = if whole { k } else { group };
            columns.chunks_mut(run).for_each(|run| run.reverse());
            let group = if whole { k } else { group };
            let matrix = matrix([3, k, group], Code::ALL[which], true, Some(columns), seed);
            let cut = if whole { k / 3..k } else { group..k };
            let part = matrix.part(1..3, cut.clone()).expect("whole groups");
            prop_assert_eq!(naive::dequantize::<f64>(&part), sliced(&matrix, 1..3, cut));
        }
    }

    #[test]
    fn what_is_no_part_is_named() {
        let order = Some(vec![3, 0, 1, 2]);
        let matrix = matrix([2, 4, 2], Code::U4, false, order, 1);
        let text = |rows, columns| matrix.part(rows, columns).expect_err("no part").to_string();
        insta::assert_snapshot!(text(0..3, 0..4), @"rows 0..3 and columns 0..4 are no part of a matrix of 2 x 4");
        insta::assert_snapshot!(text(0..2, 0..2), @"columns 0..2 have 1 of the 2 places of group 0, which an act-order spreads over all columns");
        assert!(matrix.part(1..2, 0..4).is_ok_and(|rows| rows.order() == matrix.order()));
    }
}
