//! The table of a step's routes.

use tilewright_codegen::build::Val;

use crate::tile::Array;

/// Slots of a number of a set: a float holds as many bits exactly.
pub(super) const SET_BITS: u32 = 16;

/// The extents of a choice of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteShape {
    /// Rows of the batch.
    pub rows: u32,
    /// Experts.
    pub experts: u32,
    /// Experts that are chosen for each row.
    pub chosen: u32,
}

impl RouteShape {
    /// Most experts.
    pub const EXPERTS: u32 = 1024;
    /// Most experts that are chosen for a row: one for each lane of a warp.
    pub const CHOSEN: u32 = 32;

    /// Slots: the most different experts that the rows can choose.
    ///
    /// ```
    /// use tilewright_kernels::experts::RouteShape;
    /// let slots = |rows| RouteShape { rows, experts: 128, chosen: 8 }.slots();
    /// assert_eq!([slots(1), slots(16), slots(64)], [8, 128, 128]);
    /// ```
    pub const fn slots(self) -> u32 {
        let all = self.rows.saturating_mul(self.chosen);
        if all < self.experts { all } else { self.experts }
    }

    /// The share of the experts that the rows choose, where they choose uniformly:
    /// `1 − (1 − k/E)^rows`.
    ///
    /// ```
    /// use tilewright_kernels::experts::RouteShape;
    /// let share = |rows| RouteShape { rows, experts: 128, chosen: 8 }.share();
    /// assert_eq!(share(1), 0.0625);
    /// assert!((51.0..52.0).contains(&(share(8) * 128.0)));
    /// ```
    pub fn share(self) -> f64 {
        1.0 - (1.0 - f64::from(self.chosen) / f64::from(self.experts)).powi(self.rows as i32)
    }

    /// Numbers of a row of the table: the expert, a weight for each row of the batch, and what makes
    /// it a multiple of four.
    pub const fn width(self) -> u32 {
        (1 + self.rows).next_multiple_of(4)
    }

    /// The extents of the table.
    pub const fn table(self) -> [u32; 2] {
        let sets = self.rows.saturating_mul(self.set_words());
        [1 + self.slots() + sets.div_ceil(self.width()), self.width()]
    }

    /// Numbers that say which slots a row has chosen, a multiple of four.
    pub const fn set_words(self) -> u32 {
        self.slots().div_ceil(SET_BITS).next_multiple_of(4)
    }

    /// The place of the first of them of the first row.
    pub const fn sets_at(self) -> u32 {
        (1 + self.slots()).saturating_mul(self.width())
    }
}

/// The table of a step's routes, f32 `[1 + slots, width]`. Each expert that some row has chosen has
/// a *slot*; slots are in the order of the experts.
///
/// | row | first number | the next numbers |
/// |---|---|---|
/// | 0 | slots in use | |
/// | 1 + s | the expert of slot s | its weight for each row of the batch; 0: the row did not choose it |
/// | 1 + slots .. | the sets of slots that rows have chosen, row after row ([`RouteShape::set_words`] numbers each) | |
///
/// A number of a set has sixteen slots as the bits of an integer.
///
/// A weight that is 0 in f32 counts as not chosen. At least one slot is in use: where no row has
/// chosen any, one of the first expert. What lies beyond the slots in use is undefined.
#[derive(Clone, Copy)]
pub struct RouteTable<'k> {
    /// The numbers.
    pub at: Array<'k>,
    /// Extents.
    pub shape: RouteShape,
}

impl<'k> RouteTable<'k> {
    /// The number of slots in use.
    #[track_caller]
    pub fn used(self, zero: Val<'k, u32>) -> Val<'k, u32> {
        self.at.load(zero).cast()
    }

    /// The expert of a slot.
    #[track_caller]
    pub fn expert(self, slot: Val<'k, u32>) -> Val<'k, u32> {
        self.at.load((slot + 1) * self.shape.width()).cast()
    }

    /// The place of a slot's weight for a row.
    #[track_caller]
    pub fn place(self, slot: Val<'k, u32>, row: Val<'k, u32>) -> Val<'k, u32> {
        (slot + 1) * self.shape.width() + 1 + row
    }

    /// The set of slots that a row has chosen, in words of 32 bits.
    #[track_caller]
    pub(crate) fn set(self, row: Val<'k, u32>) -> Vec<Val<'k, u32>> {
        let words = self.shape.set_words();
        let first = row * words + self.shape.sets_at();
        let fours: Vec<_> = (0..words).step_by(4).map(|word| first + word).collect();
        let halves: Vec<Val<u32>> = self.at.gather::<4>(&fours).concat().into_iter().map(Val::cast).collect();
        halves.chunks(2).map(|pair| pair[0] | pair[1] << SET_BITS).collect()
    }

    /// A slot's weight for a row.
    #[track_caller]
    pub fn weight(self, slot: Val<'k, u32>, row: Val<'k, u32>) -> Val<'k, f32> {
        self.at.load(self.place(slot, row))
    }
}
