//! The tensor itself: a pointer, a layout, and where the view begins.

use core::panic::Location;

use tilewright_codegen::build::{Builder, IntoVal, Ptr, Scalar, Shared, SpaceOf, Writable};
use tilewright_layout::Swizzled;
use tilewright_layout::typed::{Lowered, StaticLayout};
use tilewright_layout::view::{OffsetMap, assert_rank};

use super::bounds::bounded;
use super::element::{Element, Lanes, load_lanes, store_lanes};
use super::index::{Index, place};
use super::layout::{TensorLayout, before_swizzle, swizzled};
use super::{Mask, Modes, TileError};
use crate::tile::allocation::hardware_period;

/// A tensor in the memory of the device: elements `E` in the space `S`, seen through the layout
/// `L`.
///
/// It is a pointer and a layout. Taking a part of it records at most the arithmetic of an address;
/// `load` and `store` move elements. The host's counterpart is
/// [`tilewright_layout::view::TensorView`].
///
/// # Layouts
/// | `L` | extents and strides | checked by |
/// |---|---|---|
/// | a typed layout, `RowMajor<8, 64>` | known to the compiler | the compiler: rank, tiles, threads, vectors |
/// | a `Layout` or `Swizzled` value | known while recording | `verify`, at the author's line |
/// | [`Modes`] | constants or parameters of the kernel | `verify`; masks at run time |
///
/// # Parts
/// | to take | call |
/// |---|---|
/// | a tile | [`tile`](LayoutTensor::tile), [`tile_by`](LayoutTensor::tile_by), [`clipped_tile`](LayoutTensor::clipped_tile) |
/// | a thread's elements | [`distribute`](LayoutTensor::distribute), [`distribute_by`](LayoutTensor::distribute_by) |
/// | vectors that one instruction moves | [`vectorize`](LayoutTensor::vectorize), [`vectorize_by`](LayoutTensor::vectorize_by) |
/// | a row, a column, a slice | [`row`](LayoutTensor::row), [`column`](LayoutTensor::column), [`slice`](LayoutTensor::slice) |
/// | other views | [`transpose`](LayoutTensor::transpose), [`permute`](LayoutTensor::permute), [`compose`](LayoutTensor::compose) |
///
/// # Coordinates
/// Coordinates are [`Index`]es, one per mode. A constant beyond its extent is refused while
/// recording, [`TileError::Beyond`]. An index that is known at run time is checked by the simulator
/// at every access, and costs nothing on a device. Tensors of [`Modes`] are masked at their edges:
/// `load` gives zero there, [`load_or`](LayoutTensor::load_or) a fill of your choice.
///
/// A swizzled tensor begins at a multiple of its swizzle's period; [`shared`](LayoutTensor::shared)
/// allocates so.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::tile::{Index, LayoutTensor};
/// use tilewright_layout::typed::{RowMajor, Swizzle, Swizzled};
/// type Tile = Swizzled<Swizzle<3, 2, 3>, RowMajor<32, 32>>;
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let tile = LayoutTensor::<f32, Tile, _>::shared(k, "tile");
/// let mine = tile.tile::<8, 32>([2.into(), 0.into()]).distribute::<RowMajor<8, 4>>(Index::lane(k));
/// let eight: Vec<_> = (0..8).map(|column| mine.load([0.into(), column.into()])).collect();
/// # });
/// ```
///
/// A coordinate of another rank does not compile:
/// ```compile_fail
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// # use tilewright_kernels::tile::LayoutTensor;
/// # use tilewright_layout::typed::RowMajor;
/// # record("sample", Arch::Sm80, block(32), |k| {
/// LayoutTensor::<f32, RowMajor<8, 4>, _>::shared(k, "tile").at([1.into()]);
/// # });
/// ```
pub struct LayoutTensor<'k, E, L, S> {
    base: Ptr<'k, S, E>,
    /// The number added to an offset before the swizzle.
    origin: Index<'k>,
    layout: L,
}

impl<E, L: Clone, S> Clone for LayoutTensor<'_, E, L, S> {
    fn clone(&self) -> Self {
        LayoutTensor { layout: self.layout.clone(), ..*self }
    }
}

impl<E, L: Copy, S> Copy for LayoutTensor<'_, E, L, S> {}

impl<'k, T: Scalar, L: StaticLayout> LayoutTensor<'k, T, L, Shared> {
    /// The alignment of an allocation of the layout, in bytes: its swizzle's period, 16 for
    /// asynchronous copies, 128 where a tensor map can fill it.
    pub const ALIGN: u32 = {
        let map = Swizzled::new(L::SWIZZLE, 0, L::LAYOUT);
        let least = if map.tensor_boxes(T::TY.bits() as i64).is_ok() { 128 } else { 16 };
        let period = hardware_period(&map, T::TY.bytes());
        if period > least { period } else { least }
    };

