//! The distribution of a value's row over a group of lanes.

use tilewright_codegen::build::Val;

/// Elements that a lane loads together.
pub(super) const VECTOR: u32 = 8;
/// Lanes of a warp.
pub(super) const WARP: u32 = 32;

/// A row of as many elements as a head has dimensions is dealt to the lanes of a group, eight by
/// eight; each lane of the group holds all of any other row.
///
/// Element `8c + e` of lane `l` is element `8·(c·lanes + l) + e` of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    /// Dimensions of a head, a multiple of eight.
    pub dim: u32,
    /// Lanes of a group, a power of two.
    pub lanes: u32,
}

impl Spread {
    /// Groups of at most `most` lanes.
    pub fn new(dim: u32, most: u32) -> Spread {
        let vectors = (dim / VECTOR).max(1);
        Spread { dim, lanes: most.min(1 << vectors.trailing_zeros()) }
    }

    /// Groups of a warp.
    pub fn groups(self) -> u32 {
        WARP / self.lanes
    }

    /// Whether rows of that number of elements are distributed over the lanes.
    pub fn deals(self, elements: usize) -> bool {
        elements == self.dim as usize
    }

    /// Elements of a row that a lane holds.
    pub fn held(self, elements: usize) -> u32 {
        if self.deals(elements) { self.dim / self.lanes } else { elements as u32 }
    }

    /// The first element of a lane's eight in a distributed row.
    pub fn first<'k>(self, lane: Val<'k, u32>, eight: u32) -> Val<'k, u32> {
        (lane + eight * self.lanes) * VECTOR
    }

    /// Reduces the values of a group's lanes and returns the result in each of them.
    pub fn combine<'k>(
        self,
        mine: Val<'k, f32>,
        f: impl Fn(Val<'k, f32>, Val<'k, f32>) -> Val<'k, f32>,
    ) -> Val<'k, f32> {
        (0..self.lanes.ilog2()).fold(mine, |all, bit| f(all, all.shfl_bfly(1u32 << bit)))
    }
}
