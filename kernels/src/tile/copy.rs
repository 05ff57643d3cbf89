//! Copies between tensors: the layouts of both sides determine the thread of each element and the
//! vector width.
//!
//! | | one thread its own parts | a [`ThreadGroup`] a tile |
//! |---|---|---|
//! | loads and stores, memory or registers on either side | [`copy`] | [`ThreadGroup::copy`] |
//! | `cp.async`, global to shared memory | [`copy_async`] | [`ThreadGroup::copy_async`] |
//!
//! A vector is as long as is whole and aligned on both sides, at most 16 bytes. Elements outside
//! the source's mask are zero at the target; elements outside the target's mask are not written.
//! Tensor maps have [`fetch`](super::LayoutTensor::fetch) and [`send`](super::LayoutTensor::send).

use super::element::{most_lanes, zero};
use super::side::{AsyncFrom, AsyncTo, CopyFrom, CopyTo};
use super::{Index, TileError};
use core::panic::Location;
use tilewright_codegen::build::{Builder, Scalar, Val};
use tilewright_codegen::ir::attr::{CpBytes, CpCache};

/// The threads that copy together: the number of one, and how many there are.
#[derive(Clone, Copy)]
pub struct ThreadGroup<'k> {
    /// The index of this thread, below `count`.
    pub thread: Index<'k>,
    /// The number of threads.
    pub count: u32,
}

/// Copies every element of a thread's own part to its own part of another tensor of the same
/// extents.
///
/// Either side may be in global or shared memory, or in registers. The threads' parts come from
/// [`distribute`](super::LayoutTensor::distribute):
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::tile::{Index, LayoutTensor, copy};
/// use tilewright_layout::typed::RowMajor;
/// # record("sample", Arch::Sm80, block(128), |k| {
/// let x = LayoutTensor::new(k.global::<f32>("x"), RowMajor::<32, 64>::default());
/// let tile = LayoutTensor::<f32, RowMajor<32, 64>, _>::shared(k, "tile");
/// // Four vectors of four for each of 8×16 threads.
/// let thread = Index::thread(k);
/// copy(
///     x.vectorize::<1, 4>().distribute::<RowMajor<8, 16>>(thread),
///     tile.vectorize::<1, 4>().distribute::<RowMajor<8, 16>>(thread),
/// );
/// # });
/// ```
#[track_caller]
pub fn copy<'k, F: CopyFrom<'k>, T: CopyTo<'k, Scalar = F::Scalar>>(from: F, to: T) {
    let Some(plan) = TileCopyPlan::new(&from, &to) else { return };
    from.recorder().on_behalf(Location::caller(), || {
        plan.places(plan.vectors(), &Index::from).chunks(TOGETHER).for_each(|places| plan.some(&from, &to, places));
    });
}

/// Copies as [`copy`] does, asynchronously where vectors have 4 bytes or more: the caller commits
/// the group and waits.
#[track_caller]
pub fn copy_async<'k, F: AsyncFrom<'k>, T: AsyncTo<'k, Scalar = F::Scalar>>(from: F, to: T) {
    let Some(plan) = TileCopyPlan::new(&from, &to) else { return };
    from.recorder().on_behalf(Location::caller(), || {
        (0..plan.vectors()).for_each(|number| plan.start(&from, &to, &plan.at(number.into())));
    });
}

impl<'k> ThreadGroup<'k> {
    /// All threads of the block.
    pub fn block(k: &'k Builder) -> ThreadGroup<'k> {
        ThreadGroup { thread: Index::thread(k), count: k.threads() }
    }

    /// The threads of each warp by themselves.
    pub fn warp(k: &'k Builder) -> ThreadGroup<'k> {
        ThreadGroup { thread: Index::lane(k), count: 32 }
    }

    /// Copies a tile: its vectors are dealt to the threads, neighbours in memory to neighbours.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::tile::{LayoutTensor, Modes, ThreadGroup};
    /// use tilewright_layout::typed::RowMajor;
    /// # record("sample", Arch::Sm80, block(128), |k| {
    /// let [rows, stride] = ["rows", "stride"].map(|name| k.param::<u32>(name));
    /// let x = Modes::row_major([rows.into(), 64.into()], stride).vectors(4);
    /// let x = LayoutTensor::new(k.global::<f32>("x"), x);
    /// let tile = LayoutTensor::<f32, RowMajor<32, 64>, _>::shared(k, "tile");
    /// ThreadGroup::block(k).copy(x.clipped_tile([32, 64], [k.block_id().into(), 0.into()]), tile);
    /// # });
    /// ```
    #[track_caller]
    pub fn copy<F: CopyFrom<'k>, T: CopyTo<'k, Scalar = F::Scalar>>(self, from: F, to: T) {
        let Some(plan) = TileCopyPlan::new(&from, &to) else { return };
        self.deal(from.recorder(), &plan, &|places| plan.some(&from, &to, places));
    }

    /// Copies as [`copy`](ThreadGroup::copy) does, asynchronously where vectors have 4 bytes or
    /// more: the caller commits the group and waits.
    #[track_caller]
    pub fn copy_async<F: AsyncFrom<'k>, T: AsyncTo<'k, Scalar = F::Scalar>>(self, from: F, to: T) {
        let Some(plan) = TileCopyPlan::new(&from, &to) else { return };
        self.deal(from.recorder(), &plan, &|places| places.iter().for_each(|at| plan.start(&from, &to, at)));
    }

    /// Deals the vectors of a copy to the threads, a round of each after the other.
    #[track_caller]
    fn deal(self, k: &'k Builder, plan: &TileCopyPlan, some: &dyn Fn(&[Vec<Index<'k>>])) {
        let total = plan.vectors();
        let whole = plan.vectors() / self.count;
        let number = |round: u32| self.thread + round * self.count;
        k.on_behalf(Location::caller(), || {
            plan.places(whole, &number).chunks(TOGETHER).for_each(some);
            if total > whole * self.count {
                let place = plan.at(number(whole));
                k.moving().when(number(whole).get(k).lt(total), || some(&[place]));
            }
        });
    }
}

