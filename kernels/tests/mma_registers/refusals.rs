//! What is refused while a kernel is recorded, and in which words.

use crate::recorded;
use half::bf16;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tilewright_codegen::build::Builder;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::verify::verify;
use tilewright_kernels::mma::{AtomLayout, MmaSync, TiledMma, Wgmma};
use tilewright_kernels::tile::{Index, LayoutTensor, RegisterTensor};
use tilewright_layout::typed::{KMajor, OperandTile, RowMajor};

/// `verify` says so of a kernel of so many threads.
fn refused(threads: u32, what: &str, body: impl FnOnce(&Builder)) {
    let errors = verify(recorded(Arch::Sm90a, threads, body)).expect_err("it is refused").to_string();
    assert!(errors.contains(what), "{errors}");
}

/// Nothing is refused.
fn accepted(threads: u32, body: impl FnOnce(&Builder)) {
    if let Err(errors) = verify(recorded(Arch::Sm90a, threads, body)) {
        panic!("{errors}");
    }
}

/// What recording panics with.
fn refusal(threads: u32, body: impl FnOnce(&Builder)) -> String {
    let result = catch_unwind(AssertUnwindSafe(|| recorded(Arch::Sm90a, threads, body)));
    match result {
        Ok(_) => panic!("it was recorded"),
        Err(text) => text.downcast_ref::<String>().cloned().unwrap_or_default(),
    }
}

type Tile = OperandTile<KMajor, 16, 128, 64>;

#[test]
fn a_grid_with_more_threads_than_the_block_is_refused() {
    type Warps<'k> = TiledMma<'k, MmaSync<bf16>, Tile, Tile, AtomLayout<2, 2>>;
    type Groups<'k> = TiledMma<'k, Wgmma<bf16>, Tile, Tile, AtomLayout<2, 1>>;
    refused(96, "128 threads of 2 by 2 warps: the block has 96; launch 128, or take a smaller AtomLayout", |k| {
        _ = Warps::new(k)
    });
    refused(64, "256 threads of 2 by 1 warpgroups: the block has 64; launch 256, or take a smaller AtomLayout", |k| {
        _ = Groups::new(k)
    });
    accepted(128, |k| _ = Warps::new(k));
    // More than are needed may do something else.
    accepted(384, |k| _ = Groups::new(k));
}

#[test]
fn numbers_of_warps_that_cannot_make_up_the_grid_are_refused() {
    type Mma<'k> = TiledMma<'k, MmaSync<bf16>, Tile, Tile, AtomLayout<2, 2>>;
    refused(128, "2 by 2 warps: 2 at most are numbered, not 4; number 4, or take a smaller AtomLayout", |k| {
        _ = Mma::by_warps(k, Index::below(k.warp() % 2, 2))
    });
    refused(128, "number 4 of 2 by 2 warps: numbers are below 4; take one of those, or a larger AtomLayout", |k| {
        _ = Mma::by_warps(k, Index::from(4))
    });
    refused(64, "warpgroups of 128 threads each: the block has 64; launch 128 at least", |k| {
        _ = TiledMma::<Wgmma<bf16>, Tile, Tile>::by_warps(k, Index::from(0))
    });
    accepted(128, |k| _ = Mma::by_warps(k, Index::below(k.warp(), 4)));
    accepted(128, |k| _ = Mma::by_warps(k, Index::any(k.warp())));
    accepted(128, |k| _ = Mma::by_warps(k, Index::from(3)));
}

/// Records the product of an operand that begins so many elements into an allocation, at a row of its tile.
fn issued(align: u32, padding: u32, row: u32) -> impl FnOnce(&Builder) {
    move |k| {
        let memory = k.shared_aligned::<bf16>("operands", 3 * 128 * 64, align);
        let [a, b] = [padding, 128 * 64 + 1024].map(|start| LayoutTensor::new(memory.at(start), Tile::default()));
        let a = a.begun_at([Index::from(row), Index::from(0)]);
        let product = TiledMma::<Wgmma<bf16>, Tile, Tile, AtomLayout<2, 1>>::new(k);
        product.issue(a, b, false);
        product.wait_group(0);
    }
}

#[test]
fn an_operand_beside_its_swizzles_period_is_refused() {
    let beside = "wgmma operand 128 bytes beside a multiple of 1024, where its swizzle repeats; begin it at one, with tiles of \
                  whole atoms";
    refused(256, beside, issued(1024, 64, 0));
    refused(256, beside, issued(1024, 0, 1));
    refused(
        256,
        "wgmma operand in `operands`: the allocation is aligned to 128 bytes, the swizzle repeats every 1024; align it to 1024",
        issued(128, 0, 0),
    );
    accepted(256, issued(1024, 512, 0));
    accepted(256, issued(1024, 0, 8));
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
