//! The width of copies between two layouts, and the distribution of a copy over threads.

use super::MAX_VECTOR_BITS;
use crate::{IntTuple, Layout, LayoutError, Swizzled};

impl Swizzled {
    /// The widest vector of elements of `bits` bits that runs along a mode and is contiguous and
    /// aligned wherever it starts at a multiple of its length: a power of two, at most
    /// [`MAX_VECTOR_BITS`] wide.
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

    /// Whether vectors along a mode, whose first contiguous run is `run` long, stay whole and
    /// aligned.
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

/// A vector of elements: consecutive indices along one mode, contiguous and aligned wherever it
/// starts at a multiple of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector {
    /// The number of elements: a power of two, at most [`MAX_VECTOR_BITS`] together. 1 is a single
    /// element.
    pub width: i64,
    /// The mode that it runs along.
    pub along: usize,
}

impl Vector {
    /// The widest vector of one layout, of elements of `bits` bits: what the memory side of a copy
    /// to registers takes.
    ///
    /// Between modes of equal width, the one whose neighbours lie closest together.
    ///
    /// ```
    /// use tilewright_layout::{Layout, Swizzle, Swizzled, analysis::Vector};
    /// let rows = Swizzled::new(Swizzle::IDENTITY, 0, Layout::parse("(16,(8,4)):(32,(1,8))").unwrap());
    /// assert_eq!(Vector::widest(&rows, 16), Vector { width: 8, along: 1 });
    /// ```
    pub const fn widest(layout: &Swizzled, bits: i64) -> Vector {
        widest_of(layout, layout, bits)
    }

    /// The widest vector that two layouts of one shape share, of elements of `bits` bits: one load
    /// from the first and one store to the second move it. The modes may nest differently; ranks
    /// are free, and both swizzles count.
    ///
    /// Law: with `w` the width, `i < w`, and `c` any flat coordinate whose index along the mode is
    /// a multiple of `w`, `layout(c + i along the mode) == layout(c) + i`, and `w` divides
    /// `layout(c)`, for both layouts. No wider power of two keeps this, along any mode, but where a
    /// swizzle happens to mix nothing beyond its base.
    ///
    /// Between modes of equal width, the one whose neighbours lie closest together in the first
    /// layout: give the one in global memory first. A part of a layout shares the vector wherever
    /// it begins at a multiple of it.
    ///
    /// ```
    /// use tilewright_layout::{Layout, Swizzle, Swizzled, analysis::Vector};
    /// let global = Swizzled::new(Swizzle::IDENTITY, 0, Layout::parse("(64,64):(1000,1)").unwrap());
    /// let shared = Swizzled::new(Swizzle::new(3, 3, 3).unwrap(), 0, Layout::parse("(64,64):(64,1)").unwrap());
    /// assert_eq!(Vector::common(&global, &shared, 16).unwrap(), Vector { width: 8, along: 1 });
    /// // Rows that are 1004 apart keep vectors of 4 aligned.
    /// let global = Swizzled::new(Swizzle::IDENTITY, 0, Layout::parse("(64,64):(1004,1)").unwrap());
    /// assert_eq!(Vector::common(&global, &shared, 16).unwrap().width, 4);
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`], [`LayoutError::Shape`] where ranks or extents differ.
    pub const fn common(first: &Swizzled, second: &Swizzled, bits: i64) -> Result<Vector, LayoutError> {
        tri!(same_extents("common vector", &first.layout(), &second.layout()));
        Ok(widest_of(first, second, bits))
    }

    /// The vector cut to other known facts: the widest one that divides `limit`, such as the
    /// alignment of a pointer in elements, or a run-time extent.
    ///
    /// ```
    /// use tilewright_layout::analysis::Vector;
    /// assert_eq!(Vector { width: 8, along: 1 }.dividing(12), Vector { width: 4, along: 1 });
    /// ```
    pub const fn dividing(self, limit: i64) -> Vector {
        let mut width = self.width;
        while width > 1 && limit % width != 0 {
            width /= 2;
        }
        Vector { width, ..self }
    }
}

const fn widest_of(first: &Swizzled, second: &Swizzled, bits: i64) -> Vector {
    let mut best = Vector { width: 0, along: 0 };
    let mut nearest = i64::MAX;
    let mut mode = 0;
    while mode < first.layout().rank() {
        let a = first.vector_along(mode, bits);
        let b = second.vector_along(mode, bits);
        let width = if a < b { a } else { b };
        let step = neighbours(&first.layout(), mode);
        if width > best.width || (width == best.width && step < nearest) {
            best = Vector { width, along: mode };
            nearest = step;
        }
        mode += 1;
    }
    if best.width == 0 { Vector { width: 1, along: 0 } } else { best }
}

