//! Invalid twins of the rules in `verify/launch`.

use crate::edited;
use insta::assert_snapshot;
use tilewright_codegen::build::block;
use tilewright_codegen::ir::{Arch, ParamKind, Ty};

#[test]
fn a_block_has_at_most_1024_threads() {
    let said = edited(Arch::Sm80, block(64), |k| k.barrier(), |kernel| kernel.launch.threads = [1025, 1, 1]);
    assert_snapshot!(said, @"threads per block is 1025: sm_80 allows 1 to 1024 threads");
}

#[test]
fn shared_memory_fits_the_target() {
    let said = edited(Arch::Sm80, block(64), |k| _ = k.shared::<u32>("s", 40 << 10), |kernel| kernel.arch = Arch::Sm89);
    assert_snapshot!(said, @"shared memory per block is 163840: sm_89 allows 0 to 101376 bytes");
}

#[test]
fn a_cluster_is_one_that_every_device_grants() {
    let said = edited(Arch::Sm90a, block(64).cluster(8), |_| {}, |kernel| kernel.launch.cluster = [8, 2, 1]);
    assert_snapshot!(said, @"blocks per cluster is 16: sm_90a allows 1 to 8 blocks");
}

#[test]
fn a_parameter_is_storable() {
    let said = edited(
        Arch::Sm90a,
        block(64),
        |k| _ = k.param::<u32>("n"),
        |kernel| {
            kernel.params[0].kind = ParamKind::Value(Ty::Pred);
            kernel.body.clear();
        },
    );
    assert_snapshot!(said, @"parameter `n` cannot be passed: pass a number of at least 8 bits, a global pointer, a structure aligned to at most 16 bytes, or a tensor map");
}

#[test]
fn a_kernel_has_the_name_of_an_entry_point() {
    let said = edited(Arch::Sm80, block(32), |_| {}, |kernel| kernel.name = "my kernel".into());
    assert_snapshot!(said, @"name `my kernel` cannot name an entry point: use letters, digits and underscores, a letter first");
}

#[test]
fn allocations_lie_one_behind_the_other() {
    let said = edited(
        Arch::Sm80,
        block(32),
        |k| _ = (k.shared::<u32>("a", 8), k.shared::<u32>("b", 8), k.shared::<u32>("c", 8)),
        |kernel| {
            kernel.shared[1].offset = 16;
            kernel.shared[2].align = 24;
        },
    );
    assert_snapshot!(said, @"
    allocation `b` at byte 16 is misplaced: align it to a power of two up to 1024, after the one before
    allocation `c` at byte 64 is misplaced: align it to a power of two up to 1024, after the one before
    ");
}
