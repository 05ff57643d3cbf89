//! How wide a copy between two layouts may be, and who copies what.

use super::MAX_VECTOR_BITS;
use crate::{Layout, LayoutError, Swizzled};

impl Swizzled {
    /// The widest vector of elements of `bits` bits that runs along a mode and is contiguous and aligned wherever it
    /// starts at a multiple of its length: a power of two, at most [`MAX_VECTOR_BITS`] wide.
    ///
    /// ```
    /// use tilewright_layout::{Layout, Swizzle, Swizzled};
    /// let tile = Swizzled::new(Swizzle::new(3, 3, 3).unwrap(), 0, Layout::parse("(16,64):(64,1)").unwrap());
    /// assert_eq!((tile.vector_along(1, 16), tile.vector_along(0, 16)), (8, 1));
    /// ```
    pub const fn vector_along(&self, mode: usize, bits: i64) -> i64 {
        let layout = self.layout();
        let Ok(along) = layout.mode(mode) else { return 1 };
        let run = along.coalesce();
        if run.strides()[0] != 1 {
            return 1;
        }
        let mut width = 1;
        while width * 2 * bits <= MAX_VECTOR_BITS && self.whole(mode, run.extents()[0], width * 2) {
            width *= 2;
        }
        width
    }

    /// Whether vectors along a mode, whose first contiguous run is `run` long, stay whole and aligned.
    const fn whole(&self, mode: usize, run: i64, width: i64) -> bool {
        if run % width != 0 || self.start() % width != 0 {
            return false;
        }
        if self.swizzle().bits() > 0 && (1i64 << self.swizzle().base()) % width != 0 {
            return false;
        }
        let layout = self.layout();
        let mut other = 0;
        while other < layout.rank() {
            let Ok(leaves) = layout.mode(other) else { return false };
            let leaves = leaves.coalesce();
            let mut i = if other == mode { 1 } else { 0 };
            while i < leaves.strides().len() {
                if leaves.extents()[i] > 1 && leaves.strides()[i] % width != 0 {
                    return false;
                }
                i += 1;
            }
            other += 1;
        }
        true
    }
}

/// A copy of a matrix by many threads: vectors along one mode, dealt to the threads in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    /// Elements of a vector.
    pub width: i64,
    /// The mode that vectors run along.
    pub along: usize,
    /// Vector number to flat coordinate of its first element; neighbours along `along` come first, so that neighbouring
    /// threads touch neighbouring memory.
    pub vectors: Layout,
    /// How many vectors each thread copies, rounded up.
    pub rounds: i64,
}

impl CopyPlan {
    /// The plan for a tile of `extents` whose source runs along mode `along` with vectors of at most `source` elements, and
    /// whose destination is `to`.
    ///
    /// ```
    /// use tilewright_layout::{analysis::CopyPlan, typed::{OperandTile, KMajor, StaticLayout}, Swizzled};
    /// type Tile = OperandTile<KMajor, 16, 128, 64>;
    /// let to = Swizzled::new(Tile::SWIZZLE, 0, Tile::LAYOUT);
    /// let plan = CopyPlan::new([128, 64], 1, 8, &to, 16, 256).unwrap();
    /// assert_eq!((plan.width, plan.vectors.to_string().as_str(), plan.rounds), (8, "(8,128):(1024,1)", 4));
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Argument`] where there are no threads, the mode is neither 0 nor 1, or the destination has another
    /// shape.
    pub const fn new(
        extents: [i64; 2],
        along: usize,
        source: i64,
        to: &Swizzled,
        bits: i64,
        threads: i64,
    ) -> Result<CopyPlan, LayoutError> {
        let operation = "copy plan";
        if threads < 1 || source < 1 {
            let bound = "at least 1";
            return Err(LayoutError::Argument { operation, argument: "threads and vectors", value: threads, bound });
        }
        let layout = to.layout();
        if along > 1 || layout.rank() != 2 || layout.extent(0) != extents[0] || layout.extent(1) != extents[1] {
            let bound = "2, of the copied extents";
            let value = layout.rank() as i64;
            return Err(LayoutError::Argument { operation, argument: "the rank of the destination", value, bound });
        }
        let mut width = to.vector_along(along, bits);
        while width > 1 && (source % width != 0 || extents[along] % width != 0) {
            width /= 2;
        }
        let strides = [1, extents[0]];
        let across = 1 - along;
        let vectors = tri!(Layout::tuple(&[
            Layout::raw_leaf(extents[along] / width, strides[along] * width),
            Layout::raw_leaf(extents[across], strides[across]),
        ]));
        Ok(CopyPlan { width, along, vectors, rounds: (vectors.size() + threads - 1) / threads })
    }
}

#[cfg(test)]
mod tests {
    use super::CopyPlan;
    use crate::{Layout, Swizzle, Swizzled};

    fn plain(text: &str) -> Swizzled {
        Swizzled::new(Swizzle::IDENTITY, 0, Layout::parse(text).unwrap())
    }

    #[test]
    fn a_plan_covers_every_element_once() {
        for (text, along, source) in
            [("(16,24):(24,1)", 1, 8), ("(16,24):(1,16)", 0, 4), ("(6,10):(10,1)", 1, 8), ("(8,8):(1,8)", 1, 8)]
        {
            let to = plain(text);
            let extents = [to.layout().extent(0), to.layout().extent(1)];
            let plan = CopyPlan::new(extents, along, source, &to, 16, 32).unwrap();
            let step = [1, extents[0]][along];
            let mut seen = [0; 384];
            for number in 0..plan.vectors.size() {
                let first = plan.vectors.at(number);
                for i in 0..plan.width {
                    seen[(first + i * step) as usize] += 1;
                    assert_eq!(to.at(first + i * step), to.at(first) + i, "{text}: contiguous");
                }
                assert_eq!(to.at(first) % plan.width, 0, "{text}: aligned");
            }
            assert!(seen[..to.size() as usize].iter().all(|&count| count == 1), "{text}");
        }
    }

    #[test]
    fn a_row_of_odd_stride_takes_single_elements() {
        assert_eq!(plain("(4,8):(9,1)").vector_along(1, 16), 1);
        assert_eq!(plain("(4,8):(10,1)").vector_along(1, 16), 2);
        assert_eq!(plain("(4,8):(8,1)").vector_along(1, 32), 4, "16 bytes at most");
    }
}
