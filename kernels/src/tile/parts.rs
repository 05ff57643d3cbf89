//! Parts of a tensor whose layout is a value, or has modes known at run time: the host's views by
//! the same names.

use super::element::{Element, Lanes, most_lanes};
use super::index::{Index, place};
use super::layout::TensorLayout;
use super::typed::vectors_of;
use super::{LayoutTensor, Modes, TileError};
use tilewright_codegen::build::{Scalar, SpaceOf};
use tilewright_layout::typed::StaticLayout;
use tilewright_layout::view::{OffsetMap, Split};
use tilewright_layout::{Layout, LayoutError, Swizzled, Tiler};

/// The part of a tensor whose layout is known while recording.
type TensorPart<'k, E, S> = LayoutTensor<'k, E, Swizzled, S>;

impl<'k, E: Element, L: OffsetMap, S: SpaceOf> LayoutTensor<'k, E, L, S> {
    /// A layout and an origin in place of these; where there are none, the refusal is recorded and
    /// the tensor stays.
    #[track_caller]
    fn value_part(self, part: Result<(Layout, Index<'k>), TileError>) -> TensorPart<'k, E, S> {
        let map = self.layout();
        let (layout, origin) = match part {
            Ok(part) => part,
            Err(error) => {
                self.refuse(&error);
                (map.layout(), Index::ZERO)
            }
        };
        self.part(Swizzled::new(map.swizzle(), 0, layout), origin)
    }

    /// The tile of a tiler at a place among the tiles, one index per mode of the rest. Tiles that
    /// do not fill the view are refused.
    #[track_caller]
    pub fn tile_by<const R: usize>(self, tiler: &Tiler, tile: [Index<'k>; R]) -> TensorPart<'k, E, S> {
        let layout = self.layout().layout();
        let starts = layout.zipped_divide(tiler).and_then(|divided| divided.mode(1));
        // No closure: the bound names the author's line.
        let view = match starts.ok().filter(|starts| starts.rank() == R) {
            None => self,
            Some(tiles) => {
                let bounds = tile.iter().enumerate().map(|(mode, &at)| (mode, at, tiles.extent(mode) as u32));
                self.bounded_by(bounds, &|| format!("the tiles {tiles} of {layout}"))
            }
        };
        view.value_part(tile_by(&layout, tiler, &tile))
    }

    /// The elements of thread `thread` of a thread layout; see
    /// [`distribute`](LayoutTensor::distribute). Threads that do not share the view out evenly are
    /// refused.
    #[track_caller]
    pub fn distribute_by(self, threads: &Layout, thread: Index<'k>) -> TensorPart<'k, E, S> {
        let layout = self.layout().layout();
        let bounds = [(0, thread, threads.size() as u32)].into_iter();
        let view = self.bounded_by(bounds, &|| format!("the threads {threads} of {layout}"));
        view.value_part(distribute_by(&layout, threads, thread))
    }

    /// The elements under the modes without an index, the others fixed.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::tile::{Index, LayoutTensor};
    /// use tilewright_layout::Layout;
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let tensor = LayoutTensor::new(k.global::<f32>("x"), Layout::parse("(4,8,32):(256,32,1)").unwrap());
    /// let matrix = tensor.slice([None, Some(3.into()), None]);
    /// assert_eq!(matrix.layout().layout().to_string(), "(4,32):(256,1)");
    /// matrix.load([2.into(), Index::lane(k)]);
    /// # });
    /// ```
    #[track_caller]
    pub fn slice<const R: usize>(self, at: [Option<Index<'k>>; R]) -> TensorPart<'k, E, S> {
        let layout = self.layout().layout();
        let first = at.map(|at| at.unwrap_or(0.into()));
        let origin = self.place(first);
        let open: Vec<usize> = (0..R.min(layout.rank())).filter(|&mode| at[mode].is_none()).collect();
        let part = if open.is_empty() { Ok(Layout::ONE) } else { layout.select(&open) };
        let begun = self.within(&first).value_part(part.map(|part| (part, Index::ZERO)).map_err(TileError::from));
        begun.at_offset(origin)
    }

    /// The modes in another order, each named once.
    #[track_caller]
    pub fn permute<const R: usize>(self, modes: [usize; R]) -> TensorPart<'k, E, S> {
        let layout = self.layout().layout();
        self.value_part(permutation(&modes, layout.rank()).and_then(|()| Ok((layout.select(&modes)?, Index::ZERO))))
    }

    /// The view after another layout: its element at `c` is the element of this view at flat
    /// coordinate `order(c)`.
    #[track_caller]
    pub fn compose(self, order: &Layout) -> TensorPart<'k, E, S> {
        let layout = self.layout().layout();
        let composed = || {
            if order.cosize() > layout.size() {
                let mode = 0;
                let index = order.cosize() as u32 - 1;
                let extent = layout.size() as u32;
                return Err(TileError::Beyond { mode, index, extent });
            }
            let composed = layout.composition(order)?;
            // One mode for one index, also where its strides differ.
            let nested = order.is_leaf() && !composed.is_leaf();
            Ok((if nested { Layout::tuple(&[composed])? } else { composed }, Index::ZERO))
        };
        self.value_part(composed())
    }

    /// Divides a mode into equal parts and takes one; `split.multiple` is what their length is a
    /// multiple of. Parts of different lengths are refused: of [`Modes`] they are masked.
    #[track_caller]
    pub fn split(self, split: Split, part: Index<'k>) -> TensorPart<'k, E, S> {
        let layout = self.layout().layout();
        self.value_part(split_evenly(&layout, split, part))
    }
}

impl<'k, T: Scalar, L: OffsetMap, S: SpaceOf> LayoutTensor<'k, T, L, S> {
    /// Vectorizes as [`vectorize`](LayoutTensor::vectorize) does, for a layout that is a value:
    /// what is not whole is refused while recording.
    #[track_caller]
    pub fn vectorize_by<const N: usize>(self, along: usize) -> LayoutTensor<'k, Lanes<T, N>, Swizzled, S> {
        let map = self.layout();
        let widest = self.map().widest(self.origin(), along, T::TY.bits()).min(most_lanes(T::TY.bits()));
        if !widest.is_multiple_of(N as u32) {
            self.refuse(&TileError::Vector { asked: N as u32, mode: along, layout: self.map().text(), widest });
        }
        let starts = vectors_of(&map.layout(), along, N as i64).unwrap_or(map.layout());
        self.seen(self.base().cast(), Swizzled::new(map.swizzle(), 0, starts))
    }
}

impl<'k, E: Element, S: SpaceOf, const R: usize> LayoutTensor<'k, E, Modes<'k, R>, S> {
    /// A tile of these extents, by its number along each mode; at the edge it runs over, and the
    /// mask says so. Extents that are constants which the tiles divide need no mask, and a constant
    /// number that none of these tiles has is refused.
    #[track_caller]
    pub fn clipped_tile(self, extents: [u32; R], tile: [Index<'k>; R]) -> Self {
        let mut modes = *self.map();
        for (mode, (size, tile)) in extents.into_iter().zip(tile).enumerate() {
            let index = tile.constant();
            let whole = self.extents()[mode].known().filter(|_| modes.divides(mode, size));
            if let Some(extent) =
                whole.and_then(|whole| whole.checked_div(size)).filter(|&count| index >= count && index < 1 << 31)
            {
                self.refuse(&TileError::Beyond { mode, index, extent });
            }
            modes = modes.tiled(self.builder(), mode, size, tile);
        }
        self.seen(self.base(), modes)
    }

    /// The indices `start..start + extent` of a mode, masked by what is there.
    #[track_caller]
    pub fn range(self, mode: usize, start: Index<'k>, extent: u32) -> Self {
        if mode >= R {
            let modes = self.no_such(mode);
            return self.seen(self.base(), modes);
        }
        let ends = [start + extent, self.extents()[mode]].map(Index::known);
        let within = matches!(ends, [Some(end), Some(whole)] if end <= whole);
        let modes = if within { *self.map() } else { self.map().edged(self.builder(), mode) };
        self.seen(self.base(), modes.part(mode, start, extent.into()))
    }

    /// The indices of a mode up to the last multiple of `lanes`, and the fewer than `lanes` that
    /// follow: vectors and single elements of an extent that is not known to be a multiple. That
    /// the base and the other modes' strides are multiples of `lanes`, a power of two, is the
    /// author's promise, as [`Modes::vectors`] is.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::tile::{LayoutTensor, Modes};
    /// # record("sample", Arch::Sm80, block(128), |k| {
    /// let x = LayoutTensor::new(k.global::<f32>("x"), Modes::contiguous_run(k.param::<u32>("n")));
    /// let [fours, rest] = x.whole_and_rest(0, 4);
    /// let [a, b, c, d] = fours.vectorize::<0, 4>().load([k.tid().into()]);
    /// let last = rest.load([k.tid().into()]); // zero but for three threads at most
    /// # });
    /// ```
    #[track_caller]
    pub fn whole_and_rest(self, mode: usize, lanes: u32) -> [Self; 2] {
        if mode >= R || !lanes.is_power_of_two() {
            let modes = self.no_such(mode);
            return [self.seen(self.base(), modes), self.seen(self.base(), modes)];
        }
        self.map().cut(self.builder(), mode, lanes).map(|modes| self.seen(self.base(), modes))
    }

    /// Drops the view's masks: for coordinates that the author keeps inside, as a loop up to an
    /// extent does.
    #[must_use]
    pub fn inside(self) -> Self {
        self.seen(self.base(), self.map().unbounded())
    }

    /// The indices from one on, a multiple of `extent`: a tile that is not numbered.
    #[track_caller]
    pub(super) fn tile_from(self, mode: usize, start: Index<'k>, extent: u32) -> Self {
        let whole = self.map().tiled(self.builder(), mode, extent, 0.into());
        self.seen(self.base(), whole.part(mode, start, extent.into()))
    }

    /// Divides a mode into parts as the host does and takes one: the last has what is left, and may
    /// be empty.
    #[track_caller]
    pub fn split(self, split: Split, part: Index<'k>) -> Self {
        let Split { mode, parts, multiple } = split;
        if mode >= R || parts == 0 || multiple == 0 {
            let modes = self.no_such(mode);
            return self.seen(self.base(), modes);
        }
        let k = self.builder();
        let whole = self.extents()[mode];
        let parts = parts as u32;
        let multiple = multiple as u32;
        let size = match whole.known() {
            Some(extent) => extent.div_ceil(parts).next_multiple_of(multiple).into(),
            None => Index::any((whole.get(k) + (parts - 1)) / parts + (multiple - 1)) / multiple * multiple,
        };
        let start = part.times(k, size);
        let modes = self.map().edged(k, mode).ended(k, mode, start + size).part(mode, start, size);
        self.seen(self.base(), modes)
    }

    /// The modes in another order, each named once.
    #[track_caller]
    pub fn permute(self, modes: [usize; R]) -> Self {
        let permuted = match permutation(&modes, R) {
            Ok(()) => self.map().permuted(modes),
            Err(error) => {
                self.refuse(&error);
                *self.map()
            }
        };
        self.seen(self.base(), permuted)
    }

    /// The elements under the modes without an index, the others fixed; what is beyond the edge of
    /// one of these is masked.
    #[track_caller]
    pub fn slice<const Q: usize>(self, at: [Option<Index<'k>>; R]) -> LayoutTensor<'k, E, Modes<'k, Q>, S> {
        let open = at.iter().filter(|at| at.is_none()).count();
        if open != Q {
            self.refuse(&TileError::Slice { wanted: Q, open });
        }
        let (modes, base) = self.map().sliced(self.base().cast::<E::Scalar>(), at);
        self.seen(base.cast(), modes)
    }

    /// The elements of thread `thread`: see [`distribute`](LayoutTensor::distribute). Threads that
    /// do not divide an extent have elements beyond its edge, which are masked.
    #[track_caller]
    pub fn distribute<Threads: StaticLayout>(self, thread: Index<'k>) -> Self {
        self.distribute_by(&Threads::LAYOUT, thread)
    }

    /// Distributes as [`distribute`](LayoutTensor::distribute) does, by a thread layout that is a
    /// value.
    #[track_caller]
    pub fn distribute_by(self, threads: &Layout, thread: Index<'k>) -> Self {
        let k = self.builder();
        let mut modes = *self.map();
        match (threads.left_inverse(), threads.rank() == R) {
            (Ok(inverse), true) => {
                for (mode, at) in coordinate_of(threads, &inverse, thread).into_iter().enumerate() {
                    modes = modes.dealt(k, mode, at, threads.extent(mode) as u32);
                }
            }
            (Ok(_), false) => self.refuse(&TileError::ThreadRank { given: threads.rank(), expected: R }),
            (Err(_), _) => self.refuse(&no_numbering(threads)),
        }
        self.seen(self.base(), modes)
    }

    #[track_caller]
    fn no_such(&self, mode: usize) -> Modes<'k, R> {
        self.refuse(&TileError::NoSuchMode { mode, rank: R });
        *self.map()
    }
}

impl<'k, T: Scalar, S: SpaceOf, const R: usize> LayoutTensor<'k, T, Modes<'k, R>, S> {
    /// Vectorizes as [`vectorize`](LayoutTensor::vectorize) does; the promise of [`Modes::vectors`]
    /// and the starts of tiles say what is whole.
    #[track_caller]
    pub fn vectorize<const ALONG: usize, const N: usize>(self) -> LayoutTensor<'k, Lanes<T, N>, Modes<'k, R>, S> {
        let widest = self.map().widest(Index::ZERO, ALONG, T::TY.bits()).min(most_lanes(T::TY.bits()));
        if !widest.is_multiple_of(N as u32) {
            let layout = self.map().text();
            self.refuse(&TileError::Vector { asked: N as u32, mode: ALONG, layout, widest });
        }
        self.seen(self.base().cast(), self.map().vectorized(ALONG, N as u32))
    }
}

#[track_caller]
fn tile_by<'k>(layout: &Layout, tiler: &Tiler, tile: &[Index<'k>]) -> Result<(Layout, Index<'k>), TileError> {
    if !layout.divides_evenly(tiler) {
        let within = layout.zipped_divide(tiler)?.mode(0)?;
        for mode in 0..layout.rank().min(within.rank()) {
            let tile = within.extent(mode) as u32;
            let extent = layout.extent(mode) as u32;
            if !extent.is_multiple_of(tile) {
                return Err(TileError::Indivisible { mode, tile, extent });
            }
        }
        let value = layout.size();
        let divisor = within.size();
        return Err(LayoutError::Indivisible { operation: "tile_by of a nested mode", value, divisor }.into());
    }
    let divided = layout.zipped_divide(tiler)?;
    let within = divided.mode(0)?;
    let starts = divided.mode(1)?;
    if starts.rank() != tile.len() {
        return Err(TileError::Rank { given: tile.len(), expected: starts.rank() });
    }
    let mut origin = Index::from(0);
    for (mode, &at) in tile.iter().enumerate() {
        let index = at.constant();
        let extent = starts.extent(mode) as u32;
        if index >= extent && index < 1 << 31 {
            return Err(TileError::Beyond { mode, index, extent });
        }
        origin = origin + place(&starts.mode(mode)?, at);
    }
    Ok((within, origin))
}

#[track_caller]
fn distribute_by<'k>(layout: &Layout, threads: &Layout, thread: Index<'k>) -> Result<(Layout, Index<'k>), TileError> {
    let inverse = threads.left_inverse().map_err(|_| no_numbering(threads))?;
    if inverse.size() != threads.size() {
        return Err(no_numbering(threads));
    }
    if threads.rank() != layout.rank() {
        return Err(TileError::ThreadRank { given: threads.rank(), expected: layout.rank() });
    }
    let extents = || (0..threads.rank()).map(|mode| threads.extent(mode));
    for (mode, count) in extents().enumerate() {
        let threads = count as u32;
        let extent = layout.extent(mode) as u32;
        if !extent.is_multiple_of(threads) {
            return Err(TileError::Undealt { mode, threads, extent });
        }
    }
    let parts: Vec<Tiler> = extents().map(Tiler::extent).collect();
    let divided = divided("distribute of a nested mode", layout, &Tiler::by_mode(&parts)?, threads.size())?;
    Ok((divided.mode(1)?, place(&divided.mode(0)?, place(&inverse, thread))))
}

#[track_caller]
fn split_evenly<'k>(layout: &Layout, split: Split, part: Index<'k>) -> Result<(Layout, Index<'k>), TileError> {
    let Split { mode, parts, multiple } = split;
    if mode >= layout.rank() {
        return Err(TileError::NoSuchMode { mode, rank: layout.rank() });
    }
    let whole = layout.mode(mode)?;
    let extent = layout.extent(mode) as u32;
    let size = extent.div_ceil(parts.max(1) as u32).next_multiple_of(multiple.max(1) as u32);
    if !extent.is_multiple_of(size) {
        return Err(TileError::Indivisible { mode, tile: size, extent });
    }
    let divided = divided("split of a nested mode", &whole, &Tiler::extent(size.into()), size.into())?;
    let within = divided.mode(0)?;
    let starts = divided.mode(1)?;
    if part.constant() >= extent / size {
        return Err(TileError::Beyond { mode, index: part.constant(), extent: extent / size });
    }
    Ok((layout.replace(mode, &within.coalesce())?, place(&starts, part)))
}