/// The distance between the first two elements of a mode; `i64::MAX` if there are not two, or if
/// they coincide.
const fn neighbours(layout: &Layout, mode: usize) -> i64 {
    let Ok(mode) = layout.mode(mode) else { return i64::MAX };
    match mode.coalesce().strides()[0].abs() {
        0 => i64::MAX,
        step => step,
    }
}

/// Refuses two layouts that differ in rank or in the extent of a mode.
const fn same_extents(operation: &'static str, first: &Layout, second: &Layout) -> Result<(), LayoutError> {
    if first.rank() != second.rank() {
        return Err(LayoutError::Rank { operation, given: second.rank(), expected: first.rank() });
    }
    let mut mode = 0;
    while mode < first.rank() {
        let left = first.extent(mode);
        let right = second.extent(mode);
        if left != right {
            return Err(LayoutError::Shape { operation, mode, left, right });
        }
        mode += 1;
    }
    Ok(())
}

/// A copy by many threads: vectors along one mode, dealt to the threads in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    /// Elements of a vector.
    pub width: i64,
    /// The mode that vectors run along.
    pub along: usize,
    /// Vector number to flat coordinate of its first element. Its first mode counts along `along`,
    /// the others follow by ascending stride of the first layout, so that neighbouring threads
    /// touch neighbouring memory.
    pub vectors: Layout,
    /// The number of vectors that each thread copies, rounded up.
    pub rounds: i64,
}

impl CopyPlan {
    /// The plan of a copy between two layouts of one shape, as wide as both allow: see
    /// [`Vector::common`]. Give the layout of global memory first, whichever way the copy goes.
    ///
    /// ```
    /// use tilewright_layout::{Layout, Swizzle, Swizzled, analysis::CopyPlan};
    /// let plain = |text| Swizzled::new(Swizzle::IDENTITY, 0, Layout::parse(text).unwrap());
    /// // Four heads of 16 positions of 64 elements, from (position, head, element) to (head, position, element).
    /// let plan = CopyPlan::between(&plain("(4,16,64):(64,256,1)"), &plain("(4,16,64):(1024,64,1)"), 16, 128).unwrap();
    /// assert_eq!((plan.width, plan.along, plan.rounds), (8, 2, 4));
    /// assert_eq!(plan.vectors.to_string(), "(8,4,16):(512,1,4)");
    /// ```
    ///
    /// # Errors
    /// As [`Vector::common`]; [`LayoutError::Argument`] where there are no threads.
    pub const fn between(
        first: &Swizzled,
        second: &Swizzled,
        bits: i64,
        threads: i64,
    ) -> Result<CopyPlan, LayoutError> {
        CopyPlan::of(&first.layout(), tri!(Vector::common(first, second, bits)), threads)
    }

    /// The plan of a copy of the elements of `first` by a vector that is known, such as one cut to
    /// the alignment of a pointer.
    ///
    /// # Errors
    /// [`LayoutError::Argument`] where there are no threads; [`LayoutError::NoSuchMode`];
    /// [`LayoutError::Indivisible`] where the vectors do not fill their mode;
    /// [`LayoutError::Capacity`].
    pub const fn of(first: &Layout, vector: Vector, threads: i64) -> Result<CopyPlan, LayoutError> {
        let (operation, Vector { width, along }) = ("copy plan", vector);
        if threads < 1 || width < 1 {
            let value = if threads < 1 { threads } else { width };
            let argument = "the number of threads, or of elements of a vector,";
            let bound = "at least 1";
            return Err(LayoutError::Argument { operation, argument, value, bound });
        }
        let rank = first.rank();
        if along >= rank {
            return Err(LayoutError::NoSuchMode { operation, index: along as i64, rank });
        }
        if first.extent(along) % width != 0 {
            return Err(LayoutError::Indivisible { operation, value: first.extent(along), divisor: width });
        }
        let mut vectors = Layout::NOTHING;
        tri!(vectors.profile.push_tuple(rank));
        tri!(vectors.push_leaf(first.extent(along) / width, before(first, along) * width));
        let mut done = 1u64 << along;
        let mut count = 1;
        while count < rank {
            let mode = nearest_of(first, done);
            tri!(vectors.push_leaf(first.extent(mode), before(first, mode)));
            done |= 1 << mode;
            count += 1;
        }
        let size = vectors.size();
        Ok(CopyPlan { width, along, vectors, rounds: size / threads + (size % threads != 0) as i64 })
    }

