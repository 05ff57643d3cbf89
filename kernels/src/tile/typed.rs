//! Parts of a tensor whose layout is a type: what does not divide evenly does not compile.

use super::element::{Element, Lanes, most_lanes};
use super::index::{Index, place};
use super::layout::TensorLayout;
use super::{LayoutTensor, TileError};
use core::marker::PhantomData;
use tilewright_codegen::build::{Scalar, SpaceOf};
use tilewright_layout::typed::{Mode, StaticLayout, TilesOf, Transposed, Within, notation};
use tilewright_layout::view::{FragmentOf, ThreadsOf};
use tilewright_layout::{Layout, Message, Swizzled};

impl<'k, E: Element, L: StaticLayout, S: SpaceOf> LayoutTensor<'k, E, L, S> {
    /// Tile (`row`, `column`) of `M`×`N` elements. A matrix that is not a whole number of such
    /// tiles does not compile.
    #[track_caller]
    pub fn tile<const M: usize, const N: usize>(self, tile: [Index<'k>; 2]) -> LayoutTensor<'k, E, Within<L, M, N>, S> {
        let starts = const { TilesOf::<L, M, N>::LAYOUT };
        for (mode, at) in tile.iter().enumerate() {
            let index = at.constant();
            let extent = starts.extent(mode) as u32;
            if index >= extent && index < 1 << 31 {
                self.refuse(&TileError::Beyond { mode, index, extent });
            }
        }
        let bounds = tile.into_iter().enumerate().map(|(mode, at)| (mode, at, starts.extent(mode) as u32));
        let of_tiles = || format!("the tiles of {} by {M} and {N}", self.map().text());
        self.bounded_by(bounds, &of_tiles).part(Within::default(), by_mode(&starts, tile))
    }

    /// The elements of thread `thread`: `Threads` sends a place in a tile of its shape to the
    /// thread that owns it, and the tile is repeated over the view. Extents that do not divide
    /// evenly do not compile.
    #[track_caller]
    pub fn distribute<Threads: StaticLayout>(
        self,
        thread: Index<'k>,
    ) -> LayoutTensor<'k, E, FragmentOf<L, Threads>, S> {
        let place_of_thread = const { Layout::constant(Threads::LAYOUT.left_inverse()) };
        let origin = place(&ThreadsOf::<L, Threads>::LAYOUT, place(&place_of_thread, thread));
        let bounds = [(0, thread, Threads::LAYOUT.size() as u32)].into_iter();
        let of_threads = || format!("the threads {} of {}", Threads::LAYOUT, self.map().text());
        self.bounded_by(bounds, &of_threads).part(FragmentOf::default(), origin)
    }

    /// The transposed matrix, in the same memory.
    #[track_caller]
    pub fn transpose(self) -> LayoutTensor<'k, E, Transposed<L>, S> {
        self.part(Transposed::default(), 0.into())
    }

