//! Cases of the family `control`: every instruction once at least.

use crate::case::{Case, mine, out};
use tilewright_codegen::build::block;
use tilewright_codegen::ir::Arch;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("exit", |k| {
            k.when(k.tid().ge(k.param::<u32>("n")), || k.exit());
            out::<u32>(k, "out").store(1);
        }),
        Case::new("trap", |k| k.when(mine::<u32>(k, "x").eq(0), || k.trap())),
        Case::new("nanosleep", |k| {
            k.nanosleep(100);
            k.nanosleep(k.param::<u32>("ns"));
        }),
        Case::new("setmaxnreg", |k| {
            k.if_else(k.warp().lt(4), || k.registers_down(40), || k.registers_up(232));
        })
        .launch(block(256).min_blocks(1))
        .since(Arch::Sm90a)
        .until(Arch::Sm100a),
        Case::new("print", |k| {
            let x = mine::<f32>(k, "x");
            k.print("x is {} % of {}, {}, {}", (x, k.tid(), (x.cast::<i64>(), x.gt(0.0))));
            k.print("nothing", ());
        }),
        Case::new("assert", |k| k.assert(mine::<u32>(k, "x").lt(7), "x is below 7")),
        Case::new("comment", |k| k.comment("nothing happens here")),
        Case::new("branches", |k| {
            let x = mine::<u32>(k, "x");
            let y = k.var(0u32);
            k.if_else(
                x.lt(10),
                || y.set(1),
                || {
                    k.when(x.gt(20), || y.set(2));
                },
            );
            out::<u32>(k, "out").store(y);
        }),
        Case::new("loops", |k| {
            let n = k.param::<i32>("n");
            let sum = k.var(0i32);
            k.for_step(-3, n, 2, |i| {
                k.break_if(sum.get().gt(100));
                k.when(i.eq(5), || k.break_());
                sum.set(sum.get() + i);
            });
            k.while_(|| sum.get().lt(50), || sum.set(sum.get() * 2 + 1));
            k.for_(0u64, k.param::<u64>("m"), |i| {
                k.loop_(|| {
                    sum.set(sum.get() - 1);
                    k.break_if(sum.get().lt(i.cast::<i32>()));
                });
            });
            out::<i32>(k, "out").store(sum);
        }),
    ]
}
