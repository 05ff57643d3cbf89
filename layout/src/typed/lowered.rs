//! Indexing at run time: a typed layout as a few multiplications.
//!
//! The tree of a [`Layout`] belongs to the compiler. The run-time form has, per top-level mode, a
//! short run of (extent, stride) pairs, all of them constants: powers of two fold to shifts and
//! masks.

use core::marker::PhantomData;

use super::{StaticLayout, banks::reach, notation};
use crate::profile::TreePosition;
use crate::{Layout, Message, flat::Flat};

/// The most modes that [`Lowered`] indexes.
pub const MAX_RANK: usize = 8;

/// The most (extent, stride) pairs per mode, after coalescing.
pub const MAX_RUNS: usize = 6;

/// The run-time side of a typed layout.
///
/// ```
/// use tilewright_layout::typed::{BlockedProduct, Lowered, RowMajor};
/// type Blocks = BlockedProduct<RowMajor<2, 5>, RowMajor<3, 4>>;
/// assert_eq!(Lowered::<Blocks>::at([3, 7]), 5 + 40 + 2 + 10);
/// assert_eq!(Lowered::<Blocks>::EXTENTS, [6, 20, 1, 1, 1, 1, 1, 1]);
/// ```
pub struct Lowered<L>(PhantomData<fn() -> L>);

/// The runs of a mode: `len` pairs, the first the fastest.
#[derive(Clone, Copy)]
struct ModeRuns {
    extent: [usize; MAX_RUNS],
    stride: [usize; MAX_RUNS],
    len: usize,
}

impl<L: StaticLayout> Lowered<L> {
    /// Number of top-level modes.
    pub const RANK: usize = L::LAYOUT.rank();
    /// Number of elements.
    pub const SIZE: usize = L::LAYOUT.size() as usize;
    /// Number of elements that storage needs so that every offset is inside, the swizzle included.
    pub const REACH: usize = reach(L::LAYOUT.cosize(), &L::SWIZZLE) as usize;
    /// The extent of each mode; 1 beyond the rank.
    pub const EXTENTS: [usize; MAX_RANK] = {
        let mut extents = [1; MAX_RANK];
        let mut mode = 0;
        while mode < MAX_RANK {
            extents[mode] = L::LAYOUT.extent(mode) as usize;
            mode += 1;
        }
        extents
    };

    const RUNS: [ModeRuns; MAX_RANK] = lower(&L::LAYOUT, notation::<L>());
    const SOURCE: usize = L::SWIZZLE.source_mask() as usize;
    const SHIFT: i64 = L::SWIZZLE.shift();

    /// The offset of a coordinate, one integer per mode. A coordinate beyond its mode's extent
    /// walks on along its last run.
    ///
    /// A coordinate of another rank does not compile.
    #[inline(always)]
    pub fn at<const R: usize>(coordinate: [usize; R]) -> usize {
        const { rank_is::<L>(R) };
        Self::swizzle(Self::sum(&coordinate))
    }

    /// The offset of a coordinate before the swizzle: what tile origins add up in.
    #[inline(always)]
    pub fn before_swizzle<const R: usize>(coordinate: [usize; R]) -> usize {
        const { rank_is::<L>(R) };
        Self::sum(&coordinate)
    }

    /// The offset as [`Lowered::before_swizzle`] computes it, without a check of the rank: missing
    /// modes count as 0.
    #[inline(always)]
    pub(crate) fn sum(coordinate: &[usize]) -> usize {
        let mut offset = 0;
        let mut mode = 0;
        while mode < MAX_RANK && mode < coordinate.len() {
            offset += Self::along(mode, coordinate[mode]);
            mode += 1;
        }
        offset
    }

    /// The offset of flat coordinate `index`, first mode fastest, before the swizzle.
    #[inline(always)]
    pub fn flat(index: usize) -> usize {
        let mut rest = index;
        let mut offset = 0;
        let mut mode = 0;
        while mode + 1 < Self::RANK {
            offset += Self::along(mode, rest % Self::EXTENTS[mode]);
            rest /= Self::EXTENTS[mode];
            mode += 1;
        }
        if mode < Self::RANK { offset + Self::along(mode, rest) } else { offset }
    }

    /// The offset after the swizzle.
    #[inline(always)]
    pub fn swizzle(offset: usize) -> usize {
        let source = offset & Self::SOURCE;
        offset ^ if Self::SHIFT < 0 { source << -Self::SHIFT } else { source >> Self::SHIFT }
    }

    /// The contribution of a coordinate along one mode to the offset before the swizzle.
    #[inline(always)]
    pub(crate) fn along(mode: usize, coordinate: usize) -> usize {
        let runs = &Self::RUNS[mode];
        let mut rest = coordinate;
        let mut offset = 0;
        let mut run = 0;
        // A bound known here, so that the loop unrolls; the pairs beyond `len` fold away.
        while run < MAX_RUNS {
            if run + 1 < runs.len {
                offset += rest % runs.extent[run] * runs.stride[run];
                rest /= runs.extent[run];
            } else if run + 1 == runs.len {
                offset += rest * runs.stride[run];
            }
            run += 1;
        }
        offset
    }
}

/// A compile error where the layout has another number of modes.
const fn rank_is<L: StaticLayout>(given: usize) {
    if given != L::LAYOUT.rank() {
        let message = Message::new().text("index of ").text(notation::<L>().as_str()).text(": ").number(given as i64);
        let message = message.text(" integers given, the layout has ").number(L::LAYOUT.rank() as i64);
        panic!("{}", message.text(" modes; give one per mode").as_str())
    }
}

const fn lower(layout: &Layout, name: Message) -> [ModeRuns; MAX_RANK] {
    let mut modes = [ModeRuns { extent: [1; MAX_RUNS], stride: [0; MAX_RUNS], len: 0 }; MAX_RANK];
    if layout.rank() > MAX_RANK {
        refuse(&name, "the layout has more than 8 modes; group some of them")
    }
    let mut mode = 0;
    while mode < layout.rank() {
        let runs = Flat::of(&layout.subtree(layout.profile.child(TreePosition::ROOT, mode))).coalesce();
        if runs.len > MAX_RUNS {
            refuse(&name, "a mode has more than 6 integers that do not merge; split it")
        }
        let mut i = 0;
        while i < runs.len {
            if runs.stride[i] < 0 {
                refuse(&name, "a stride is negative; offsets at run time count from 0")
            }
            modes[mode].extent[i] = runs.shape[i] as usize;
            modes[mode].stride[i] = runs.stride[i] as usize;
            i += 1;
        }
        modes[mode].len = runs.len;
        mode += 1;
    }
    modes
}

const fn refuse(name: &Message, reason: &str) -> ! {
    panic!("{}", Message::new().text("lowering of ").text(name.as_str()).text(": ").text(reason).as_str())
}
