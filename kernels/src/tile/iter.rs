//! Tiles along an axis, once or in a circle, counted while the kernel runs.

use super::element::Element;
use super::{Index, LayoutTensor, Modes, TileError};
use tilewright_codegen::build::{Builder, SpaceOf, Val, Var};
use tilewright_layout::typed::{Lowered, StaticLayout, TilesOf, Within};
use tilewright_layout::view::Along;

/// The `M`×`N` tiles of a view along one axis.
///
/// Bounded, [`valid`](TileIter::valid) says whether there is a tile here;
/// [circular](LayoutTensor::tiles_around), it starts over after the last one, as a ring of stages
/// does.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::tile::{Index, LayoutTensor};
/// use tilewright_layout::{typed::RowMajor, view::Along};
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let stages = LayoutTensor::<f32, RowMajor<24, 8>, _>::shared(k, "ring");
/// let ring = stages.tiles_around::<8, 8>(k, Along::Rows, Index::from(0));
/// k.for_(0, 10, |_| {
///     ring.here().at([Index::lane(k) / 8, Index::lane(k) % 8]).store(1.0);
///     ring.advance();
/// });
/// // Every second tile of the first `tiles`.
/// let used = k.param::<u32>("used");
/// stages.tiles_along::<8, 8>(k, Along::Rows, Index::from(0)).until(used).every(2).each(|tile, _| {
///     tile.at([Index::lane(k) / 8, Index::lane(k) % 8]).store(0.0);
/// });
/// # });
/// ```
pub struct TileIter<'k, E, L, S, const M: usize, const N: usize> {
    tensor: LayoutTensor<'k, E, L, S>,
    along: Along,
    across: Index<'k>,
    next: Var<'k, u32>,
    circular: bool,
    step: u32,
    end: Option<Val<'k, u32>>,
}

impl<'k, E: Element, L: StaticLayout, S: SpaceOf> LayoutTensor<'k, E, L, S> {
    /// The tiles along an axis, at place `across` of the other one, from the first to the last.
    #[track_caller]
    pub fn tiles_along<const M: usize, const N: usize>(
        self,
        k: &'k Builder,
        along: Along,
        across: Index<'k>,
    ) -> TileIter<'k, E, L, S, M, N> {
        TileIter { tensor: self, along, across, next: k.var(0u32), circular: false, step: 1, end: None }
    }

    /// Iterates over the tiles again and again.
    #[track_caller]
    pub fn tiles_around<const M: usize, const N: usize>(
        self,
        k: &'k Builder,
        along: Along,
        across: Index<'k>,
    ) -> TileIter<'k, E, L, S, M, N> {
        TileIter { circular: true, ..self.tiles_along(k, along, across) }
    }
}

impl<'k, E: Element, L: StaticLayout, S: SpaceOf, const M: usize, const N: usize> TileIter<'k, E, L, S, M, N> {
    /// Stops after a number of tiles, or at the last one.
    #[must_use]
    pub fn until(self, tiles: Val<'k, u32>) -> Self {
        TileIter { end: Some(tiles), ..self }
    }

    /// Takes every `step`-th tile, at least 1.
    #[must_use]
    pub fn every(self, step: u32) -> Self {
        TileIter { step: step.max(1), ..self }
    }

    /// The number of tiles of the view along the axis.
    pub fn round(&self) -> u32 {
        let axis = match self.along {
            Along::Rows => 0,
            Along::Columns => 1,
        };
        Lowered::<TilesOf<L, M, N>>::EXTENTS[axis] as u32
    }

    /// The number of the current tile.
    #[track_caller]
    pub fn number(&self) -> Val<'k, u32> {
        self.next.get()
    }

    /// Whether there is a current tile: always, in a circle.
    #[track_caller]
    pub fn valid(&self, k: &'k Builder) -> Val<'k, bool> {
        match (self.circular, self.end) {
            (true, _) => k.lit(true),
            (false, Some(end)) => self.next.get().lt(end),
            (false, None) => self.next.get().lt(self.round()),
        }
    }

    /// The current tile.
    #[track_caller]
    pub fn here(&self) -> LayoutTensor<'k, E, Within<L, M, N>, S> {
        self.tile(Index::below(self.next.get(), self.round()))
    }

    /// Advances to the next tile.
    #[track_caller]
    pub fn advance(&self) {
        let next = self.next.get() + self.step;
        self.next.set(match (self.circular, self.end) {
            (false, _) => next,
            (true, None) if self.round().is_multiple_of(self.step) => next.eq(self.round()).select(0u32, next),
            (true, None) => next.ge(self.round()).select(0u32, next),
            (true, Some(end)) => next.ge(end).select(0u32, next),
        });
    }

    /// Records `body` for each tile and its number, from the first, once: a loop that counts tiles.
    #[track_caller]
    pub fn each(&self, body: impl Fn(LayoutTensor<'k, E, Within<L, M, N>, S>, Index<'k>)) {
        let k = self.tensor.builder();
        let round = self.round();
        let item = |number: Val<'k, u32>| {
            let number = Index::below(number, round);
            body(self.tile(number), number);
        };
        match self.end {
            Some(end) => k.for_step(0u32, end, self.step, item),
            None => k.for_step(0u32, round, self.step, item),
        }
    }

    #[track_caller]
    fn tile(&self, number: Index<'k>) -> LayoutTensor<'k, E, Within<L, M, N>, S> {
        self.tensor.tile(match self.along {
            Along::Rows => [number, self.across],
            Along::Columns => [self.across, number],
        })
    }
}

