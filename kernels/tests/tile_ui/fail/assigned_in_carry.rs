//! A loop that carries one value assigns another in a Rust variable; its body is recorded once.
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;

fn main() {
    record("sums", Arch::Sm80, block(32), |k| {
        let mut p = k.global::<f32>("x");
        let sum = k.carry(0, 4u32, k.lit(0.0f32), |_, sum| {
            let next = sum + p.load();
            p = p.at(32);
            next
        });
        k.global::<f32>("out").store(sum);
    });
}
