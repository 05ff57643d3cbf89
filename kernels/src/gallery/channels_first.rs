//! Voxels from channels last to channels first, padded: a box of a tensor map of five axes a block.

use crate::tile::prelude::*;
use tilewright_codegen::build::Bulk;
use tilewright_layout::layout;
use tilewright_layout::typed::StaticLayout;

layout! {
    /// `D`×`H`×`W` voxels of one image with `C` channels each, channels fastest: a box.
    pub type Voxels<const D: usize, const H: usize, const W: usize, const C: usize> =
        (1, D, H, W, C):(D * H * W * C, H * W * C, W * C, C, 1);
}

/// `y[n, c, d, h, w] = x[n, d − p, h − p, w − p, c]`, zero where x has no such voxel; a tile `L` of
/// [`Voxels`] with all their channels a block. Parameters: `images`, `depth`, `height`, `width` of
/// y; y's strides `image`, `channel`, `plane`, `row`; `p`; a tensor map `x` of (n, d, h, w, c) with
/// boxes of the tile; `y` (f32).
pub fn channels_first<L: StaticLayout>(k: &Builder) {
    let [images, depth, height, width] = ["images", "depth", "height", "width"].map(|name| k.param::<u32>(name));
    let [image, channel, plane, row] = ["image", "channel", "plane", "row"].map(|name| k.param::<u32>(name).into());
    let pad = k.param::<u32>("p").cast::<i32>();
    let x = k.tensor_map("x");
    let size: [u32; 5] = core::array::from_fn(|mode| L::LAYOUT.extent(mode) as u32);
    // The number of channels is known here; the other extents, and four strides of five, are known
    // at run time.
    let extents = [images.into(), size[4].into(), depth.into(), height.into(), width.into()];
    let y = LayoutTensor::new(k.global::<f32>("y"), Modes::new(extents, [image, channel, plane, row, 1.into()]));
    let y = y.permute([0, 2, 3, 4, 1]);

    // The block's tile, by its number along each mode.
    let mut number = k.block_id();
    let mut place = [Index::ZERO; 5];
    for mode in [3, 2, 1] {
        let tiles = (y.extents()[mode].get(k) + (size[mode] - 1)) / size[mode];
        place[mode] = Index::any(number % tiles);
        number /= tiles;
    }
    place[0] = Index::any(number);

    let tile = LayoutTensor::<f32, L, _>::shared_box(k, "tile");
    let arrived = k.mbarriers("arrived", 1);
    k.when(k.tid().eq(0), || {
        arrived.init(1);
        k.fence_mbarrier_init();
        arrived.arrive_expect_tx(size.iter().product::<u32>() * 4);
        let first = |mode: usize| (place[mode] * size[mode]).get(k).cast::<i32>();
        let at = [first(0), first(1) - pad, first(2) - pad, first(3) - pad, k.lit(0)];
        tile.fetch_box(x, at, arrived, Bulk::default());
    });
    k.barrier();
    arrived.wait(0);
    ThreadGroup::block(k).copy(tile, y.clipped_tile(size, place));
}