/// The parts of `extent` indices of a mode whose extent may be known at run time, in order; what
/// the last one lacks is masked. Nothing is divided: it counts elements.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::tile::{Index, LayoutTensor, Modes};
/// # record("sample", Arch::Sm80, block(256), |k| {
/// let n = k.param::<u32>("n");
/// let x = LayoutTensor::new(k.global::<f32>("x"), Modes::contiguous_run(n));
/// let sum = k.var(0.0f32);
/// x.parts_along(0, 256).each(|part, _| sum.set(sum.get() + part.load([Index::thread(k)])));
/// # });
/// ```
pub struct PartIter<'k, E, S, const R: usize> {
    tensor: LayoutTensor<'k, E, Modes<'k, R>, S>,
    mode: usize,
    extent: u32,
    first: Index<'k>,
    step: u32,
    circular: bool,
    next: Option<Var<'k, u32>>,
}

impl<'k, E: Element, S: SpaceOf, const R: usize> LayoutTensor<'k, E, Modes<'k, R>, S> {
    /// The parts of `extent` indices along a mode.
    #[track_caller]
    pub fn parts_along(self, mode: usize, extent: u32) -> PartIter<'k, E, S, R> {
        if mode >= R {
            self.refuse(&TileError::NoSuchMode { mode, rank: R });
        }
        let mode = mode.min(R.saturating_sub(1));
        PartIter { tensor: self, mode, extent, first: 0.into(), step: 1, circular: false, next: None }
    }
}

impl<'k, E: Element, S: SpaceOf, const R: usize> PartIter<'k, E, S, R> {
    /// Makes the iterator begin at part `part`.
    #[track_caller]
    #[must_use]
    pub fn from(self, part: Index<'k>) -> Self {
        PartIter { first: part * self.extent, ..self }
    }

    /// Takes every `step`-th part, at least 1: the parts of one of `step` blocks or warps.
    #[must_use]
    pub fn every(self, step: u32) -> Self {
        PartIter { step: step.max(1), ..self }
    }

    /// Starts over: the first part follows the last.
    #[must_use]
    pub fn circular(self) -> Self {
        PartIter { circular: true, ..self }
    }

    /// Starts to walk.
    #[track_caller]
    #[must_use]
    pub fn start(self) -> Self {
        let k = self.tensor.builder();
        let next = k.var(self.first.get(k));
        PartIter { next: Some(next), ..self }
    }

    /// The index of the mode at which the current part begins: a multiple of the parts' extent.
    #[track_caller]
    pub fn index(&self) -> Index<'k> {
        self.next.map_or(self.first, |next| self.multiple(next.get()))
    }

    /// Whether there is a current part: always, in a circle.
    #[track_caller]
    pub fn valid(&self) -> Val<'k, bool> {
        let k = self.tensor.builder();
        if self.circular { k.lit(true) } else { self.index().get(k).lt(self.end().get(k)) }
    }

    /// The current part.
    #[track_caller]
    pub fn here(&self) -> LayoutTensor<'k, E, Modes<'k, R>, S> {
        self.part(self.index())
    }

    /// Advances to the next part.
    #[track_caller]
    pub fn advance(&self) {
        let k = self.tensor.builder();
        let next = self.index().get(k) + self.extent * self.step;
        let next = if self.circular { next.ge(self.end().get(k)).select(self.first.get(k), next) } else { next };
        if let Some(here) = self.next {
            here.set(next);
        }
    }

    /// Records `body` for each part, and the index of the mode where it begins, once: a loop that
    /// counts elements.
    #[track_caller]
    pub fn each(&self, body: impl Fn(LayoutTensor<'k, E, Modes<'k, R>, S>, Index<'k>)) {
        let k = self.tensor.builder();
        let start = self.first.get(k);
        let end = self.end().get(k);
        let step = self.extent * self.step;
        k.for_step(start, end, step, |at| {
            let at = self.multiple(at);
            body(self.part(at), at);
        });
    }

    fn end(&self) -> Index<'k> {
        self.tensor.extents()[self.mode]
    }

    /// A number that is known to be a multiple of the parts' extent.
    fn multiple(&self, index: Val<'k, u32>) -> Index<'k> {
        let low = (self.extent & self.extent.wrapping_neg()).wrapping_sub(1);
        Index::with_bits(index, !low)
    }

    /// The part from an index on, which is a multiple of its extent after the first.
    #[track_caller]
    fn part(&self, start: Index<'k>) -> LayoutTensor<'k, E, Modes<'k, R>, S> {
        self.tensor.tile_from(self.mode, start, self.extent)
    }
}
