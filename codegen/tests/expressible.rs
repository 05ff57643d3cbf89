//! A persistent decode kernel in small: the pattern that the analyses must accept.
//!
//! Blocks walk a table of tasks copied to shared memory. One warp streams weights through a ring
//! that runs ahead across task boundaries; the others wait for the phase before by a counter,
//! multiply by `mma.sync`, and publish.

use half::bf16;
use tilewright_codegen::assemble::Ptxas;
use tilewright_codegen::build::{Builder, Bulk, Global, Ptr, Val, Var, block, record};
use tilewright_codegen::ir::attr::{AtomOp, Eviction, RedOrder, Scope};
use tilewright_codegen::ir::{Arch, MmaAtom};
use tilewright_codegen::ptx;
use tilewright_codegen::verify::verify;

const STAGES: u32 = 6;
const STAGE: u32 = 16384;
const WARPS: u32 = 8;
/// A task: address of the weights (u64), tiles, stages a tile, phase, output row (u32 each), 24
/// bytes padded to 32.
const TASK: u32 = 32;
const MOST: u32 = 64;

struct Cursor<'k> {
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
}

impl<'k> Cursor<'k> {
    fn advance(&self) {
        let next = self.stage.get() + 1;
        let wraps = next.eq(STAGES);
        self.stage.set(wraps.select::<u32>(0u32, next));
        self.parity.set(self.parity.get() ^ wraps.select::<u32>(1u32, 0u32));
    }
}

fn decode<'k>(k: &'k Builder) {
    let tasks = k.global::<u32>("tasks");
    let counts = k.global::<u32>("counts");
    let counters = k.global::<u32>("counters");
    let wanted = k.param::<u32>("wanted");
    let x = k.global::<bf16>("x");
    let out = k.global::<f32>("out");
    let ring = k.shared_aligned::<bf16>("ring", STAGES * STAGE / 2, 128);
    let full = k.mbarriers("full", STAGES);
    let empty = k.mbarriers("empty", STAGES);
    let table = k.shared::<u32>("table", MOST * TASK / 4);
    let sums = k.shared::<f32>("sums", WARPS * 8);
    let count = counts.at(k.block_id()).load();

    k.for_(0, count, |task| {
        k.when(k.tid().lt(TASK / 4), || {
            let from = (k.block_id() * MOST + task) * (TASK / 4);
            table.at(task * (TASK / 4) + k.tid()).store(tasks.at(from + k.tid()).load());
        });
    });
    k.when(k.tid().eq(0), || {
        for stage in 0..STAGES {
            full.at(stage).init(1);
            empty.at(stage).init(WARPS);
        }
        k.fence_mbarrier_init();
    });
    k.barrier();

    let field = |task: Val<'k, u32>, word: u32| table.at(task * (TASK / 4) + word).load();
    let cursor = |parity| Cursor { stage: k.var(0u32), parity: k.var::<u32>(parity) };
    let produce = || {
        let at = cursor(1u32);
        let policy = k.policy(Eviction::First);
        k.for_(0, count, |task| {
            let weights: Ptr<'_, Global, bf16> = table.at(task * (TASK / 4)).cast::<u64>().load().to_global();
            k.for_(0, field(task, 2) * field(task, 3), |piece| {
                empty.at(at.stage.get()).wait(at.parity);
                let bar = full.at(at.stage.get());
                bar.arrive_expect_tx(STAGE);
                let to = ring.at(at.stage.get() * (STAGE / 2));
                to.bulk_load(weights.at(piece * (STAGE / 2)), STAGE, bar, Bulk::default().policy(policy));
                at.advance();
            });
        });
    };
    let consume = || {
        let at = cursor(0u32);
        k.for_(0, count, |task| {
            let tiles = field(task, 2);
            let stages = field(task, 3);
            let phase = field(task, 4);
            let row = field(task, 5);
            k.when(phase.gt(0), || {
                k.when(k.tid().eq(0), || {
                    k.loop_(|| k.break_if(counters.at(phase - 1).load_acquire(Scope::Gpu).ge(wanted)));
                });
                k.bar_sync(1, WARPS * 32);
            });
            let a = x.at(k.lane() * 8).cast::<u32>().load_vec::<4>();
            k.for_(0, tiles, |tile| {
                let acc = k.regs(4, 0.0f32);
                k.for_(0, stages, |_| {
                    full.at(at.stage.get()).wait(at.parity);
                    let mine = ring.at(at.stage.get() * (STAGE / 2) + k.tid() * 8);
                    for q in 0..4 {
                        let b = mine.at(q * WARPS * 256).cast::<u32>().load_vec::<4>();
                        acc.mma(MmaAtom::M16N8K16_F32_BF16_BF16, &a, &b[..2]);
                        acc.mma(MmaAtom::M16N8K16_F32_BF16_BF16, &a, &b[2..]);
                    }
                    k.sync_warp();
                    k.when(k.lane().eq(0), || empty.at(at.stage.get()).arrive());
                    at.advance();
                });
                k.when(k.lane().lt(4), || {
                    sums.at(k.warp() * 8 + k.lane() * 2).store_vec([acc.get(0), acc.get(1)]);
                });
                k.bar_sync(1, WARPS * 32);
                k.when(k.tid().lt(8), || {
                    let total = (0..WARPS).map(|w| sums.at(k.tid()).at(w * 8).load()).reduce(|a, b| a + b);
                    out.at(row + tile * 8 + k.tid()).store(total.unwrap());
                });
                k.bar_sync(1, WARPS * 32);
            });
            k.when(k.tid().eq(0), || counters.at(phase).red(AtomOp::Add, 1, RedOrder::Release(Scope::Gpu)));
        });
    };
    k.if_else(k.warp().lt(WARPS), consume, || k.when(k.lane().eq(0), produce));
}

#[test]
fn a_persistent_decode_kernel_verifies_and_assembles() {
    let launch = block(WARPS * 32 + 32).min_blocks(1).cooperative();
    for arch in [Arch::Sm90a, Arch::Sm100a, Arch::Sm120] {
        let kernel = record("decode", arch, launch.clone(), decode);
        let verified = match verify(kernel) {
            Ok(verified) => verified,
            Err(errors) => panic!("{errors}"),
        };
        let text = ptx::emit(&verified);
        assert!(
            text.contains("cp.async.bulk.shared::cluster.global") && text.contains("red.release.gpu.global.add.u32")
        );
        if let Some(ptxas) = Ptxas::find().unwrap() {
            let said = ptxas.assemble(arch, &text).unwrap_or_else(|error| panic!("{error}"));
            assert!(said.flaws().is_empty(), "{said:?}");
            assert!(said.entries[0].registers <= 128, "{said:?}");
        }
    }
}
