//! Copies of tiles by tensor map: the boxes follow from the tile's layout, on the device and on the
//! host alike.
//!
//! A matrix, swizzled or not, is cut into boxes of two axes: [`fetch`](LayoutTensor::fetch),
//! [`send`](LayoutTensor::send). A row-major tile of one to five modes is a box by itself:
//! [`fetch_box`](LayoutTensor::fetch_box), [`reduce_box`](LayoutTensor::reduce_box).

use super::{Index, LayoutTensor};
use tilewright_codegen::build::{Builder, Bulk, Mbarrier, Param, Ptr, Scalar, Shared, TensorMap, Val};
use tilewright_codegen::ir::attr::AtomOp;
use tilewright_layout::swizzle::TensorBoxes;
use tilewright_layout::typed::{Lowered, StaticLayout};
use tilewright_layout::view::OffsetMap;
use tilewright_layout::{Message, Swizzled};

/// Bytes that a box in shared memory begins at a multiple of.
const BOX_ALIGN: u32 = 128;

/// The extents of a row-major tile as a tensor map's box has them: the last mode, whose elements
/// are neighbours, first.
///
/// ```
/// use tilewright_kernels::tile::box_extents;
/// tilewright_layout::layout! { type Voxels = (1, 2, 4, 8, 4):(256, 128, 32, 4, 1); }
/// assert_eq!(box_extents::<f32, Voxels>(), [4, 8, 4, 2, 1]);
/// ```
///
/// A tile that is not a box does not compile:
/// ```compile_fail
/// use tilewright_kernels::tile::box_extents;
/// use tilewright_layout::typed::ColMajor;
/// box_extents::<f32, ColMajor<8, 8>>();
/// ```
pub fn box_extents<T: Scalar, L: StaticLayout>() -> Vec<u32> {
    const { one_box::<T, L>() };
    (0..L::LAYOUT.rank()).rev().map(|mode| L::LAYOUT.extent(mode) as u32).collect()
}

/// A compile error where a tile is not one box of a tensor map.
const fn one_box<T: Scalar, L: StaticLayout>() {
    let layout = L::LAYOUT;
    let rank = L::LAYOUT.rank();
    let mut mode = rank;
    let mut dense = 1;
    let mut fits = rank >= 1 && rank <= 5 && layout.extents().len() == rank && L::SWIZZLE.bits() == 0;
    while mode > 0 {
        mode -= 1;
        let extent = layout.extent(mode);
        fits = fits
            && extent <= 256
            && (extent == 1 || (mode < layout.strides().len() && layout.strides()[mode] == dense));
        dense *= extent;
    }
    if !fits || layout.extent(rank - 1) * T::TY.bits() as i64 % 128 != 0 {
        let message = Message::new().text(
            "a box of a tensor map has 1 to 5 modes of at most 256, row-major, and rows of a multiple of 16 bytes; ",
        );
        panic!("{}", message.text(tilewright_layout::typed::notation::<L>().as_str()).text(" is none").as_str())
    }
}

/// The boxes of a tile; a layout that no tensor map fills does not compile.
pub const fn boxes<T: Scalar, L: StaticLayout>() -> TensorBoxes {
    match Swizzled::new(L::SWIZZLE, 0, L::LAYOUT).tensor_boxes(T::TY.bits() as i64) {
        Ok(boxes) => boxes,
        Err(error) => panic!("{}", error.message().as_str()),
    }
}

/// A share of a tile: its lines divided evenly among the blocks of a cluster.
#[derive(Clone, Copy)]
pub struct Share<'k> {
    /// The index of the part, below `parts`.
    pub part: Index<'k>,
    /// The number of parts.
    pub parts: u32,
}

impl Share<'_> {
    /// The whole tile.
    pub const WHOLE: Share<'static> = Share { part: Index::ZERO, parts: 1 };
}

impl<'k, T: Scalar, L: StaticLayout> LayoutTensor<'k, T, L, Shared> {
    /// Fetches a share of the tile whose first element is at (row, column) of the tensor of `map`,
    /// as bytes for the mbarrier. Elements outside the tensor read as the map's fill value.
    #[track_caller]
    pub fn fetch(
        self,
        map: Ptr<'k, Param, TensorMap>,
        at: [Val<'k, i32>; 2],
        share: Share<'k>,
        barrier: Mbarrier<'k, Shared>,
        how: Bulk<'k>,
    ) {
        self.each_box(const { boxes::<T, L>() }, at, share, &|place, at| place.tensor_load(map, &at, barrier, how));
    }

    /// Writes the tile to (row, column) of the tensor of `map`, in the thread's bulk group. Nothing
    /// is written outside the tensor.
    #[track_caller]
    pub fn send(self, map: Ptr<'k, Param, TensorMap>, at: [Val<'k, i32>; 2]) {
        self.send_boxes(const { boxes::<T, L>() }, map, at);
    }