    /// Allocates the tensor in shared memory, as large as the layout reaches and aligned to
    /// [`Self::ALIGN`].
    #[track_caller]
    pub fn shared(k: &'k Builder, name: &str) -> Self {
        let elements = Lowered::<L>::REACH as u32;
        LayoutTensor::new(k.shared_aligned(name, elements, const { Self::ALIGN }), L::default())
    }
}

impl<'k, T: Scalar, L: TensorLayout<'k>, S: SpaceOf> LayoutTensor<'k, T, L, S> {
    /// A view of the memory at `base`. A view of an allocation in shared memory is refused if it
    /// reaches beyond the allocation, or begins off its swizzle's period.
    #[track_caller]
    pub fn new(base: Ptr<'k, S, T>, layout: L) -> Self {
        LayoutTensor { base, origin: layout.begin(base), layout }
    }
}

impl<'k, T: Scalar, L, S: SpaceOf> LayoutTensor<'k, T, L, S> {
    /// Views the elements as vectors of one.
    pub(super) fn singles(self) -> LayoutTensor<'k, Lanes<T, 1>, L, S> {
        LayoutTensor { base: self.base.cast(), origin: self.origin, layout: self.layout }
    }
}

impl<'k, T: Scalar, L, S: SpaceOf> LayoutTensor<'k, Lanes<T, 1>, L, S> {
    /// Vectors of one as elements.
    pub(super) fn scalars(self) -> LayoutTensor<'k, T, L, S> {
        LayoutTensor { base: self.base.cast(), origin: self.origin, layout: self.layout }
    }
}

