//! What is refused while a kernel is recorded, and in which words.

use crate::recorded;
use half::bf16;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tilewright_codegen::build::Builder;
use tilewright_codegen::ir::Arch;
use tilewright_kernels::mma::{AtomLayout, MmaSync, TiledMma, Wgmma};
use tilewright_kernels::tile::{Index, LayoutTensor, RegisterTensor};
use tilewright_layout::typed::{KMajor, OperandTile, RowMajor};

/// What recording says of a kernel of so many threads.
fn refusal(threads: u32, body: impl FnOnce(&Builder)) -> String {
    let result = catch_unwind(AssertUnwindSafe(|| recorded(Arch::Sm90a, threads, body)));
    match result {
        Ok(_) => panic!("it was recorded"),
        Err(text) => text.downcast_ref::<String>().cloned().unwrap_or_default(),
    }
}

type Tile = OperandTile<KMajor, 16, 128, 64>;
type Warps = TiledMma<'static, MmaSync<bf16>, Tile, Tile, AtomLayout<2, 2>>;

#[test]
fn a_grid_with_more_threads_than_the_block_is_refused() {
    let warps = refusal(96, |k| _ = TiledMma::<MmaSync<bf16>, Tile, Tile, AtomLayout<2, 2>>::new(k));
    assert_eq!(
        warps,
        "tiled mma: 128 threads are needed (2 by 2 warps), and the block has 96; launch 128, or take a smaller AtomLayout"
    );
    let groups = refusal(64, |k| _ = TiledMma::<Wgmma<bf16>, Tile, Tile, AtomLayout<2, 1>>::new(k));
    assert_eq!(
        groups,
        "tiled mma: 256 threads are needed (2 by 1 warpgroups), and the block has 64; launch 256, or take a smaller AtomLayout"
    );
    assert_eq!(Warps::THREADS, 128);
    recorded(Arch::Sm90a, 128, |k| _ = TiledMma::<MmaSync<bf16>, Tile, Tile, AtomLayout<2, 2>>::new(k));
    // More than are needed may do something else.
    recorded(Arch::Sm90a, 384, |k| _ = TiledMma::<Wgmma<bf16>, Tile, Tile, AtomLayout<2, 1>>::new(k));
}

#[test]
fn numbers_of_warps_that_cannot_make_up_the_grid_are_refused() {
    type Mma<'k> = TiledMma<'k, MmaSync<bf16>, Tile, Tile, AtomLayout<2, 2>>;
    let few = refusal(128, |k| _ = Mma::by_warps(k, Index::below(k.warp() % 2, 2)));
    assert_eq!(
        few,
        "tiled mma: the grid is 2 by 2 = 4 warps, and 2 at most are numbered; number 4, or take a smaller AtomLayout"
    );
    let beyond = refusal(128, |k| _ = Mma::by_warps(k, Index::from(4)));
    assert_eq!(
        beyond,
        "tiled mma: number 4 of a grid of 2 by 2 = 4 warps; take numbers below 4, or a larger AtomLayout"
    );
    let none = refusal(64, |k| _ = TiledMma::<Wgmma<bf16>, Tile, Tile>::by_warps(k, Index::from(0)));
    assert_eq!(none, "tiled mma: each of the warpgroups has 128 threads, and the block has 64; launch 128 at least");
    recorded(Arch::Sm90a, 128, |k| _ = Mma::by_warps(k, Index::below(k.warp(), 4)));
    recorded(Arch::Sm90a, 128, |k| _ = Mma::by_warps(k, Index::any(k.warp())));
    recorded(Arch::Sm90a, 128, |k| _ = Mma::by_warps(k, Index::from(3)));
}

/// Records the product of an operand that begins so many elements into an allocation, at a row of its tile.
fn issued(align: u32, padding: u32, row: u32) -> impl FnOnce(&Builder) {
    move |k| {
        let memory = k.shared_aligned::<bf16>("operands", 3 * 128 * 64, align);
        let [a, b] = [padding, 128 * 64 + 1024].map(|start| LayoutTensor::new(memory.at(start), Tile::default()));
        let a = a.begun_at([Index::from(row), Index::from(0)]);
        TiledMma::<Wgmma<bf16>, Tile, Tile, AtomLayout<2, 1>>::new(k).issue(a, b, false);
    }
}

#[test]
fn an_operand_beside_its_swizzles_period_is_refused() {
    let beside = "wgmma: the operand begins 128 bytes beside a multiple of 1024, its swizzle's period; begin it at one, with an \
                  allocation aligned to 1024 bytes and tiles of whole atoms";
    assert_eq!(refusal(256, issued(1024, 64, 0)), beside, "padding before it");
    assert_eq!(refusal(256, issued(1024, 0, 1)), beside, "a row of the tile");
    assert_eq!(
        refusal(256, issued(128, 0, 0)),
        "wgmma: the operand's allocation `operands` is aligned to 128 bytes, and its swizzle's period is 1024; align it to 1024"
    );
    recorded(Arch::Sm90a, 256, issued(1024, 512, 0));
    recorded(Arch::Sm90a, 256, issued(1024, 0, 8));
}

#[test]
fn register_tensors_refuse_what_is_outside_and_other_shapes() {
    let outside = refusal(32, |k| _ = RegisterTensor::<f32, RowMajor<4, 8>>::fill(k, 0.0).get([4, 0]));
    assert_eq!(outside, "register tensor: [4, 0] is outside the extents [4, 8]; take a coordinate below them");
    let shape = refusal(32, |k| {
        let memory = LayoutTensor::new(k.shared::<f32>("tile", 32), RowMajor::<8, 4>::default());
        _ = RegisterTensor::<f32, RowMajor<4, 8>>::load_from(memory);
    });
    assert_eq!(shape, "register tensor: its extents are [4, 8], the memory's [8, 4]; take a tile of its shape");
}
