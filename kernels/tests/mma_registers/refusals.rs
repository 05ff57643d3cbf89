//! Refusals while a kernel is recorded, with their texts.

use crate::recorded;
use half::bf16;
use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::{self, Arg, Launch, Memory, Outcome};
use tilewright_codegen::verify::verify;
use tilewright_kernels::mma::{AtomLayout, MmaSync, SharedOperand, TiledMma, Wgmma, copy_local_to_local};
use tilewright_kernels::tile::{Index, LayoutTensor, Modes, RegisterTensor, ThreadGroup};
use tilewright_layout::fragment::{FragmentA, FragmentC, atoms};
use tilewright_layout::typed::{ColMajor, KMajor, OperandTile, RowMajor};

/// `verify` refuses a kernel of `threads` threads with these words.
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
    // More than are needed may do something else, where those that multiply are numbered.
    accepted(384, |k| k.when(k.warp().lt(8), || _ = Groups::by_warps(k, Index::below(k.warp() / 4, 2))));
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

/// Records the product of an operand that begins `padding` elements into an allocation, at a row of
/// its tile.
fn issued(align: u32, padding: u32, row: u32) -> impl FnOnce(&Builder) {
    move |k| {
        let memory = k.shared_aligned::<bf16>("operands", 3 * 128 * 64, align);
        let [a, b] = [padding, 128 * 64 + 1024].map(|start| LayoutTensor::new(memory.at(start), Tile::default()));
        let a = a.sub_tile_at([Index::from(row), Index::from(0)]);
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

type Narrow = OperandTile<KMajor, 16, 16, 32>;
type C = FragmentC<atoms::SM80_16x8x16_F32BF16BF16F32_TN>;
type A = FragmentA<atoms::SM80_16x8x16_F32BF16BF16F32_TN>;

/// A register tensor of 4×8.
fn tensor(k: &Builder) -> RegisterTensor<'_, f32, RowMajor<4, 8>> {
    RegisterTensor::zeros(k)
}

#[test]
fn a_coordinate_that_no_register_has_is_refused() {
    refused(32, "index 4 of mode 0: its extent is 4; count from 0 and stay below", |k| _ = tensor(k).get([4, 0]));
    refused(32, "index 2 of mode 0: its extent is 2;", |k| _ = tensor(k).tile::<2, 4>([2, 0]));
    refused(32, "index 4 of mode 0: its extent is 4;", |k| _ = tensor(k).row(4));
    refused(32, "index 8 of mode 1: its extent is 8;", |k| _ = tensor(k).column(8));
    accepted(32, |k| _ = tensor(k).tile::<2, 4>([1, 1]).row(1).get([3]));
}

#[test]
fn registers_and_memory_of_different_shapes_are_refused() {
    type Registers<'k> = RegisterTensor<'k, f32, RowMajor<4, 8>>;
    refused(32, "copy of 8×4 elements to 4×8: the extents differ; take tiles of the same extents", |k| {
        _ = Registers::load_from(LayoutTensor::new(k.shared::<f32>("tile", 32), RowMajor::<8, 4>::default()));
    });
    refused(32, "copy of 4×8 elements to 8×4: the extents differ; take tiles of the same extents", |k| {
        let memory = LayoutTensor::new(k.shared::<f32>("tile", 32), RowMajor::<8, 4>::default());
        Registers::zeros(k).store_to(memory);
    });
    refused(32, "extent of mode 0: a copy needs it while recording; take a tile, whose extents are constants", |k| {
        let rows = k.param::<u32>("rows");
        _ = Registers::load_from(LayoutTensor::new(k.global("x"), Modes::row_major([rows.into(), 8.into()], 8u32)));
    });
}

#[test]
fn registers_at_a_run_time_coordinate_are_refused() {
    refused(
        32,
        "register at a coordinate known at run time: registers have no address; copy a thread's own part",
        |k| {
            let tile = LayoutTensor::<f32, RowMajor<16, 32>, _>::shared(k, "tile");
            ThreadGroup::warp(k).copy(RegisterTensor::<f32, RowMajor<16, 32>>::fill(k, 0.0), tile);
        },
    );
}

#[test]
fn fragments_of_another_shape_or_order_of_memory_are_refused() {
    refused(32, "tile of 8×16: the operand has 16×8; take a tile of its extents", |k| {
        let memory = LayoutTensor::new(k.global::<f32>("c"), RowMajor::<8, 16>::default());
        _ = RegisterTensor::<f32, C>::load_fragment(Index::lane(k), memory);
    });
    let neighbours =
        "register of 2 neighbours of a row: memory has 1 side by side; take rows that are contiguous, or ldmatrix";
    refused(32, neighbours, |k| {
        let memory = LayoutTensor::new(k.global::<bf16>("a"), ColMajor::<16, 16>::default());
        RegisterTensor::<u32, A>::zeros(k).store_fragment(Index::lane(k), memory);
    });
}

#[test]
fn values_of_other_rows_than_a_thread_holds_are_refused() {
    let rows = "1 values for rows: a thread holds parts of 2; give one for each";
    refused(32, rows, |k| {
        let sums = RegisterTensor::<f32, C>::zeros(k);
        _ = sums.zip_rows(&sums.reduce_across(|a, b| a + b)[..1], |value, sum| value - sum);
    });
}

#[test]
fn parts_of_sums_that_there_are_not_are_refused() {
    type Product<'k> = TiledMma<'k, MmaSync<bf16>, Tile, Narrow32>;
    type Narrow32 = OperandTile<KMajor, 16, 16, 64>;
    refused(32, "rows 7 to 9 of atoms: the sums have 8; take rows below that", |k| {
        _ = Product::new(k).sums().rows_of_atoms(7, 2)
    });
    refused(32, "step 4 of K: the tiles hold 4; count from 0 and stay below", |k| {
        _ = Product::new(k).load_b(LayoutTensor::shared(k, "b"), 4)
    });
    refused(32, "1 fragments of A: the sums have 8 atoms along it; give one for each", |k| {
        let a = LayoutTensor::shared(k, "a");
        let b = LayoutTensor::shared(k, "b");
        Product::new(k).mma(&Product::new(k).load_a(a, 0)[..1], &Product::new(k).load_b(b, 0));
    });
    refused(32, "1 fragments of B: the sums have 2 atoms along it; give one for each", |k| {
        let a = LayoutTensor::shared(k, "a");
        let b = LayoutTensor::shared(k, "b");
        Product::new(k).mma(&Product::new(k).load_a(a, 0), &Product::new(k).load_b(b, 0)[..1]);
    });
    refused(128, "1 fragments of A: the sums have 2 atoms along it; give one for each", |k| {
        let sums = TiledMma::<Wgmma<bf16>, Tile, Narrow32>::new(k).sums();
        let a = sums.load_a::<bf16, _>(Index::thread(k), LayoutTensor::<_, Tile, _>::shared(k, "a"), 0.into(), 4);
        let a: Vec<_> = a.into_iter().map(|step| step[..1].to_vec()).collect();
        sums.wgmma_registers::<bf16, _>(
            &a,
            SharedOperand::new(LayoutTensor::<bf16, Narrow32, _>::shared(k, "b")),
            false,
        );
    });
    refused(128, "sums of atoms of 16×8, 2 across: no wgmma has them; take those of warpgroup_atom", |k| {
        let b = SharedOperand::new(LayoutTensor::<bf16, Narrow32, _>::shared(k, "b"));
        Product::new(k).sums().wgmma::<bf16>(b, b, 1, false);
    });
}

#[test]
fn an_operand_of_more_columns_than_the_sums_have_is_an_error() {
    recorded(Arch::Sm80, 32, |k| {
        let scores = [RegisterTensor::<f32, C>::zeros(k), RegisterTensor::zeros(k)];
        let error = copy_local_to_local::<bf16, _, A>(&scores, 8).err().expect("it is refused");
        let wanted =
            "columns up to 24 of the accumulators: they have 16; take columns below that, or give more of them";
        assert_eq!(error.to_string(), wanted);
    });
}

#[test]
fn a_tile_of_other_extents_than_the_products_is_refused() {
    refused(32, "tile of 16×32: D has 16×16; take a tile of its extents", |k| {
        let product = TiledMma::<MmaSync<bf16>, Narrow, Narrow>::new(k);
        product.store_d(LayoutTensor::new(k.global::<f32>("d"), RowMajor::<16, 32>::default()));
    });
    refused(32, "tile of _×16: D has 16×16; take a tile of its extents", |k| {
        let m = k.param::<u32>("m");
        let whole = LayoutTensor::new(k.global::<f32>("d"), Modes::row_major([m.into(), 16.into()], 16u32));
        TiledMma::<MmaSync<bf16>, Narrow, Narrow>::new(k).store_d(whole);
    });
    refused(32, "tile of 8×8: the accumulator has 16×16; take a tile of its extents", |k| {
        let sums = TiledMma::<MmaSync<bf16>, Narrow, Narrow>::new(k).sums();
        sums.store_d(Index::lane(k), LayoutTensor::<f32, RowMajor<8, 8>, _>::shared(k, "d"));
    });
}

/// A grid of fewer threads than the block has would leave warps that compute outside the tile:
/// refused where the product is made. By the numbers of the warps that multiply, it is accepted.
#[test]
fn a_grid_of_fewer_threads_than_the_block_is_refused() {
    type Narrow32 = OperandTile<KMajor, 16, 32, 64>;
    let idle = "64 threads of 2 by 1 warps: the block has 128, and the others would compute outside the tile; launch 64, take \
                a larger AtomLayout, or number the warps by_warps";
    refused(128, idle, |k| _ = TiledMma::<MmaSync<bf16>, Tile, Narrow32, AtomLayout<2, 1>>::new(k));
    accepted(64, |k| _ = TiledMma::<MmaSync<bf16>, Tile, Narrow32, AtomLayout<2, 1>>::new(k));
    accepted(128, |k| {
        k.when(k.warp().lt(2), || {
            TiledMma::<MmaSync<bf16>, Tile, Narrow32, AtomLayout<2, 1>>::by_warps(k, Index::below(k.warp(), 2));
        });
    });
}

/// Faults inside the library's functions are at the author's line, which the report names once,
/// and nothing of the library's source is named.
#[test]
fn a_fault_inside_multiply_store_d_and_wait_group_names_the_authors_line() {
    let run = |name: &str, arch: Arch, threads: u32, body: &dyn Fn(&Builder)| {
        let verified = verify(record(name, arch, block(threads), body)).unwrap_or_else(|errors| panic!("{errors}"));
        let mut memory = Memory::new();
        let d = memory.upload("d", &[0f32; 1]);
        let fault = match sim::run(&verified, &Launch::new([1, 1, 1], vec![Arg::Ptr(d)]), &mut memory, 1)
            .expect("it launches")
        {
            Outcome::Fault(fault) => fault,
            Outcome::Finished(_) => panic!("{name}: a fault"),
        };
        let report = fault.to_string();
        assert!(fault.at.src.file().ends_with("refusals.rs"), "{report}");
        assert_eq!(report.matches("refusals.rs").count(), 1, "{report}");
        assert!(!report.contains("src/"), "{report}");
    };
    // Tiles in shared memory that no thread has written.
    run("multiply", Arch::Sm80, 32, &|k| {
        let a = LayoutTensor::shared(k, "a");
        let b = LayoutTensor::shared(k, "b");
        k.global::<f32>("d");
        TiledMma::<MmaSync<bf16>, Narrow, Narrow>::new(k).multiply(a, b);
    });
    // A result larger than its buffer.
    run("store_d", Arch::Sm80, 32, &|k| {
        let d = LayoutTensor::new(k.global::<f32>("d"), RowMajor::<16, 16>::default());
        TiledMma::<MmaSync<bf16>, Narrow, Narrow>::new(k).store_d(d);
    });
    // Tiles that no thread has written again: a warpgroup's product reads them while it is waited
    // for.
    run("wait_group", Arch::Sm90a, 128, &|k| {
        let a = LayoutTensor::shared(k, "a");
        let b = LayoutTensor::shared(k, "b");
        k.global::<f32>("d");
        let product = TiledMma::<Wgmma<bf16>, Tile, Tile>::new(k);
        product.issue(a, b, false);
        product.wait_group(0);
    });
}