/// The parts of a layout, where one layout has each of them.
fn divided(operation: &'static str, layout: &Layout, tiler: &Tiler, divisor: i64) -> Result<Layout, TileError> {
    if !layout.divides_evenly(tiler) {
        return Err(LayoutError::Indivisible { operation, value: layout.size(), divisor }.into());
    }
    Ok(layout.zipped_divide(tiler)?)
}

fn permutation(modes: &[usize], rank: usize) -> Result<(), TileError> {
    if modes.len() != rank {
        return Err(TileError::Rank { given: modes.len(), expected: rank });
    }
    for (i, &mode) in modes.iter().enumerate() {
        if mode >= rank {
            return Err(TileError::NoSuchMode { mode, rank });
        }
        if modes[..i].contains(&mode) {
            let argument = "a mode that is named twice";
            let bound = "named once";
            let value = mode as i64;
            return Err(LayoutError::Argument { operation: "permute", argument, value, bound }.into());
        }
    }
    Ok(())
}

/// The coordinate of a thread in a layout of threads. Where they number every place, strides are
/// the weights of digits, so that none goes the detour by the place.
#[track_caller]
fn coordinate_of<'k>(threads: &Layout, inverse: &Layout, thread: Index<'k>) -> Vec<Index<'k>> {
    let size = threads.size();
    let modes = (0..threads.rank()).map(|mode| threads.mode(mode).unwrap_or(Layout::ONE));
    if threads.cosize() == size {
        let along = |mode: Layout| {
            let mut at = Index::from(0);
            let mut weight = 1;
            for (&extent, &stride) in mode.extents().iter().zip(mode.strides()).filter(|(extent, _)| **extent > 1) {
                let rest = thread / stride as u32;
                at = at + if stride * extent < size { rest % extent as u32 } else { rest } * weight;
                weight *= extent as u32;
            }
            at
        };
        return modes.map(along).collect();
    }
    let mut rest = place(inverse, thread);
    let along = |mode: Layout| {
        let at = rest;
        let count = mode.size() as u32;
        rest = rest / count;
        if rest.known() == Some(0) { at } else { at % count }
    };
    modes.map(along).collect()
}

fn no_numbering(threads: &Layout) -> TileError {
    TileError::NoNumbering { threads: threads.to_string(), count: threads.size() }
}
