//! A kernel for each kind of fault that no other family has.

use super::{Io, Plant, plant};
use tilewright_codegen::build::Bulk;
use tilewright_codegen::ir::attr::{AtomOp, BarScope, RedOrder, Scope, ShflMode};

pub fn plants() -> Vec<Plant> {
    let blocks = |plant: Plant, blocks| Plant { blocks, ..plant };
    vec![
        plant("mbarrier_never_initialised", 32, mbarrier_never_initialised, "no mbarrier"),
        plant("mbarrier_bytes_pile_up", 32, mbarrier_bytes_pile_up, "too many bytes"),
        plant("mbarrier_ends_under_a_copy", 32, mbarrier_ends_under_a_copy, "mbarrier in use"),
        plant("shuffle_mask_without_self", 32, shuffle_mask_without_self, "lane not in mask"),
        plant("shuffle_names_exited_lanes", 32, shuffle_names_exited_lanes, "exited lanes"),
        plant("shuffle_names_absent_lanes", 32, shuffle_names_absent_lanes, "divergent warp"),
        blocks(plant("sum_of_narrow_scope", 32, sum_of_narrow_scope, "race of scopes"), 2),
    ]
}

fn mbarrier_never_initialised(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let ready = k.mbarriers("ready", 2);
    k.when(k.tid().eq(0), || {
        ready.at(0).init(1);
        ready.at(1).init(1);
        if wrong {
            ready.at(1).inval();
        }
        ready.at(1).arrive();
    });
}

fn mbarrier_bytes_pile_up(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let ready = k.mbarriers("ready", 1);
    let half = 1 << 19;
    k.when(k.tid().eq(0), || {
        ready.init(1);
        ready.expect_tx(half);
        ready.expect_tx(if wrong { half } else { half - 1 });
        ready.inval();
    });
}

fn mbarrier_ends_under_a_copy(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared_aligned::<f32>("tile", 32, 128);
    let arrived = k.mbarriers("arrived", 1);
    k.when(k.tid().eq(0), || {
        arrived.init(1);
        k.fence_mbarrier_init();
        arrived.arrive_expect_tx(128);
        tile.bulk_load(io.x, 128, arrived, Bulk::default());
        if wrong {
            arrived.inval();
        } else {
            arrived.wait(0);
        }
    });
}

fn shuffle_mask_without_self(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let lanes = if wrong { 17 } else { 16 };
    k.when(k.lane().lt(lanes), || {
        let other = k.lane().shfl(ShflMode::Bfly, 1, 32, 0xffff);
        io.out.at(k.lane()).store(other.cast::<f32>());
    });
}

fn shuffle_names_exited_lanes(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    k.when(k.lane().ge(16), || k.exit());
    let mask = if wrong { 0x1_ffff } else { 0xffff };
    let other = k.lane().shfl(ShflMode::Bfly, 1, 32, mask);
    io.out.at(k.lane()).store(other.cast::<f32>());
}

fn shuffle_names_absent_lanes(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let mask = if wrong { u32::MAX } else { 0xffff };
    let low = || {
        let other = k.lane().shfl(ShflMode::Bfly, 1, 32, mask);
        io.out.at(k.lane()).store(other.cast::<f32>());
    };
    // The other lanes wait for what these lanes do only afterwards.
    let ready = k.mbarriers("ready", 1);
    k.when(k.tid().eq(0), || ready.init(1));
    k.barrier();
    k.if_else(
        k.lane().lt(16),
        || {
            low();
            k.when(k.lane().eq(0), || ready.arrive());
        },
        || k.while_(|| !ready.test_wait(0, BarScope::Cta), || {}),
    );
}

fn sum_of_narrow_scope(io: &Io<'_>, wrong: bool) {
    let scope = if wrong { Scope::Cta } else { Scope::Gpu };
    io.k.when(io.k.tid().eq(0), || io.flags.red(AtomOp::Add, 1, RedOrder::Relaxed(scope)));
}
