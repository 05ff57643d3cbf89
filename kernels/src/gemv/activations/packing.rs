//! The layout of a batch's rows in the sixteen rows of the A operand of `m16n8k16`.
//!
//! Elements of f32 come in two parts, `x = high + low`: bf16, and what that rounds off as bf16. So
//! products are as exact as the weights. Batches stream their weights once whatever their rows;
//! MMAs are far from what takes the time.
//!
//! | rows | the MMA's rows 0 to 3, 4 to 7 | 8 to 15 | MMAs of 16 columns |
//! |---|---|---|---|
//! | 1 to 4 | high, low | nothing | 1 |
//! | 5 to 8 | high | low | 1 |
//! | 9 to 16 | high of rows 0 to 7, then low | the same of rows 8 to 15 | 2 |
//!
//! Elements of bf16 have no low part. Codes, whose stage of 16 KB meets up to four times the
//! activations that one of bf16 does, meet 5 to 16 rows of f32 as one f16: half of what every SM
//! reads, and half of the registers. Codes of `e4m3` become f16 with a third of the instructions
//! that bf16 takes, so they meet nothing else: up to 4 rows of f32 as two f16, elements of bf16 as
//! one.

use tilewright_codegen::build::{Builder, Ptr, Shared, Val};

use crate::gemv::product::Fragment;
use crate::tile::Float;
use crate::warps::ConsumerWarps;
use crate::weights::{Strip, Terms};

/// The rows of a batch, and the 16-bit parts that its elements are split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packing {
    rows: u32,
    parts: u32,
    terms: Terms,
}

/// The elements that a lane loads of its row of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gemv) enum Quads {
    /// Eight elements of the high part.
    High,
    /// Lanes 0 to 15 eight of the high part, the others eight of the low part.
    Folded,
    /// Eight of the high part, then eight of the low part.
    Both,
}

/// Rows that the lanes bring together: eight from there on.
#[derive(Clone, Copy)]
pub(in crate::gemv) struct Half {
    packing: Packing,
    base: u32,
}

impl Packing {
    /// Most rows.
    pub const ROWS: u32 = 16;

    /// The packing of `rows` rows, 1 to 16, of elements of a type.
    ///
    /// ```
    /// use tilewright_kernels::gemv::activations::Packing;
    /// use tilewright_kernels::tile::Float;
    /// assert_eq!(Packing::of(8, Float::F32).parts(), 2);
    /// assert_eq!(Packing::of(8, Float::Bf16).parts(), 1);
    /// ```
    pub fn of(rows: u32, float: Float) -> Packing {
        Packing { rows, parts: if float == Float::Bf16 { 1 } else { 2 }, terms: Terms::Bf16 }
    }

    /// The packing that the weights of a strip take: 5 to 16 rows in two parts meet codes as one
    /// f16, and all meet `e4m3` as f16.
    #[must_use]
    pub fn meeting(self, strip: Strip) -> Packing {
        let Some(codes) = strip.codes() else { return self };
        match (codes.code.is_integer(), self.parts, self.rows) {
            (_, 2, 5..) | (false, 1, _) => Packing { parts: 1, terms: Terms::F16, ..self },
            (false, ..) => Packing { terms: Terms::TwoF16, ..self },
            (true, ..) => self,
        }
    }

    /// The type in which codes meet it.
    pub(in crate::gemv) fn terms(self) -> Terms {
        self.terms
    }

    /// Rows of the batch.
    pub fn rows(self) -> u32 {
        self.rows
    }

    /// Parts of an element.
    pub fn parts(self) -> u32 {
        self.parts
    }

    /// Whether the MMA's rows 8 to 15 are nothing's.
    pub(in crate::gemv) fn is_half(self) -> bool {
        self.rows <= 8 && self.quads() != Quads::Both
    }

    /// Registers of a lane that a tile's 32 columns take.
    pub(in crate::gemv) fn words(self) -> u32 {
        4 * self.halves().len() as u32 * if self.quads() == Quads::Both { 2 } else { 1 }
    }

    pub(in crate::gemv) fn quads(self) -> Quads {
        match (self.parts, self.rows) {
            (1, _) => Quads::High,
            (_, ..=4) => Quads::Folded,
            _ => Quads::Both,
        }
    }

    pub(in crate::gemv) fn halves(self) -> Vec<Half> {
        (0..self.rows).step_by(8).map(|base| Half { packing: self, base }).collect()
    }

