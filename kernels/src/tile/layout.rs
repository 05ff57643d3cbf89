//! The interface of a tensor's layout on the device: known while recording, or in part while the
//! kernel runs.

use super::Mask;
use super::index::{Index, place};
use tilewright_codegen::build::{Builder, Ptr, Scalar, SpaceOf, Val};
use tilewright_layout::view::OffsetMap;
use tilewright_layout::{Swizzle, Swizzled};

/// A layout of a tensor on the device: a typed layout, a [`Layout`](tilewright_layout::Layout) or
/// [`Swizzled`] value, or [`Modes`](super::Modes), whose extents and strides may be known at run
/// time.
pub trait TensorLayout<'k>: Clone {
    /// The number of modes, where the type alone gives it.
    const RANK: Option<usize>;

    /// Number of modes.
    fn modes(&self) -> usize;

    /// The extent of a mode.
    fn extent_along(&self, mode: usize) -> Index<'k>;

    /// The extent that an index into a mode must stay below at every access; nothing where a mask
    /// may keep the access away.
    fn bound_along(&self, mode: usize) -> Option<u32>;

    /// The offset of the first element of a view of what begins at `base`, which is checked against
    /// what is known of its allocation.
    fn begin<S: SpaceOf, T: Scalar>(&self, base: Ptr<'k, S, T>) -> Index<'k>;

    /// The address of the element at a coordinate, relative to the start of the tensor that the
    /// view is a part of; `origin` is added before the swizzle.
    fn locate<S: SpaceOf, T: Scalar>(&self, base: Ptr<'k, S, T>, origin: Index<'k>, at: &[Index<'k>]) -> Ptr<'k, S, T>;

    /// Whether elements within the view's extents may be missing.
    fn may_end(&self) -> bool {
        false
    }

    /// The mask that all elements share, whatever their coordinates: that of the modes that were
    /// sliced away.
    fn guard(&self, k: &'k Builder) -> Mask<'k> {
        Mask::always(k)
    }

    /// The mask of an index within the extent of a mode: whether it is before the tensor's end.
    fn before_end(&self, k: &'k Builder, mode: usize, at: Index<'k>) -> Mask<'k> {
        let _ = (mode, at);
        Mask::always(k)
    }

    /// The mask of a coordinate within the view's extents: whether there is an element.
    #[track_caller]
    fn inside(&self, k: &'k Builder, at: &[Index<'k>]) -> Mask<'k> {
        at.iter().enumerate().fold(self.guard(k), |mask, (mode, &at)| mask.and(self.before_end(k, mode, at)))
    }

    /// The view begun at a coordinate, and its origin, for coordinates `ahead` that are constants
    /// to be added to it; nothing where it is not proven that they add mode by mode.
    fn begun(&self, origin: Index<'k>, at: &[Index<'k>], ahead: &[&[Index<'k>]]) -> Option<(Self, Index<'k>)>;

    /// The addresses of the elements at some constant coordinates, from one pointer.
    #[track_caller]
    fn locate_all<S: SpaceOf, T: Scalar>(
        &self,
        base: Ptr<'k, S, T>,
        origin: Index<'k>,
        at: &[&[Index<'k>]],
    ) -> Vec<Ptr<'k, S, T>> {
        at.iter().map(|at| self.locate(base, origin, at)).collect()
    }

    /// Elements of the widest vector along a mode that is contiguous and aligned wherever it starts
    /// at a multiple of its length, of elements of `bits` bits; 1 where there is none.
    fn widest(&self, origin: Index<'k>, mode: usize, bits: u32) -> u32;

    /// The mode whose neighbours are neighbours in memory, the first of several.
    fn contiguous_mode(&self) -> Option<usize>;

    /// The layout in its notation, for messages.
    fn text(&self) -> String;
}

impl<'k, L: OffsetMap> TensorLayout<'k> for L {
    const RANK: Option<usize> = <L as OffsetMap>::RANK;

    fn modes(&self) -> usize {
        self.rank()
    }

    fn extent_along(&self, mode: usize) -> Index<'k> {
        Index::from(self.extent(mode) as u32)
    }

    fn bound_along(&self, mode: usize) -> Option<u32> {
        Some(self.extent(mode) as u32)
    }

    #[track_caller]
    fn begin<S: SpaceOf, T: Scalar>(&self, base: Ptr<'k, S, T>) -> Index<'k> {
        super::allocation::check(base, &self.swizzled());
        Index::from(self.swizzled().start() as u32)
    }

    #[track_caller]
    fn locate<S: SpaceOf, T: Scalar>(&self, base: Ptr<'k, S, T>, origin: Index<'k>, at: &[Index<'k>]) -> Ptr<'k, S, T> {
        swizzled(base, self.swizzled().swizzle(), before_swizzle(&self.swizzled(), origin, at))
    }

    #[track_caller]
    fn begun(&self, origin: Index<'k>, at: &[Index<'k>], ahead: &[&[Index<'k>]]) -> Option<(Self, Index<'k>)> {
        let layout = self.swizzled().layout();
        // A digit that is a power of two takes its bits and carries none.
        let digits = |mode: usize| {
            let leaves = layout.mode(mode).ok()?.coalesce();
            leaves.extents().iter().rev().skip(1).all(|extent| extent.count_ones() == 1).then_some(())
        };
        let apart = |more: &&[Index<'k>]| at.iter().zip(*more).all(|(at, more)| at.bits() & more.constant() == 0);
        let adds = (0..layout.rank()).all(|mode| digits(mode).is_some()) && ahead.iter().all(apart);
        adds.then(|| (*self, before_swizzle(&self.swizzled(), origin, at)))
    }

    fn widest(&self, origin: Index<'k>, mode: usize, bits: u32) -> u32 {
        let map = self.swizzled();
        let width = Swizzled::new(map.swizzle(), 0, map.layout()).vector_along(mode, bits.into()) as u32;
        width.min(origin.multiple())
    }

    fn contiguous_mode(&self) -> Option<usize> {
        let layout = self.swizzled().layout();
        let strides = |mode| layout.mode(mode).map_or(0, |mode| mode.coalesce().strides()[0]);
        (0..layout.rank()).find(|&mode| strides(mode) == 1)
    }

    fn text(&self) -> String {
        let map = self.swizzled();
        if map.swizzle().bits() == 0 { map.layout().to_string() } else { map.to_string() }
    }
}

/// The offset of a coordinate before the swizzle.
#[track_caller]
pub(super) fn before_swizzle<'k>(map: &Swizzled, origin: Index<'k>, at: &[Index<'k>]) -> Index<'k> {
    let layout = map.layout();
    at.iter().enumerate().fold(origin, |sum, (mode, &at)| match layout.mode(mode) {
        Ok(mode) => sum + place(&mode, at),
        Err(_) => sum,
    })
}

/// The element at an offset before the swizzle.
///
/// The swizzle is computed once per run-time offset where constants are proven to commute with it;
/// a constant that mixes costs one exclusive-or, and only where nothing is proven the swizzle is
/// computed for the whole sum.
#[track_caller]
pub(super) fn swizzled<'k, S: SpaceOf, T: Scalar>(
    base: Ptr<'k, S, T>,
    swizzle: Swizzle,
    offset: Index<'k>,
) -> Ptr<'k, S, T> {
    let constant = i64::from(offset.constant());
    let Some(value) = offset.value() else { return base.at(swizzle.apply(constant) as u32) };
    match swizzle.split(offset.bits().into(), constant) {
        Some(split) if split.mix == 0 => base.at(apply(swizzle, value, offset.bits())).at(split.add as u32),
        Some(split) => {
            let mixed = apply(swizzle, value, offset.bits()) ^ split.mix as u32;
            base.at(mixed).at(split.add as u32)
        }
        None => base.at(apply(swizzle, value + offset.constant(), u32::MAX)),
    }
}

/// The swizzle of a run-time offset that has no bits outside `bits`.
#[track_caller]
fn apply<'k>(swizzle: Swizzle, offset: Val<'k, u32>, bits: u32) -> Val<'k, u32> {
    let source = swizzle.source_mask() as u32 & bits;
    if source == 0 {
        return offset;
    }
    let moved = if swizzle.shift() < 0 {
        (offset & source) << (-swizzle.shift()) as u32
    } else {
        (offset & source) >> swizzle.shift() as u32
    };
    offset ^ moved
}
