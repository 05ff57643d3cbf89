//! The other side of a branch assigns a Rust variable, in effect whatever the condition is.
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;

fn main() {
    record("sides", Arch::Sm80, block(32), |k| {
        let mut v = k.lit(1.0f32);
        k.if_else(k.tid().eq(0), || k.comment("the first"), || v = k.lit(7.0));
        k.global::<f32>("out").store(v);
    });
}