    /// Row `row` of a matrix.
    #[track_caller]
    pub fn row(self, row: Index<'k>) -> LayoutTensor<'k, E, Mode<L, 1>, S> {
        let origin = self.place([row, 0.into()]);
        self.within(&[row, 0.into()]).begun(origin, Mode::default())
    }

    /// Column `column` of a matrix.
    #[track_caller]
    pub fn column(self, column: Index<'k>) -> LayoutTensor<'k, E, Mode<L, 0>, S> {
        let origin = self.place([0.into(), column]);
        self.within(&[0.into(), column]).begun(origin, Mode::default())
    }
}

impl<'k, T: Scalar, L: StaticLayout, S: SpaceOf> LayoutTensor<'k, T, L, S> {
    /// The tensor in vectors of `N` elements along mode `ALONG`: a tensor again, whose elements one
    /// instruction moves.
    ///
    /// Vectors that are not contiguous, that a swizzle splits, or that do not start at multiples of
    /// their length do not compile; a view that begins between two is refused while recording.
    /// Vectors first and then the threads, or the threads first where a thread's elements are
    /// contiguous:
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::tile::{Index, LayoutTensor};
    /// use tilewright_layout::typed::RowMajor;
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let tile = LayoutTensor::<f32, RowMajor<16, 64>, _>::shared(k, "tile");
    /// let mine = tile.vectorize::<1, 4>().distribute::<RowMajor<2, 16>>(Index::lane(k));
    /// let four = mine.load([7.into(), 0.into()]); // of row 14 or 15, by one `ld.shared.v4`
    /// let row = tile.distribute::<RowMajor<16, 1>>(Index::lane(k) % 16).vectorize::<1, 4>();
    /// let last = row.load([0.into(), 15.into()]);
    /// # });
    /// ```
    #[track_caller]
    pub fn vectorize<const ALONG: usize, const N: usize>(
        self,
    ) -> LayoutTensor<'k, Lanes<T, N>, VectorsOf<L, ALONG, N>, S> {
        const { whole_vectors::<L>(ALONG, N as i64, T::TY.bits()) };
        if self.origin().multiple() < N as u32 {
            let asked = N as u32;
            let layout = self.map().text();
            let widest = self.origin().multiple();
            self.refuse(&TileError::Vector { asked, mode: ALONG, layout, widest });
        }
        self.seen(self.base().cast(), VectorsOf::default())
    }
}

impl<'k, E: Element, L: StaticLayout, S: SpaceOf> LayoutTensor<'k, E, L, S> {
    /// A view from an offset of the whole on.
    fn begun<P>(self, origin: Index<'k>, layout: P) -> LayoutTensor<'k, E, P, S> {
        let whole = LayoutTensor::seen(self, self.base(), layout);
        whole.at_offset(origin)
    }
}

/// The layout of the first elements of the vectors of `N` elements along mode `ALONG` of `L`.
///
/// ```
/// use tilewright_kernels::tile::VectorsOf;
/// use tilewright_layout::typed::{RowMajor, StaticLayout};
/// assert_eq!(VectorsOf::<RowMajor<8, 64>, 1, 4>::LAYOUT.to_string(), "(8,16):(64,4)");
/// ```
pub struct VectorsOf<L, const ALONG: usize, const N: usize>(PhantomData<fn() -> L>);

impl<L, const ALONG: usize, const N: usize> Clone for VectorsOf<L, ALONG, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L, const ALONG: usize, const N: usize> Copy for VectorsOf<L, ALONG, N> {}

impl<L, const ALONG: usize, const N: usize> Default for VectorsOf<L, ALONG, N> {
    fn default() -> Self {
        VectorsOf(PhantomData)
    }
}

impl<L: StaticLayout, const ALONG: usize, const N: usize> StaticLayout for VectorsOf<L, ALONG, N> {
    const LAYOUT: Layout = Layout::constant(vectors_of(&L::LAYOUT, ALONG, N as i64));
    const SWIZZLE: tilewright_layout::Swizzle = L::SWIZZLE;
}

/// The layout of the starts of vectors of `lanes` elements along a mode.
pub(super) const fn vectors_of(
    layout: &Layout,
    along: usize,
    lanes: i64,
) -> Result<Layout, tilewright_layout::LayoutError> {
    let mode = match layout.mode(along) {
        Ok(mode) => mode,
        Err(error) => return Err(error),
    };
    let count = mode.size() / lanes;
    let starts = if count <= 1 {
        Layout::ONE
    } else {
        let every = match Layout::leaf(count, lanes) {
            Ok(every) => every,
            Err(error) => return Err(error),
        };
        match mode.composition(&every) {
            Ok(starts) => starts,
            Err(error) => return Err(error),
        }
    };
    layout.replace(along, &starts)
}

/// A compile error where vectors are not whole.
const fn whole_vectors<L: StaticLayout>(along: usize, lanes: i64, bits: u32) {
    let widest = Swizzled::new(L::SWIZZLE, 0, L::LAYOUT).vector_along(along, bits as i64);
    let most = most_lanes(bits) as i64;
    let widest = if widest > most { most } else { widest };
    if lanes < 1 || widest % lanes != 0 {
        let message = Message::new().text("vectorize of ").text(notation::<L>().as_str()).text(" by ").number(lanes);
        let message = message.text(" elements of ").number(bits as i64).text(" bits along mode ").number(along as i64);
        let message = message.text(": the widest vectors that are contiguous and aligned there have ").number(widest);
        panic!("{}", message.text("; take a divisor of that").as_str())
    }
}

#[track_caller]
fn by_mode<'k>(layout: &Layout, coordinate: [Index<'k>; 2]) -> Index<'k> {
    coordinate.into_iter().enumerate().fold(Index::from(0), |sum, (mode, at)| match layout.mode(mode) {
        Ok(mode) => sum + place(&mode, at),
        Err(_) => sum,
    })
}
