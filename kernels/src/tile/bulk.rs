//! Copies of tiles by tensor map: the boxes follow from the tile's layout, on the device and on the host alike.

use super::{Index, LayoutTensor};
use tilewright_codegen::build::{Bulk, Mbarrier, Param, Ptr, Scalar, Shared, TensorMap, Val};
use tilewright_layout::Swizzled;
use tilewright_layout::swizzle::TensorBoxes;
use tilewright_layout::typed::StaticLayout;
use tilewright_layout::view::OffsetMap;

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
    /// Which part, below `parts`.
    pub part: Index<'k>,
    /// How many parts there are.
    pub parts: u32,
}

impl Share<'_> {
    /// All of it.
    pub const WHOLE: Share<'static> = Share { part: Index::ZERO, parts: 1 };
}

impl<'k, T: Scalar, L: StaticLayout> LayoutTensor<'k, T, L, Shared> {
    /// Fetches a share of the tile whose first element is at (row, column) of the tensor of `map`, as bytes for the
    /// mbarrier. What lies outside the tensor reads as the map says.
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

    /// Writes the tile to (row, column) of the tensor of `map`, in the thread's bulk group. Nothing is written outside
    /// the tensor.
    #[track_caller]
    pub fn send(self, map: Ptr<'k, Param, TensorMap>, at: [Val<'k, i32>; 2]) {
        self.send_boxes(const { boxes::<T, L>() }, map, at);
    }
}

impl<'k, T: Scalar, L: OffsetMap> LayoutTensor<'k, T, L, Shared> {
    /// As [`send`](LayoutTensor::send), where the layout is a value and `boxes` are its own.
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
        let (along, across) = (boxes.contiguous, 1 - boxes.contiguous);
        let lines = boxes.lines as u32 / share.parts;
        let first = share.part * lines;
        for number in 0..boxes.count as u32 {
            let mut start = [Index::from(0), Index::from(0)];
            start[along] = Index::from(number * boxes.width as u32);
            start[across] = first;
            let shifted = match first.value() {
                Some(value) => at[across] + value.cast::<i32>(),
                None => at[across] + first.constant() as i32,
            };
            // A box begins a period of the swizzle: its place before and behind the swizzle is the same.
            copy(self.unswizzled(start), [at[along] + (number * boxes.width as u32) as i32, shifted]);
        }
    }
}
