//! Cases of the family `value`: every instruction once at least.

use crate::case::{Case, out};
use half::bf16;
use tilewright_codegen::build::block;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::SpecialReg;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("param", |k| {
            out::<f32>(k, "out").store(k.param::<f32>("a") + k.param::<u8>("b").cast::<f32>());
            out::<u64>(k, "wide").store(k.param::<u64>("c"));
            out::<bf16>(k, "half").store(k.param::<bf16>("d"));
        }),
        Case::new("param_ptr", |k| {
            let args = k.param_bytes("args", 24, 8);
            let first = args.cast::<u64>().load();
            let later = args.cast::<u32>().at(3).load();
            let any = args.cast::<u32>().at(k.param::<u32>("i")).load();
            first.to_global::<u32>().at(k.tid()).store(later + any);
        }),
        Case::new("shared", |k| {
            let a = k.shared::<f32>("a", 32);
            let b = k.shared_aligned::<f32>("b", 64, 128);
            a.at(k.tid()).store(1.0);
            b.at(k.tid() + 32).store(2.0);
            out::<f32>(k, "out").store(a.at(k.tid()).load() + b.at(k.tid()).at(32).load());
        }),
        Case::new("shared_dynamic", |k| {
            let big = k.shared::<u32>("big", 16 << 10);
            big.at(k.tid()).at(8000).store(k.tid());
        }),
        Case::new("special", |k| {
            use SpecialReg::{CtaidX, CtaidY, CtaidZ, Laneid, NctaidX, NctaidY, NctaidZ, Smid, TidX, TidY, TidZ};
            let all = [TidX, TidY, TidZ, CtaidX, CtaidY, CtaidZ, NctaidX, NctaidY, NctaidZ, Laneid, Smid];
            let sum = all.into_iter().fold(k.lit(0u32), |sum, reg| sum + k.special(reg));
            k.global::<u32>("out").at(k.tid()).store(sum);
        })
        .launch(tilewright_codegen::ir::LaunchBounds { threads: [8, 4, 2], ..block(32) }),
        Case::new("special_cluster", |k| {
            use SpecialReg::{ClusterCtarank, ClusterNctarank, ClusteridX, NclusteridX};
            let all = [ClusterCtarank, ClusterNctarank, ClusteridX, NclusteridX];
            let sum = all.into_iter().fold(k.lit(0u32), |sum, reg| sum + k.special(reg));
            out::<u32>(k, "out").store(sum);
        })
        .launch(block(32).cluster(2))
        .since(Arch::Sm90a),
        Case::new("clock", |k| {
            out::<u32>(k, "cycles").store(k.clock());
            out::<u64>(k, "more").store(k.clock64());
            out::<u64>(k, "time").store(k.globaltimer());
        }),
        Case::new("pointers", |k| {
            let x = k.global::<f32>("x");
            let i = k.tid();
            let j = k.param::<i32>("j");
            let y = x.at(i).at(-1).at(j).at_byte(4);
            out::<u64>(k, "address").store(y.at(k.param::<u64>("n")).address());
            let s = k.shared::<f32>("s", 32);
            let bits = s.at(i).address32();
            (bits ^ 64).to_shared::<f32>().store(y.load());
        }),
        Case::new("mapa", |k| {
            let s = k.shared::<u32>("s", 32);
            s.at(k.tid()).store(k.tid());
            k.cluster_sync();
            out::<u32>(k, "out").store(s.on(k.cluster_rank() ^ 1).at(k.tid()).load());
            k.cluster_sync();
        })
        .launch(block(32).cluster(2))
        .since(Arch::Sm90a),
        Case::new("registers", |k| {
            let sum = k.var(0u32);
            let flag = k.var(true);
            let half = k.var(bf16::from_f32(1.0));
            let wide = k.regs(4, 0.25f64);
            k.for_(0, k.param::<u32>("n"), |i| {
                sum.set(sum.get() + i);
                flag.set(i.lt(5));
                wide.set(2, wide.get(1));
            });
            out::<u32>(k, "out").store(flag.get().select(sum, 1u32));
            out::<bf16>(k, "half").store(half);
            out::<f64>(k, "wide").store(wide.get(2));
        }),
    ]
}