/// Vectors that a thread loads before it stores them: enough to cover a load's latency by other
/// loads, few enough registers.
const TOGETHER: usize = 4;

/// The plan of a copy: vectors of `width` elements along one mode.
pub(super) struct TileCopyPlan {
    extents: Vec<u32>,
    /// The mode that vectors run along.
    pub(super) along: usize,
    /// Elements of a vector.
    pub(super) width: u32,
}

impl TileCopyPlan {
    /// The plan of a copy, whose widest vectors are those of both sides; where both sides have
    /// several, neighbours follow the one in global memory. Tensors that cannot be copied are
    /// refused.
    #[track_caller]
    fn new<'k, F: CopyFrom<'k>, T: CopyTo<'k, Scalar = F::Scalar>>(from: &F, to: &T) -> Option<TileCopyPlan> {
        let extents = extents(from.recorder(), &from.shape(), &to.shape())?;
        if F::LANES != T::LANES {
            return refused(from.recorder(), &TileError::Lanes { from: F::LANES, to: T::LANES });
        }
        let neighbours = if to.is_global() { to.contiguous() } else { from.contiguous().or(to.contiguous()) };
        Some(TileCopyPlan::widest(extents, neighbours, &|mode| from.widest(mode).min(to.widest(mode))))
    }

    /// The plan of a tensor's copy to or from registers, where nothing else bounds its vectors; the
    /// shapes are those of the copy's two sides.
    #[track_caller]
    pub(super) fn of<'k, F: CopyFrom<'k>>(memory: &F, [from, to]: [Vec<Option<u32>>; 2]) -> Option<TileCopyPlan> {
        let extents = extents(memory.recorder(), &from, &to)?;
        let most = most_lanes(F::Scalar::TY.bits());
        Some(TileCopyPlan::widest(extents, memory.contiguous(), &|mode| memory.widest(mode).min(most)))
    }

    /// The widest vectors, between modes of equal width along `neighbours`.
    fn widest(extents: Vec<u32>, neighbours: Option<usize>, most: &dyn Fn(usize) -> u32) -> TileCopyPlan {
        let width = |mode: usize| 1 << most(mode).min(Index::from(extents[mode]).multiple()).max(1).ilog2();
        let mut along = neighbours.unwrap_or(extents.len().saturating_sub(1));
        for mode in 0..extents.len() {
            if width(mode) > width(along) {
                along = mode;
            }
        }
        let width = if extents.is_empty() { 1 } else { width(along) };
        TileCopyPlan { extents, along, width }
    }

    /// The lanes of the vector at a coordinate, zeros where the mask says that there is none.
    #[track_caller]
    pub(super) fn read<'k, F: CopyFrom<'k>>(&self, from: &F, at: &[Index<'k>]) -> Vec<Val<'k, F::Scalar>> {
        from.mask_at(at).or_zero(self.width * F::LANES, &|| from.read(at, self.along, self.width))
    }

    /// The lanes of the vector at a coordinate, `fill` where the mask says that there is none.
    #[track_caller]
    pub(super) fn read_or<'k, F: CopyFrom<'k>>(
        &self,
        from: &F,
        at: &[Index<'k>],
        fill: Val<'k, F::Scalar>,
    ) -> Vec<Val<'k, F::Scalar>> {
        from.mask_at(at).or(fill, self.width * F::LANES, &|| from.read(at, self.along, self.width))
    }

    /// The number of vectors.
    pub(super) fn vectors(&self) -> u32 {
        self.extents.iter().product::<u32>() / self.width
    }

    /// The coordinates of `count` vectors, the `i`-th of which has the number `number(i)`.
    #[track_caller]
    fn places<'k>(&self, count: u32, number: &dyn Fn(u32) -> Index<'k>) -> Vec<Vec<Index<'k>>> {
        (0..count).map(|i| self.at(number(i))).collect()
    }

    /// The coordinate of a vector's first element; those along the vectors' mode come first, then
    /// the other modes in order.
    #[track_caller]
    pub(super) fn at<'k>(&self, number: Index<'k>) -> Vec<Index<'k>> {
        let mut at = vec![Index::from(0); self.extents.len()];
        let order: Vec<usize> = (0..at.len())
            .filter(|&mode| mode == self.along)
            .chain((0..at.len()).filter(|&mode| mode != self.along))
            .collect();
        let mut rest = number;
        for (i, &mode) in order.iter().enumerate() {
            let step = if mode == self.along { self.width } else { 1 };
            let extent = self.extents[mode] / step;
            let digit = if i + 1 < order.len() { rest % extent } else { rest };
            at[mode] = digit * step;
            if i + 1 < order.len() {
                rest = rest / extent;
            }
        }
        at
    }

    /// Bits of a vector.
    fn bits<F: Scalar>(&self, lanes: u32) -> u32 {
        self.width * lanes * F::TY.bits()
    }

    /// 32-bit words of a vector, where both sides are in memory and it has whole ones.
    fn words<'k, F: CopyFrom<'k>, T: CopyTo<'k, Scalar = F::Scalar>>(&self, from: &F, to: &T) -> Option<u32> {
        let bits = self.bits::<F::Scalar>(F::LANES);
        let words = bits / 32;
        let whole = bits.is_multiple_of(32) && words.is_power_of_two() && words <= 4;
        (whole && from.is_memory() && to.is_memory()).then_some(words)
    }

    /// Moves the vectors at some coordinates: all of them are loaded, then all are stored, so that
    /// the loads are in flight together.
    #[track_caller]
    fn some<'k, F: CopyFrom<'k>, T: CopyTo<'k, Scalar = F::Scalar>>(
        &self,
        from: &F,
        to: &T,
        places: &[Vec<Index<'k>>],
    ) {
        if let Some(words) = self.words(from, to) {
            let load = |at: &[Index<'k>]| from.mask_at(at).or_zero(words, &|| from.read_words(at, words));
            together(places, &load, &|at, words| to.mask_at(at).when(|| to.write_words(at, words)));
        } else {
            let store = |at: &[Index<'k>], lanes: &[_]| to.mask_at(at).when(|| to.write(at, self.along, lanes));
            together(places, &|at| self.read(from, at), &store);
        }
    }

    /// Moves the vector at a coordinate by `cp.async` where it has 4, 8 or 16 bytes.
    #[track_caller]
    fn start<'k, F: AsyncFrom<'k>, T: AsyncTo<'k, Scalar = F::Scalar>>(&self, from: &F, to: &T, at: &[Index<'k>]) {
        let bits = self.bits::<F::Scalar>(F::LANES);
        let bytes = match bits {
            32 => CpBytes::B4,
            64 => CpBytes::B8,
            128 => CpBytes::B16,
            _ => return self.by_elements(from, to, at),
        };
        let filled = from.mask_at(at).condition().map(|inside| inside.select(bits / 8, 0u32));
        let cache = if bytes == CpBytes::B16 { CpCache::Cg } else { CpCache::Ca };
        to.target(at).cp_async_as(from.source(at), bytes, cache, filled);
    }

    /// Moves a vector that is too narrow for `cp.async`, element by element.
    #[track_caller]
    fn by_elements<'k, F: AsyncFrom<'k>, T: AsyncTo<'k, Scalar = F::Scalar>>(
        &self,
        from: &F,
        to: &T,
        at: &[Index<'k>],
    ) {
        let k = from.recorder();
        for i in 0..self.width {
            let mut at = at.to_vec();
            if let Some(along) = at.get_mut(self.along) {
                *along = *along + i;
            }
            let store = |value: Val<'k, F::Scalar>| to.target(&at).store(value);
            match from.mask_at(&at).condition() {
                None => store(from.source(&at).load()),
                Some(inside) => k.if_else(inside, || store(from.source(&at).load()), || store(zero(k))),
            }
        }
    }
}