    /// Allocates the tensor in shared memory, aligned as a box of a tensor map is. A tile that is
    /// not a box does not compile.
    #[track_caller]
    pub fn shared_box(k: &'k Builder, name: &str) -> Self {
        const { one_box::<T, L>() };
        LayoutTensor::new(k.shared_aligned(name, Lowered::<L>::REACH as u32, BOX_ALIGN), L::default())
    }

    /// Fetches the tile as one box, whose first element is at a coordinate of the tensor of `map`,
    /// as bytes for the mbarrier: one number per mode, the last along the map's first axis.
    /// Elements outside the tensor, before it too, read as the map's fill value. Along the last
    /// mode a box begins at a multiple of 16 bytes.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{Bulk, block, record}, ir::Arch};
    /// # use tilewright_kernels::tile::LayoutTensor;
    /// tilewright_layout::layout! { type Voxels = (1, 2, 4, 8, 4):(256, 128, 32, 4, 1); }
    /// # record("sample", Arch::Sm90a, block(32), |k| {
    /// let tile = LayoutTensor::<f32, Voxels, _>::shared_box(k, "tile");
    /// let map = k.tensor_map("x");
    /// let arrived = k.mbarriers("arrived", 1);
    /// tile.fetch_box(map, [0, -1, -1, -1, 0].map(|at| k.lit(at)), arrived, Bulk::default());
    /// # });
    /// ```
    #[track_caller]
    pub fn fetch_box<const R: usize>(
        self,
        map: Ptr<'k, Param, TensorMap>,
        at: [Val<'k, i32>; R],
        barrier: Mbarrier<'k, Shared>,
        how: Bulk<'k>,
    ) {
        const { one_box::<T, L>() };
        self.at([Index::ZERO; R]).tensor_load(map, &axes(at), barrier, how);
    }

    /// Combines the elements of the tensor of `map` from a coordinate on with the tile's, each in
    /// one atomic step, in the thread's bulk group. Nothing is combined outside the tensor.
    #[track_caller]
    pub fn reduce_box<const R: usize>(self, op: AtomOp, map: Ptr<'k, Param, TensorMap>, at: [Val<'k, i32>; R]) {
        const { one_box::<T, L>() };
        self.at([Index::ZERO; R]).tensor_reduce(op, map, &axes(at));
    }
}

impl<'k, T: Scalar, L: OffsetMap> LayoutTensor<'k, T, L, Shared> {
    /// Sends the tile as [`send`](LayoutTensor::send) does, with a layout value and its `boxes`.
    #[track_caller]
    pub(crate) fn send_boxes(self, boxes: TensorBoxes, map: Ptr<'k, Param, TensorMap>, at: [Val<'k, i32>; 2]) {
        self.each_box(boxes, at, Share::WHOLE, &|place, at| place.tensor_store(map, &at));
    }

    #[track_caller]
    fn each_box(
        self,
        boxes: TensorBoxes,
        at: [Val<'k, i32>; 2],
        share: Share<'k>,
        copy: &dyn Fn(Ptr<'k, Shared, T>, [Val<'k, i32>; 2]),
    ) {
        let along = boxes.contiguous;
        let across = 1 - boxes.contiguous;
        let lines = boxes.lines as u32 / share.parts;
        let first = share.part * lines;
        for number in 0..boxes.count as u32 {
            let mut start = [Index::from(0), Index::from(0)];
            start[along] = Index::from(number * boxes.width as u32);
            start[across] = first;
            let shifted = match first.value() {
                Some(value) if first.constant() == 0 => at[across] + value.cast::<i32>(),
                Some(value) => at[across] + (value + first.constant()).cast::<i32>(),
                None => at[across] + first.constant() as i32,
            };
            // A box begins a period of the swizzle: its place before and after the swizzle is the
            // same.
            copy(self.unswizzled(start), [at[along] + (number * boxes.width as u32) as i32, shifted]);
        }
    }
}

/// A coordinate by the axes of a tensor map.
fn axes<const R: usize>(mut at: [Val<'_, i32>; R]) -> [Val<'_, i32>; R] {
    at.reverse();
    at
}