    /// The plan for a tile of `extents` whose source runs along mode `along` with vectors of at
    /// most `source` elements, and whose destination is `to`: for a source whose strides are known
    /// at run time.
    ///
    /// ```
    /// use tilewright_layout::{analysis::CopyPlan, typed::{KMajor, OperandTile, StaticLayout}, Swizzled};
    /// type Tile = OperandTile<KMajor, 16, 128, 64>;
    /// let to = Swizzled::new(Tile::SWIZZLE, 0, Tile::LAYOUT);
    /// let plan = CopyPlan::new([128, 64], 1, 8, &to, 16, 256).unwrap();
    /// assert_eq!((plan.width, plan.vectors.to_string().as_str(), plan.rounds), (8, "(8,128):(1024,1)", 4));
    /// ```
    ///
    /// # Errors
    /// As [`CopyPlan::of`]; [`LayoutError::Rank`] and [`LayoutError::Shape`] where the destination
    /// has other extents.
    pub const fn new<const R: usize>(
        extents: [i64; R],
        along: usize,
        source: i64,
        to: &Swizzled,
        bits: i64,
        threads: i64,
    ) -> Result<CopyPlan, LayoutError> {
        let shape = tri!(Layout::col_major(&tri!(IntTuple::flat(&extents))));
        tri!(same_extents("copy plan", &shape, &to.layout()));
        let vector = Vector { width: to.vector_along(along, bits), along };
        CopyPlan::of(&shape, vector.dividing(source), threads)
    }
}

/// The number of coordinates of the modes before one: the step of the flat coordinate along it.
const fn before(layout: &Layout, mode: usize) -> i64 {
    let mut product = 1;
    let mut i = 0;
    while i < mode {
        product *= layout.extent(i);
        i += 1;
    }
    product
}

/// The mode that is not done whose neighbours lie closest together; the first of these.
const fn nearest_of(layout: &Layout, done: u64) -> usize {
    let mut nearest = i64::MAX;
    let mut found = layout.rank();
    let mut mode = 0;
    while mode < layout.rank() {
        if done >> mode & 1 == 0 {
            let step = neighbours(layout, mode);
            if found == layout.rank() || step < nearest {
                (nearest, found) = (step, mode);
            }
        }
        mode += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{CopyPlan, Vector};
    use crate::{Layout, Swizzle, Swizzled};

    fn plain(text: &str) -> Swizzled {
        Swizzled::new(Swizzle::IDENTITY, 0, Layout::parse(text).unwrap())
    }

    #[test]
    fn a_row_of_odd_stride_takes_single_elements() {
        assert_eq!(plain("(4,8):(9,1)").vector_along(1, 16), 1);
        assert_eq!(plain("(4,8):(10,1)").vector_along(1, 16), 2);
        assert_eq!(plain("(4,8):(8,1)").vector_along(1, 32), 4, "16 bytes at most");
    }

    #[test]
    fn single_elements_run_along_the_mode_that_is_contiguous_in_the_first_layout() {
        let rows = plain("(4,8):(9,1)");
        let columns = plain("(4,8):(1,5)");
        assert_eq!(Vector::common(&rows, &columns, 16).unwrap(), Vector { width: 1, along: 1 });
        assert_eq!(Vector::common(&columns, &rows, 16).unwrap(), Vector { width: 1, along: 0 });
    }

    #[test]
    fn layouts_of_other_shapes_share_no_vector() {
        let refused = |a: &str, b: &str| Vector::common(&plain(a), &plain(b), 16).unwrap_err().message();
        assert_eq!(
            refused("(4,8):(8,1)", "(4,6):(6,1)").as_str(),
            "common vector: mode 1 has 8 elements on one side and 6 on the other; give both the same shape"
        );
        assert_eq!(
            refused("(4,8):(8,1)", "32:1").as_str(),
            "common vector: 1 modes given where 2 fit; give one per mode of the layout"
        );
    }

    #[test]
    fn a_plan_without_threads_is_refused() {
        let rows = plain("(4,8):(8,1)");
        assert!(CopyPlan::between(&rows, &rows, 16, 0).is_err());
        assert!(CopyPlan::of(&rows.layout(), Vector { width: 3, along: 1 }, 32).is_err());
        assert!(CopyPlan::of(&rows.layout(), Vector { width: 1, along: 2 }, 32).is_err());
        assert!(CopyPlan::new([4, 8], 2, 8, &rows, 16, 32).is_err());
    }
}
