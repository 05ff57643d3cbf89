//! `y = gelu(rms_norm(x) · wᵀ + bias)` in two launches: the rows of `x ⊙ g` with the factor of each,
//! then a shipped product whose epilogue takes factors, bias and activation.

use half::bf16;
use tilewright::codegen::build::{block, record};
use tilewright::codegen::ir::{Arch, Kernel};
use tilewright::kernels::activation::Activation;
use tilewright::kernels::epilogue::CustomEpilogue;
use tilewright::kernels::gemm::{GemmDevice, GemmProblem, GemmRefusal, PlannedLaunch, plan};

/// `weighted = x ⊙ g`, `factors = 1 / √(mean(x²) + eps)`, a warp a row of `width` numbers, a
/// multiple of 32. Parameters: `x`, `g`, `weighted`, `factors`.
pub fn weighted_rows(arch: Arch, width: u32, eps: f32) -> Kernel {
    record("weighted_rows", arch, block(32), |k| {
        let row = k.block_id().mul_wide(width);
        let x = k.global::<bf16>("x").at(row);
        let g = k.global::<bf16>("g");
        let weighted = k.global::<bf16>("weighted").at(row);
        let factors = k.global::<f32>("factors");
        let squares = k.var(0.0f32);
        k.for_(0, width / 32, |step| {
            let at = step * 32 + k.lane();
            let value = x.at(at).load().cast::<f32>();
            squares.set(value.fma(value, squares.get()));
            weighted.at(at).store((value * g.at(at).load().cast::<f32>()).cast::<bf16>());
        });
        let mean = squares.get().warp_reduce(|a, b| a + b) * (1.0 / width as f32);
        k.when(k.lane().eq(0), || factors.at(k.block_id()).store((mean + eps).sqrt().recip()));
    })
}

/// The product `[m, k] · [n, k]ᵀ` with its epilogue. Its own parameters: `factors` of the rows,
/// `bias` of the columns.
///
/// # Errors
/// [`GemmRefusal`], for extents that no kernel takes.
pub fn gelu_linear([m, n, k]: [u32; 3], target: GemmDevice) -> Result<Vec<PlannedLaunch>, GemmRefusal> {
    let epilogue = CustomEpilogue(&|k, _| {
        let [factors, bias] = ["factors", "bias"].map(|name| k.global::<f32>(name));
        Box::new(move |at, sum| {
            let normed = sum * factors.at(at.row).load();
            Activation::GeluTanh.apply(normed + bias.at(at.column).load())
        })
    });
    plan::<bf16, bf16>(GemmProblem::new(m, n, k).custom(epilogue), target)
}
