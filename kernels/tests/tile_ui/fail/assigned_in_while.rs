//! A loop under a condition carries a Rust variable, though its body is recorded once.
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;

fn main() {
    record("sums", Arch::Sm80, block(32), |k| {
        let mut p = k.global::<f32>("x");
        let sum = k.var(0.0f32);
        let small = || sum.get().lt(1.0);
        k.while_(small, || {
            sum.set(sum.get() + p.load());
            p = p.at(32);
        });
    });
}