/// Loads at all coordinates, then stores at all.
fn together<'k, V>(
    places: &[Vec<Index<'k>>],
    load: &dyn Fn(&[Index<'k>]) -> Vec<V>,
    store: &dyn Fn(&[Index<'k>], &[V]),
) {
    let loaded: Vec<_> = places.iter().map(|at| load(at)).collect();
    places.iter().zip(&loaded).for_each(|(at, values)| store(at, values));
}

/// The extents of both sides, where they are known and the same.
#[track_caller]
fn extents(k: &Builder, from: &[Option<u32>], to: &[Option<u32>]) -> Option<Vec<u32>> {
    for (mode, extent) in from.iter().chain(to).enumerate() {
        if extent.is_none() {
            let mode = mode % from.len().max(1);
            return refused(k, &TileError::Unknown { mode, what: "a copy" });
        }
    }
    if from != to {
        return refused(k, &TileError::Extents { from: text(from), to: text(to) });
    }
    Some(from.iter().copied().flatten().collect())
}

/// Refuses, with a reason; returns `None`.
#[track_caller]
fn refused<T>(k: &Builder, error: &TileError) -> Option<T> {
    k.refuse(error);
    None
}

/// Extents as a message shows them.
fn text(shape: &[Option<u32>]) -> String {
    let extents: Vec<String> = shape.iter().flatten().map(u32::to_string).collect();
    extents.join("×")
}
