//! The small kernels against their oracles on the simulator.

mod exchange;
mod far;
mod mutants;
mod traffic;

use tilewright_codegen::device::sim;
use tilewright_codegen::ir::Arch;

fn right(name: &str, seeds: std::ops::Range<u64>) {
    let kernels = tilewright_kernels::shipped();
    let kernel = kernels.iter().find(|kernel| kernel.name() == name).expect("a shipped kernel");
    for seed in seeds {
        let trial = kernel.draw(Arch::Sm90a, seed).unwrap_or_else(|errors| panic!("{errors}"));
        let run = trial.run(&sim::open(seed));
        let outcome = run.unwrap_or_else(|error| panic!("seed {seed}, {}: {error}", trial.particulars()));
        assert!(outcome.is_right(), "seed {seed}: {outcome}");
    }
}

macro_rules! kernels {
    ($($name:ident)+) => {$(
        #[test]
        fn $name() {
            right(stringify!($name), 0..60);
        }
    )+};
}

kernels!(rms_norm rope silu_mul gelu_tanh_mul add embed sum_parts sum_rms_norm sum_post_norm argmax sample feed widen);
kernels!(route sort_choices weighted_sum quantize_rows merge_attention);
kernels!(transpose_edged column_sums residual_norm unit_rows expert_weights gemm_tf32 two_products channels_first split_sums batch_sums);

/// Layouts, cuts and copies of a seed each.
#[test]
fn copies() {
    right("copies", 0..420);
}
