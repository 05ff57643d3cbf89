//! Maps the rows of packed weights to results.
//!
//! A model's packed weights have them in the order in which the megakernel's tasks take them: gates
//! and what they gate take turns, and a kv head's queries, keys and values lie together, as pairs
//! that are rotated ([`qkv`](crate::gemv::task::qkv)). Four consecutive rows from a multiple of
//! four on always make four consecutive results.

use tilewright_codegen::build::Val;

use crate::weights::Strip;

/// The meaning of the rows of packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightRows {
    /// A number of rows, each a result.
    InOrder(u32),
    /// Strips of gates, each before the strip that it gates: the number of results
    /// `activation(gate) · up`.
    Gated(u32),
    /// The projections of one group after the other, as [`qkv`](crate::gemv::task::qkv) has their
    /// strips. Results are all query heads, then keys, then values.
    Groups {
        /// Query heads of a group.
        group: u32,
        /// Groups.
        kv_heads: u32,
        /// Dimensions of a head, a multiple of 8.
        dim: u32,
    },
}

impl From<u32> for WeightRows {
    fn from(rows: u32) -> WeightRows {
        WeightRows::InOrder(rows)
    }
}

impl WeightRows {
    /// Packed rows, without those that fill its last strip.
    ///
    /// ```
    /// use tilewright_kernels::gemv::hopper::WeightRows;
    /// assert_eq!(WeightRows::Gated(12).packed(), 32);
    /// assert_eq!(WeightRows::Groups { group: 4, kv_heads: 8, dim: 128 }.packed(), 6144);
    /// ```
    pub fn packed(self) -> u32 {
        match self {
            WeightRows::InOrder(rows) => rows,
            WeightRows::Gated(results) => results.div_ceil(Strip::ROWS).saturating_mul(2 * Strip::ROWS),
            WeightRows::Groups { .. } => self.results(),
        }
    }

    /// Results of a vector.
    pub fn results(self) -> u32 {
        match self {
            WeightRows::InOrder(rows) | WeightRows::Gated(rows) => rows,
            WeightRows::Groups { group, kv_heads, dim } => (group + 2).saturating_mul(kv_heads).saturating_mul(dim),
        }
    }

    /// Rows that one thread finishes together, or several where these are a part.
    pub(super) fn together(self) -> u32 {
        match self {
            WeightRows::InOrder(_) => 4,
            WeightRows::Groups { .. } => Strip::ROWS,
            WeightRows::Gated(_) => 2 * Strip::ROWS,
        }
    }

    /// The row of the matrices below each other that a packed row is: gates lie above what they
    /// gate, queries above keys above values. None: there is no such row.
    ///
    /// ```
    /// use tilewright_kernels::gemv::hopper::WeightRows;
    /// let gated = WeightRows::Gated(12);
    /// assert_eq!([0, 8, 16, 20, 24].map(|row| gated.weight(row)), [Some(0), Some(12), Some(8), None, Some(20)]);
    /// let heads = WeightRows::Groups { group: 1, kv_heads: 2, dim: 8 };
    /// // Pairs of the first query, then of its key; the value; then those of the second group.
    /// let found: Vec<_> = (0..48).step_by(4).filter_map(|row| heads.weight(row)).collect();
    /// assert_eq!(found, [0, 4, 16, 20, 32, 36, 8, 12, 24, 28, 40, 44]);
    /// ```
    pub fn weight(self, row: u32) -> Option<u32> {
        let strip = row / Strip::ROWS;
        let within = row % Strip::ROWS;
        match self {
            WeightRows::InOrder(rows) => Some(row).filter(|&row| row < rows),
            WeightRows::Gated(results) => {
                let at = strip / 2 * Strip::ROWS + within;
                (at < results).then_some(at + strip % 2 * results)
            }
            WeightRows::Groups { group, kv_heads, dim } => {
                let per_head = dim / Strip::ROWS;
                let half = dim / 2;
                let kv_head = strip / (per_head * (group + 2));
                let strip = strip % (per_head * (group + 2));
                let slot = strip / per_head;
                let at = strip % per_head;
                let head = if slot < group { kv_head * group + slot } else { slot * kv_heads + kv_head };
                let at = if slot > group { at * Strip::ROWS + within } else { at * 4 + within % 4 + within / 4 * half };
                (kv_head < kv_heads).then_some(head * dim + at)
            }
        }
    }

    /// The result that a packed row makes, the first of a run; of gates and what they gate the
    /// gates' rows are counted.
    pub(super) fn result(self, row: Val<'_, u32>) -> Val<'_, u32> {
        match self {
            WeightRows::InOrder(_) => row,
            WeightRows::Gated(_) => row / (2 * Strip::ROWS) * Strip::ROWS + row % Strip::ROWS,
            WeightRows::Groups { group, kv_heads, dim } => {
                let per_head = dim / Strip::ROWS;
                let half = dim / 2;
                let strip = row / Strip::ROWS;
                let within = row % Strip::ROWS;
                let kv_head = strip / (per_head * (group + 2));
                let strip = strip % (per_head * (group + 2));
                let slot = strip / per_head;
                let at = strip % per_head;
                let head = slot.lt(group).select(kv_head * group + slot, slot * kv_heads + kv_head);
                let pair = at * 4 + within % 4 + within / 4 * half;
                head * dim + slot.gt(group).select(at * Strip::ROWS + within, pair)
            }
        }
    }
}
