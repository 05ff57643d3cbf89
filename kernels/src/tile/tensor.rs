//! The view itself: a pointer, a layout, and where the view begins.

use super::index::{Index, place};
use tilewright_codegen::build::{Ptr, Scalar, SpaceOf, Val, Writable};
use tilewright_layout::typed::{StaticLayout, TilesOf, Within};
use tilewright_layout::view::{FragmentOf, OffsetMap, ThreadsOf};
use tilewright_layout::{Layout, LayoutError, Swizzle, Swizzled, Tiler};

/// Elements `T` in the space `S`, seen through the layout `L`: the device's counterpart of
/// [`tilewright_layout::view::TensorView`].
///
/// The layout is a type, and then tiles and distributions are checked by the compiler, or a value. Coordinates are
/// [`Index`]s, one per mode; they are the caller's to keep within the extents. A swizzled tensor begins at a multiple of
/// its swizzle's period.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::tile::{Index, LayoutTensor};
/// use tilewright_layout::typed::{RowMajor, Swizzle, Swizzled};
/// type Tile = Swizzled<Swizzle<3, 2, 3>, RowMajor<32, 32>>;
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let tile = LayoutTensor::new(k.shared_aligned::<f32>("tile", 1024, 1024), Tile::default());
/// let mine = tile.tile::<8, 32>([2.into(), 0.into()]).distribute::<RowMajor<8, 4>>(Index::lane(k));
/// let eight: Vec<_> = (0..8).map(|column| mine.at([0.into(), column.into()]).load()).collect();
/// # });
/// ```
pub struct LayoutTensor<'k, T, L, S> {
    base: Ptr<'k, S, T>,
    /// What is added to an offset before the swizzle.
    origin: Index<'k>,
    layout: L,
}

impl<T, L: Clone, S> Clone for LayoutTensor<'_, T, L, S> {
    fn clone(&self) -> Self {
        LayoutTensor { layout: self.layout.clone(), ..*self }
    }
}

impl<T, L: Copy, S> Copy for LayoutTensor<'_, T, L, S> {}

impl<'k, T: Scalar, L: OffsetMap, S: SpaceOf> LayoutTensor<'k, T, L, S> {
    /// A view of what begins at `base`.
    pub fn new(base: Ptr<'k, S, T>, layout: L) -> Self {
        LayoutTensor { base, origin: Index::from(layout.swizzled().start() as u32), layout }
    }