impl<'k, E, L, S: SpaceOf> LayoutTensor<'k, E, L, S> {
    /// The recorder.
    pub fn builder(&self) -> &'k Builder {
        self.base.builder()
    }

    /// The start of the tensor that this is a view or a part of.
    pub fn base(&self) -> Ptr<'k, S, E> {
        self.base
    }

    /// The offset of the view's first element before the swizzle; 0 of a layout of [`Modes`], which
    /// knows where it begins.
    pub fn origin(&self) -> Index<'k> {
        self.origin
    }

    /// A part: a layout whose offsets, after `origin` more, are offsets of this view.
    #[track_caller]
    pub(super) fn part<P>(self, layout: P, origin: Index<'k>) -> LayoutTensor<'k, E, P, S> {
        LayoutTensor { base: self.base, origin: self.origin + origin, layout }
    }

    /// Views the memory under another layout, as other elements, from another place on.
    pub(super) fn seen<F, P>(self, base: Ptr<'k, S, F>, layout: P) -> LayoutTensor<'k, F, P, S> {
        LayoutTensor { base, origin: self.origin, layout }
    }

    /// Moves the origin of the view to an offset of the whole.
    pub(super) fn at_offset(self, origin: Index<'k>) -> Self {
        LayoutTensor { origin, ..self }
    }

    pub(super) fn map(&self) -> &L {
        &self.layout
    }

    /// Whether elements within the extents may be missing.
    pub(crate) fn may_end(&self) -> bool
    where
        L: TensorLayout<'k>,
    {
        self.layout.may_end()
    }

    /// Adds checks that the simulator makes at every access: each index is below its extent.
    #[track_caller]
    pub(super) fn bounded_by(
        self,
        indices: impl Iterator<Item = (usize, Index<'k>, u32)>,
        layout: &dyn Fn() -> String,
    ) -> Self {
        LayoutTensor { base: bounded(self.base, indices, layout), ..self }
    }

    /// Refuses what the caller asked for.
    #[track_caller]
    pub(super) fn refuse(&self, error: &TileError) {
        self.builder().refuse(error);
    }
}

impl<'k, E: Element, L: TensorLayout<'k>, S: SpaceOf> LayoutTensor<'k, E, L, S> {
    /// Refuses a coordinate that is known to be of no element.
    #[track_caller]
    fn check<const R: usize>(&self, coordinate: &[Index<'k>; R]) {
        let expected = self.layout.modes();
        if R != expected {
            return self.refuse(&TileError::Rank { given: R, expected });
        }
        for (mode, at) in coordinate.iter().enumerate() {
            let Some(extent) = self.layout.extent_along(mode).known() else { continue };
            // A run-time part only adds to the constant; constants from 2^31 on are steps back.
            let index = at.constant();
            if index >= extent && index < 1 << 31 {
                self.refuse(&TileError::Beyond { mode, index, extent });
            }
        }
    }

    /// Adds checks that the simulator makes at every access: each index of the coordinate is below
    /// the extent of its mode.
    #[track_caller]
    pub(super) fn within(&self, coordinate: &[Index<'k>]) -> Self {
        let indices = coordinate.iter().enumerate();
        let bounds = indices.filter_map(|(mode, &at)| Some((mode, at, self.layout.bound_along(mode)?)));
        self.clone().bounded_by(bounds, &|| self.layout.text())
    }

    /// The element at a coordinate: of a vector, its first scalar.
    #[track_caller]
    pub fn at<const R: usize>(&self, coordinate: [Index<'k>; R]) -> Ptr<'k, S, E::Scalar> {
        const { assert_rank(L::RANK, R) };
        self.check(&coordinate);
        self.within(&coordinate).locate(&coordinate)
    }

    /// The element at a coordinate, unchecked.
    #[track_caller]
    pub(super) fn locate(&self, coordinate: &[Index<'k>]) -> Ptr<'k, S, E::Scalar> {
        self.layout.locate(self.base.cast(), self.origin, coordinate)
    }

    /// The places of elements that one thread has, whose coordinates differ by constants: what the
    /// thread contributes is computed once, where it is proven that the constants add to it.
    pub(crate) fn places<const R: usize>(&self, at: &[[Index<'k>; R]]) -> ThreadElements<'k, Self, R> {
        let variable = at.first().map_or([Index::ZERO; R], |first| first.map(Index::variable));
        let same = at.iter().all(|at| at.iter().zip(&variable).all(|(at, of)| at.variable().is_same(*of)));
        let ahead: Vec<[Index<'k>; R]> = at.iter().map(|at| at.map(|at| at.constant().into())).collect();
        let slices: Vec<&[Index<'k>]> = ahead.iter().map(|at| &at[..]).collect();
        let begun = if same { self.layout.begun(self.origin, &variable, &slices) } else { None };
        match begun {
            Some((layout, origin)) => {
                ThreadElements { view: LayoutTensor { layout, origin, ..*self }, at: ahead, constant: true }
            }
            None => ThreadElements { view: self.clone(), at: at.to_vec(), constant: false },
        }
    }

    /// The mask of a coordinate: whether there is an element. It is always set, except where
    /// run-time extents end inside a tile.
    #[track_caller]
    pub fn mask<const R: usize>(&self, coordinate: [Index<'k>; R]) -> Mask<'k> {
        const { assert_rank(L::RANK, R) };
        self.layout.inside(self.builder(), &coordinate)
    }

    /// Loads the element at a coordinate; where the mask says that there is none, nothing is read,
    /// and the value is zero.
    ///
    /// Zero is the right padding for sums. A maximum or a minimum of such a value is refused while
    /// it is recorded: take [`load_or`](LayoutTensor::load_or).
    #[track_caller]
    pub fn load<const R: usize>(&self, coordinate: [Index<'k>; R]) -> E::Value<'k> {
        const { assert_rank(L::RANK, R) };
        self.check(&coordinate);
        let view = self.within(&coordinate);
        self.builder().on_behalf(Location::caller(), || {
            let lanes = || load_lanes(view.locate(&coordinate), E::LANES);
            E::of_lanes(&self.mask(coordinate).or_zero(E::LANES, &lanes))
        })
    }

    /// Loads the element at a coordinate; where the mask says that there is none, nothing is read,
    /// and the value is `fill`, in every lane of a vector. Triton's `tl.load(.., other=fill)`.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch, verify::verify};
    /// use tilewright_kernels::tile::{LayoutTensor, Modes};
    /// let kernel = record("largest", Arch::Sm80, block(32), |k| {
    ///     let x = LayoutTensor::new(k.global::<f32>("x"), Modes::contiguous_run(k.param::<u32>("n")));
    ///     let mine = x.clipped_tile([32], [k.block_id().into()]).load_or([k.lane().into()], f32::NEG_INFINITY);
    ///     k.global::<f32>("out").at(k.block_id()).store(mine.warp_reduce(|a, b| a.max(b)));
    /// });
    /// assert!(verify(kernel).is_ok());
    /// ```
    #[track_caller]
    pub fn load_or<const R: usize>(
        &self,
        coordinate: [Index<'k>; R],
        fill: impl IntoVal<'k, E::Scalar>,
    ) -> E::Value<'k> {
        const { assert_rank(L::RANK, R) };
        self.check(&coordinate);
        let view = self.within(&coordinate);
        let fill = fill.val(self.builder());
        self.builder().on_behalf(Location::caller(), || {
            let lanes = || load_lanes(view.locate(&coordinate), E::LANES);
            E::of_lanes(&self.mask(coordinate).or(fill, E::LANES, &lanes))
        })
    }

    /// Writes the element at a coordinate, where there is one.
    #[track_caller]
    pub fn store<const R: usize>(&self, coordinate: [Index<'k>; R], value: E::Value<'k>)
    where
        S: Writable,
    {
        const { assert_rank(L::RANK, R) };
        self.check(&coordinate);
        let view = self.within(&coordinate);
        self.builder().on_behalf(Location::caller(), || {
            self.mask(coordinate).when(|| store_lanes(view.locate(&coordinate), &E::lanes(value)));
        });
    }
}

/// Elements of one thread: a view, and their coordinates in it.
pub(crate) struct ThreadElements<'k, V, const R: usize> {
    view: V,
    at: Vec<[Index<'k>; R]>,
    /// Whether the coordinates are constants.
    constant: bool,
}

impl<'k, E: Element, L: TensorLayout<'k>, S: SpaceOf, const R: usize> ThreadElements<'k, LayoutTensor<'k, E, L, S>, R> {
    /// Their addresses.
    #[track_caller]
    pub(crate) fn pointers(&self) -> Vec<Ptr<'k, S, E::Scalar>> {
        if !self.constant {
            return self.at.iter().map(|at| self.view.locate(at)).collect();
        }
        let at: Vec<&[Index<'k>]> = self.at.iter().map(|at| &at[..]).collect();
        self.view.layout.locate_all(self.view.base.cast(), self.view.origin, &at)
    }

    /// The mask of one of them: whether it is before the end of a mode. For the first mode it also
    /// covers the view's guard.
    #[track_caller]
    pub(crate) fn mask(&self, number: usize, mode: usize) -> Mask<'k> {
        let k = self.view.builder();
        let layout = &self.view.layout;
        let guard = if mode == 0 { layout.guard(k) } else { Mask::always(k) };
        guard.and(layout.before_end(k, mode, self.at[number][mode]))
    }
}

impl<'k, E: Element, S: SpaceOf, const R: usize> LayoutTensor<'k, E, Modes<'k, R>, S> {
    /// The extents of the view.
    pub fn extents(&self) -> [Index<'k>; R] {
        self.layout.extents()
    }
}

impl<'k, E: Element, L: OffsetMap, S: SpaceOf> LayoutTensor<'k, E, L, S> {
    /// Begins the view at a coordinate, for later coordinates that add to it without a carry inside
    /// a mode: those within a tile whose extents divide it.
    #[track_caller]
    pub fn sub_tile_at<const R: usize>(self, coordinate: [Index<'k>; R]) -> Self {
        LayoutTensor { origin: self.place(coordinate), ..self.within(&coordinate) }
    }

    /// The layout as a value; of a tensor of vectors, in scalars from the first of one to the first
    /// of the next.
    pub fn layout(&self) -> Swizzled {
        let map = self.layout.swizzled();
        Swizzled::new(map.swizzle(), 0, map.layout())
    }

    /// The extent of a mode, elements.
    pub fn extent(&self, mode: usize) -> u32 {
        self.layout.extent(mode) as u32
    }

    /// The offset of a coordinate before the swizzle, scalars.
    #[track_caller]
    pub fn place<const R: usize>(&self, coordinate: [Index<'k>; R]) -> Index<'k> {
        self.check(&coordinate);
        before_swizzle(&self.layout.swizzled(), self.origin, &coordinate)
    }

    /// The element at a flat coordinate, the first mode fastest.
    #[track_caller]
    pub fn flat(&self, index: Index<'k>) -> Ptr<'k, S, E::Scalar> {
        let at = index.constant();
        let extent = self.layout.size() as u32;
        if at >= extent && at < 1 << 31 {
            self.refuse(&TileError::Beyond { mode: 0, index: at, extent });
        }
        let view = self.bounded_by([(0, index, extent)].into_iter(), &|| self.layout.text());
        view.pointer(self.origin + place(&self.layout.swizzled().layout(), index))
    }

    /// The scalar at an offset before the swizzle.
    #[track_caller]
    pub fn pointer(&self, offset: Index<'k>) -> Ptr<'k, S, E::Scalar> {
        swizzled(self.base.cast(), self.layout.swizzled().swizzle(), offset)
    }

    /// The element at a coordinate as if nothing were swizzled: what descriptors and tensor maps
    /// count from.
    #[track_caller]
    pub fn unswizzled<const R: usize>(&self, coordinate: [Index<'k>; R]) -> Ptr<'k, S, E::Scalar> {
        let offset = self.place(coordinate);
        let base = self.within(&coordinate).base.cast();
        match offset.value() {
            Some(value) => base.at(value).at(offset.constant()),
            None => base.at(offset.constant()),
        }
    }
}
