//! A side on the device.

use super::CopySide;
use crate::tile::{AsyncFrom, CopyTo, Index, LayoutTensor, Modes};
use tilewright_codegen::build::{Builder, Global, Ptr, Scalar, SpaceOf};
use tilewright_layout::typed::StaticLayout;
use tilewright_layout::view::{OffsetMap, Split};
use tilewright_layout::{Layout, Swizzled, Tiler};

/// A tile in global memory and its parts, whatever its layout.
pub trait GlobalSide<'k, T>: AsyncFrom<'k, Scalar = T> + CopyTo<'k, Scalar = T> + Copy {
    /// The elements of this thread, of a number of threads down and across.
    fn dealt(self, owners: [usize; 2], k: &'k Builder) -> Self;

    /// Part (row, column) of a size.
    fn part(self, extents: [usize; 2], at: [Index<'k>; 2]) -> Self;
}

impl<'k, T: Scalar> GlobalSide<'k, T> for LayoutTensor<'k, T, Swizzled, Global> {
    #[track_caller]
    fn dealt(self, owners: [usize; 2], k: &'k Builder) -> Self {
        dealt(self, owners, k)
    }

    #[track_caller]
    fn part(self, extents: [usize; 2], at: [Index<'k>; 2]) -> Self {
        self.tile_by(&tiler(extents), at)
    }
}

impl<'k, T: Scalar> GlobalSide<'k, T> for LayoutTensor<'k, T, Modes<'k, 2>, Global> {
    #[track_caller]
    fn dealt(self, owners: [usize; 2], k: &'k Builder) -> Self {
        self.distribute_by(&threads(owners), Index::thread(k))
    }

    #[track_caller]
    fn part(self, extents: [usize; 2], at: [Index<'k>; 2]) -> Self {
        self.clipped_tile(extents.map(|extent| extent as u32), at)
    }
}

/// The elements of a tile that belong to this thread, of a number of threads down and across.
#[track_caller]
pub fn dealt<'k, T: Scalar, L: OffsetMap, S: SpaceOf>(
    tile: LayoutTensor<'k, T, L, S>,
    owners: [usize; 2],
    k: &'k Builder,
) -> LayoutTensor<'k, T, Swizzled, S> {
    tile.distribute_by(&threads(owners), Index::thread(k))
}

/// Threads numbered along rows first.
fn threads([down, across]: [usize; 2]) -> Layout {
    tuple(&[(down as u32, across as u32), (across as u32, 1)])
}

fn tiler(extents: [usize; 2]) -> Tiler {
    Tiler::by_mode(&extents.map(|extent| Tiler::extent(extent as i64))).expect("two extents")
}

/// The layout of these extents and strides.
fn tuple(modes: &[(u32, u32)]) -> Layout {
    let leaf = |&(extent, stride): &(u32, u32)| Layout::leaf(extent.into(), stride.into()).expect("a mode");
    Layout::tuple(&modes.iter().map(leaf).collect::<Vec<_>>()).expect("few modes")
}

impl CopySide {
    /// The tile at a place of a tensor that lies in memory as `P`, transposed.
    #[track_caller]
    pub(super) fn typed<'k, T: Scalar, P: StaticLayout, const M: usize, const N: usize>(
        &self,
        memory: Ptr<'k, Global, T>,
        place: [Index<'k>; 2],
    ) -> LayoutTensor<'k, T, Swizzled, Global> {
        LayoutTensor::new(memory, P::default()).transpose().tile::<M, N>(place).permute([0, 1])
    }

    /// A view of memory under a layout that is a value.
    #[track_caller]
    pub(super) fn value<'k, T: Scalar>(
        &self,
        memory: Ptr<'k, Global, T>,
        told: &[Index<'k>; 8],
        place: [Index<'k>; 2],
        tile: [usize; 2],
    ) -> LayoutTensor<'k, T, Swizzled, Global> {
        let whole = tuple(&[0, 1, 2].map(|mode| (self.extents[mode], self.strides[mode])));
        let view = LayoutTensor::new(memory, whole).permute(self.order).slice(self.sliced(told));
        let tile_of = view.split(self.parts(), told[7]).tile_by(&tiler(tile), place);
        let [m, n] = tile.map(|extent| extent as u32);
        // Even columns first.
        let columns = tuple(&[(n / 2, 2 * m), (2, m)]);
        let order = Layout::tuple(&[Layout::leaf(m.into(), 1).expect("rows"), columns]).expect("two modes");
        if self.composed { tile_of.compose(&order) } else { tile_of }
    }

    /// A view of memory under modes, some of which are parameters of the kernel.
    #[track_caller]
    pub(super) fn modes<'k, T: Scalar>(
        &self,
        memory: Ptr<'k, Global, T>,
        told: &[Index<'k>; 8],
        place: [Index<'k>; 2],
        tile: [usize; 2],
    ) -> LayoutTensor<'k, T, Modes<'k, 2>, Global> {
        let stride = |mode: usize| if self.strides[mode] == 1 { 1.into() } else { told[3 + mode] };
        let whole = Modes::new([told[0], told[1], told[2]], [0, 1, 2].map(stride)).vectors(self.promise);
        let view = LayoutTensor::new(memory, whole).permute(self.order).slice(self.sliced(told));
        view.split(self.parts(), told[7]).clipped_tile(tile.map(|extent| extent as u32), place)
    }

    fn sliced<'k>(&self, told: &[Index<'k>; 8]) -> [Option<Index<'k>>; 3] {
        core::array::from_fn(|mode| (mode == self.slice.0).then_some(told[6]))
    }

    fn parts(&self) -> Split {
        Split { mode: self.split.0, parts: self.split.1 as usize, multiple: self.multiple as usize }
    }
}