    /// A part: a layout whose offsets, after `origin` more, are offsets of this view.
    fn part<P: OffsetMap>(self, layout: P, origin: Index<'k>) -> LayoutTensor<'k, T, P, S> {
        LayoutTensor { base: self.base, origin: self.origin + origin, layout }
    }

    /// The same view begun at a coordinate, for coordinates behind it that add to it without a carry inside a mode: those
    /// within a tile whose extents divide it.
    #[track_caller]
    pub fn begun_at<const R: usize>(self, coordinate: [Index<'k>; R]) -> LayoutTensor<'k, T, L, S> {
        LayoutTensor { origin: self.place(coordinate), ..self }
    }

    /// Where the tensor begins that this is a view or a part of.
    pub fn base(self) -> Ptr<'k, S, T> {
        self.base
    }

    /// The offset of the view's first element before the swizzle.
    pub fn origin(self) -> Index<'k> {
        self.origin
    }

    /// The layout as a value.
    pub fn layout(self) -> Swizzled {
        let map = self.layout.swizzled();
        Swizzled::new(map.swizzle(), 0, map.layout())
    }

    /// The extent of a mode.
    pub fn extent(self, mode: usize) -> u32 {
        self.layout.extent(mode) as u32
    }

    /// The offset of a coordinate before the swizzle.
    #[track_caller]
    pub fn place<const R: usize>(self, coordinate: [Index<'k>; R]) -> Index<'k> {
        let layout = self.layout.swizzled().layout();
        let modes = coordinate.into_iter().enumerate();
        modes.fold(self.origin, |sum, (mode, at)| match layout.mode(mode) {
            Ok(mode) => sum + place(&mode, at),
            Err(_) => sum,
        })
    }

    /// The element at a coordinate.
    #[track_caller]
    pub fn at<const R: usize>(self, coordinate: [Index<'k>; R]) -> Ptr<'k, S, T> {
        self.pointer(self.place(coordinate))
    }

    /// The element at a flat coordinate, the first mode fastest.
    #[track_caller]
    pub fn flat(self, index: Index<'k>) -> Ptr<'k, S, T> {
        self.pointer(self.origin + place(&self.layout.swizzled().layout(), index))
    }

    /// The element at an offset before the swizzle.
    ///
    /// The swizzle is computed once per run-time offset where constants are proven to commute with it; a constant that
    /// mixes costs one exclusive-or, and only where nothing is proven the swizzle is computed for the whole sum.
    #[track_caller]
    pub fn pointer(self, offset: Index<'k>) -> Ptr<'k, S, T> {
        let swizzle = self.layout.swizzled().swizzle();
        let constant = i64::from(offset.constant());
        let Some(value) = offset.value() else { return self.base.at(swizzle.apply(constant) as u32) };
        match swizzle.split(offset.bits().into(), constant) {
            Some(split) if split.mix == 0 => self.base.at(apply(swizzle, value, offset.bits())).at(split.add as u32),
            Some(split) => {
                let mixed = apply(swizzle, value, offset.bits()) ^ split.mix as u32;
                self.base.at(mixed).at(split.add as u32)
            }
            None => self.base.at(apply(swizzle, value + offset.constant(), u32::MAX)),
        }
    }

    /// The element at a coordinate as if nothing were swizzled: what descriptors and tensor maps count from.
    #[track_caller]
    pub fn unswizzled<const R: usize>(self, coordinate: [Index<'k>; R]) -> Ptr<'k, S, T> {
        let offset = self.place(coordinate);
        match offset.value() {
            Some(value) => self.base.at(value).at(offset.constant()),
            None => self.base.at(offset.constant()),
        }
    }

    /// Vectors of `N` elements along mode `along`, or `None` where they are not contiguous and aligned everywhere.
    pub fn vectors<const N: usize>(self, along: usize) -> Option<Vectors<'k, T, L, S, N>> {
        let width = self.layout().vector_along(along, T::TY.bits().into());
        let aligned = (self.origin.bits() | self.origin.constant()) & (N as u32 - 1) == 0;
        (width % N as i64 == 0 && aligned).then_some(Vectors { tensor: self })
    }

    /// The tile of a tiler at a place among the tiles, one coordinate per mode of the rest.
    ///
    /// # Errors
    /// [`LayoutError`] where the tiles do not fill the view.
    #[track_caller]
    pub fn tile_by<const R: usize>(
        self,
        tiler: &Tiler,
        tile: [Index<'k>; R],
    ) -> Result<LayoutTensor<'k, T, Swizzled, S>, LayoutError> {
        let map = self.layout();
        if !map.layout().divides_evenly(tiler) {
            let (value, divisor) = (map.size(), map.layout().zipped_divide(tiler)?.mode(0)?.size());
            return Err(LayoutError::Indivisible { operation: "tile_by, mode by mode", value, divisor });
        }
        let divided = map.layout().zipped_divide(tiler)?;
        let (within, starts) = (divided.mode(0)?, divided.mode(1)?);
        if starts.rank() != R {
            return Err(LayoutError::Rank { operation: "tile_by", given: R, expected: starts.rank() });
        }
        let mut origin = Index::from(0);
        for (mode, at) in tile.into_iter().enumerate() {
            origin = origin + place(&starts.mode(mode)?, at);
        }
        Ok(self.part(Swizzled::new(map.swizzle(), 0, within), origin))
    }
}

impl<'k, T: Scalar, L: StaticLayout, S: SpaceOf> LayoutTensor<'k, T, L, S> {
    /// Tile (`row`, `column`) of `M`×`N`. A matrix that is not a whole number of such tiles does not compile.
    #[track_caller]
    pub fn tile<const M: usize, const N: usize>(self, tile: [Index<'k>; 2]) -> LayoutTensor<'k, T, Within<L, M, N>, S> {
        self.part(Within::default(), by_mode(&TilesOf::<L, M, N>::LAYOUT, tile))
    }

    /// The elements of thread `thread`: `Threads` sends a place in a tile of its shape to the thread that owns it, and the
    /// tile is repeated over the view. What does not divide evenly does not compile.
    #[track_caller]
    pub fn distribute<Threads: StaticLayout>(
        self,
        thread: Index<'k>,
    ) -> LayoutTensor<'k, T, FragmentOf<L, Threads>, S> {
        let place_of_thread = const { Layout::constant(Threads::LAYOUT.left_inverse()) };
        let origin = place(&ThreadsOf::<L, Threads>::LAYOUT, place(&place_of_thread, thread));
        self.part(FragmentOf::default(), origin)
    }

    /// The view in vectors of `N` elements along mode `ALONG`. Vectors that are not contiguous, that a swizzle splits, or
    /// that do not start at multiples of their length do not compile.
    ///
    /// The view's own start is what `tile` and `distribute` made of it; [`LayoutTensor::vectors`] checks that too.
    pub fn vectorize<const ALONG: usize, const N: usize>(self) -> Vectors<'k, T, L, S, N> {
        const {
            let width = Swizzled::new(L::SWIZZLE, 0, L::LAYOUT).vector_along(ALONG, T::TY.bits() as i64);
            assert!(width % N as i64 == 0, "vectorize: the vectors are not contiguous and aligned along this mode");
        }
        Vectors { tensor: self }
    }
}

/// A view whose elements are vectors of `N` along a mode, moved by one instruction each.
pub struct Vectors<'k, T, L, S, const N: usize> {
    tensor: LayoutTensor<'k, T, L, S>,
}

impl<'k, T: Scalar, L: OffsetMap, S: SpaceOf, const N: usize> Vectors<'k, T, L, S, N> {
    /// The vector that begins at a coordinate, which is a multiple of `N` along the vectors' mode.
    #[track_caller]
    pub fn load<const R: usize>(&self, coordinate: [Index<'k>; R]) -> [Val<'k, T>; N] {
        self.tensor.at(coordinate).load_vec()
    }

    /// Writes the vector that begins at a coordinate.
    #[track_caller]
    pub fn store<const R: usize>(&self, coordinate: [Index<'k>; R], values: [Val<'k, T>; N])
    where
        S: Writable,
    {
        self.tensor.at(coordinate).store_vec(values);
    }
}

fn by_mode<'k>(layout: &Layout, coordinate: [Index<'k>; 2]) -> Index<'k> {
    coordinate.into_iter().enumerate().fold(Index::from(0), |sum, (mode, at)| match layout.mode(mode) {
        Ok(mode) => sum + place(&mode, at),
        Err(_) => sum,
    })
}

/// The swizzle of a run-time offset that has no bits outside `bits`.
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