    /// The operands that a lane's quads of a tile make, as the halves have them in turn.
    pub(in crate::gemv) fn fragments<'k>(self, quads: &[[Val<'k, u32>; 4]]) -> Vec<Fragment<'k>> {
        match *quads {
            [high_0, low_0, high_8, low_8] => {
                vec![Fragment { low: high_0, high: Some(high_8) }, Fragment { low: low_0, high: Some(low_8) }]
            }
            _ => vec![Fragment { low: quads[0], high: quads.get(1).copied() }],
        }
    }

    /// The rows whose sums this lane has of its feature, where codes are the A operand: row, which
    /// lane of four has it, sum. The columns of a step are the rows' high parts, then their low
    /// parts; lanes 0 and 1 of four have them of the first step, the others of the second.
    pub(in crate::gemv) fn rows_of_columns<'k>(
        self,
        k: &'k Builder,
        [a, b, c, d]: [Val<'k, f32>; 4],
    ) -> Vec<(u32, u32, Val<'k, f32>)> {
        let second = (k.lane() % 4).ge(2);
        let both = |first: Val<'k, f32>, other: Val<'k, f32>| {
            let mine = second.select(other, first);
            mine + mine.shfl_bfly(2)
        };
        let [even, odd] = [both(a, c), both(b, d)];
        match (self.parts, self.rows) {
            (1, rows) => (0..rows).map(|row| (row, row / 2, if row % 2 == 0 { even } else { odd })).collect(),
            (_, 1) => vec![(0, 0, self.terms.whole(even, odd))],
            _ => (0..).zip([even, odd]).map(|(row, sum)| (row, 0, self.terms.whole(sum, sum.shfl_bfly(1)))).collect(),
        }
    }

    /// The rows where the columns of a step are two strips' features, of the first two or the last
    /// two sums of a lane: `(row, sum)`, in lanes where the row is one of the batch.
    pub(in crate::gemv) fn rows_of_two<'k>(
        self,
        k: &'k Builder,
        sums: [Val<'k, f32>; 2],
    ) -> [(Val<'k, u32>, Val<'k, f32>); 2] {
        let first = k.lane() % 4 * 2;
        let folded = self.quads() == Quads::Folded;
        let sums = sums.map(|sum| if folded { self.terms.whole(sum, sum.shfl_bfly(2)) } else { sum });
        [(first, sums[0]), (first + 1, sums[1])]
    }

    /// The sums of this lane's two features in its row of the MMA's rows 0 to 7 and, where these
    /// are other rows of the batch, 8 to 15.
    pub(in crate::gemv) fn totals<'k>(
        self,
        [a, b, c, d]: [Val<'k, f32>; 4],
    ) -> ([Val<'k, f32>; 2], Option<[Val<'k, f32>; 2]>) {
        match self.quads() {
            _ if self.rows > 8 => ([a, b], Some([c, d])),
            Quads::High => ([a, b], None),
            Quads::Folded => ([a, b].map(|sum| self.terms.whole(sum, sum.shfl_bfly(16))), None),
            Quads::Both => ([a + c, b + d], None),
        }
    }
}

impl Half {
    /// The first of its rows.
    pub fn base(self) -> u32 {
        self.base
    }

    /// The row of the batch for this lane. Surplus rows of the MMA repeat a row of the batch, and
    /// are ignored.
    pub fn row<'k>(self, consumers: ConsumerWarps<'k>) -> Val<'k, u32> {
        let group = consumers.k.lane() / 4;
        let row = if self.packing.quads() == Quads::Folded { group % 4 } else { group + self.base };
        row.min(self.packing.rows - 1)
    }

    /// Stores one number of each row of the half, to `[rows, warps]`: the sum of what each row's
    /// four lanes have, and what is there where `accumulates` holds.
    pub fn add_up<'k>(
        self,
        consumers: ConsumerWarps<'k>,
        sum: Val<'k, f32>,
        to: Ptr<'k, Shared, f32>,
        accumulates: Option<Val<'k, bool>>,
    ) {
        let k = consumers.k;
        let sum = [1u32, 2].into_iter().fold(sum, |sum, bits| sum + sum.shfl_bfly(bits));
        let row = k.lane() / 4 + self.base;
        let mine = (k.lane() % 4).eq(0) & row.lt(self.packing.rows);
        let place = to.at(k.warp()).at(row * consumers.warps);
        k.when(mine, || match accumulates {
            None => place.store(sum),
            Some(accumulates) => k.if_else(accumulates, || place.store(place.load() + sum), || place.store(sum)),
        });
    }
}
