use crate::case::{Case, keep, mine, unary};
use tilewright_codegen::build::{Bf16x2, F16x2};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::{ReduxOp, ShflMode, VoteMode};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("shfl", |k| {
            unary::<u32, _>(k, "idx", |x| x.shfl_idx(3));
            unary::<i32, _>(k, "up", |x| x.shfl_up(1));
            unary::<f32, _>(k, "down", |x| x.shfl_down(k.lane() & 3));
            unary::<F16x2, _>(k, "bfly", |x| x.shfl_bfly(16));
            unary::<Bf16x2, _>(k, "segment", |x| x.shfl(ShflMode::Up, 2, 8, u32::MAX));
            unary::<f32, _>(k, "sum", |x| x.warp_reduce(|a, b| a + b));
        }),
        Case::new("vote", |k| {
            let p = mine::<u32>(k, "x").gt(5);
            for &mode in VoteMode::ALL {
                keep(k, mode.name(), p.vote(mode, u32::MAX));
            }
        }),
        Case::new("ballot", |k| unary::<u32, _>(k, "x", |x| x.gt(5).ballot())),
        Case::new("match", |k| {
            unary::<u32, _>(k, "any", |x| x.match_any());
            unary::<u64, _>(k, "all", |x| {
                let (lanes, same) = x.match_all();
                keep(k, "same", same);
                lanes
            });
        }),
        Case::new("redux", |k| {
            for &op in ReduxOp::ALL {
                unary::<u32, _>(k, op.name(), |x| x.redux(op));
            }
            unary::<i32, _>(k, "signed", |x| x.redux(ReduxOp::Min));
        }),
        Case::new("activemask", |k| unary::<u32, _>(k, "x", |x| x ^ k.active_mask())),
        Case::new("elect", |k| k.when(k.elect(), || k.global::<u32>("out").store(1))).since(Arch::Sm90a),
        Case::new("sync_warp", |k| k.sync_warp()),
    ]
}
