//! `c = a·bᵀ`: a is 64×K, b is 128×K, both bf16 with K contiguous and a multiple of 64, c is 64×128
//! in f32.
//!
//! Warpgroup 0 multiplies and takes the registers; warpgroup 1 gives them up, and one of its
//! threads fetches tiles of 64 columns by tensor map (128-byte swizzle) through a ring of three
//! stages.

use super::cursor::StageCursor;
use super::wgmma_tile::{ATOM, ROWS_OF_128, store_fragment};
use crate::build::{Builder, Bulk, WgmmaOperands};
use half::bf16;

const STAGES: u32 = 3;
const A: u32 = 64 * 64;
const B: u32 = 128 * 64;

/// Parameters: K / 64, tensor maps of a\[64, K\] and b\[128, K\], c\[64, 128\].
pub fn specialised(k: &Builder) {
    let steps = k.param::<u32>("steps");
    let a_map = k.tensor_map("a");
    let b_map = k.tensor_map("b");
    let c = k.global::<f32>("c");
    let a = k.shared_aligned::<bf16>("a", STAGES * A, 1024);
    let b = k.shared_aligned::<bf16>("b", STAGES * B, 1024);
    let full = k.mbarriers("full", STAGES);
    let empty = k.mbarriers("empty", STAGES);
    k.when(k.tid().eq(0), || {
        for stage in 0..STAGES {
            full.at(stage).init(1);
            empty.at(stage).init(4);
        }
        k.fence_mbarrier_init();
    });
    k.barrier();

    let multiply = || {
        k.registers_up(232);
        let acc = k.regs(ATOM.acc_registers(), 0.0f32);
        let cursor = StageCursor::new(k, STAGES, 0);
        k.for_(0, steps, |_| {
            let (stage, parity) = cursor.here();
            full.at(stage).wait(parity);
            k.wgmma_fence();
            for step in 0..4 {
                let a = a.at(stage * A).at(16 * step).descriptor(ROWS_OF_128);
                let b = b.at(stage * B).at(16 * step).descriptor(ROWS_OF_128);
                acc.wgmma(ATOM, a, b, true, WgmmaOperands::K_MAJOR);
            }
            k.wgmma_commit();
            k.wgmma_wait(0);
            k.when(k.lane().eq(0), || empty.at(stage).arrive());
            cursor.advance();
        });
        store_fragment(k, acc, c);
    };
    let fetch = || {
        let cursor = StageCursor::new(k, STAGES, 1);
        k.for_(0, steps, |step| {
            let (stage, parity) = cursor.here();
            empty.at(stage).wait(parity);
            full.at(stage).arrive_expect_tx((A + B) * 2);
            let at = [(step * 64).cast::<i32>(), k.lit(0i32)];
            a.at(stage * A).tensor_load(a_map, &at, full.at(stage), Bulk::default());
            b.at(stage * B).tensor_load(b_map, &at, full.at(stage), Bulk::default());
            cursor.advance();
        });
    };
    k.if_else(k.warp().lt(4), multiply, || {
        k.registers_down(40);
        k.when(k.tid().eq(128), fetch);
    });
}
