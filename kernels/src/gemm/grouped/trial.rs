//! Random groups for the kernels that are shipped.

use half::{bf16, f16};
use tilewright_codegen::ir::{Arch, Kernel, Needs};
use tilewright_codegen::trial::{Draw, Shipped, Trial};
use tilewright_codegen::verify::VerifyErrors;

use super::data::{GroupedData, ragged_sizes};
use super::plan::{GroupedChoice, grouped_step};
use super::problem::GroupedProblem;
use super::table::GroupedShape;
use crate::activation::{Activation, SoftCap};
use crate::epilogue::{Epilogue, ResultFunctions, SumScale};
use crate::gemm::WarpShape;
use crate::gemm::data::{Drawn, Rounded};
use crate::mma::{E4M3, E5M2};
use crate::shipped_entry::ShippedEntry;

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let entry = |name, needs, record, draw| Box::new(ShippedEntry { name, needs, record, draw }) as Box<dyn Shipped>;
    vec![
        entry("grouped", Needs::Sm90a, |_| shown(false), |_, seed| draw(seed, false)),
        entry("grouped_gather", Needs::Sm90a, |_| shown(true), |_, seed| draw(seed, true)),
        entry("grouped_fp8", Needs::Sm90a, |_| shown_blocks(), draw_blocks),
        entry("grouped_warps", Needs::Sm80, shown_warps, draw_warps),
    ]
}

/// Gate and up of 128 experts, 2048 tokens of 8 choices each.
fn shown_problem(gather: bool) -> GroupedProblem {
    let problem = GroupedProblem::new(128, 16384, 768, 2048).epilogue(Epilogue::gate(Activation::Silu));
    if gather { problem.gather(8) } else { problem }
}

fn record(problem: GroupedProblem, choice: GroupedChoice) -> Kernel {
    match grouped_step::<bf16, bf16>(problem, choice, 132) {
        Ok(step) => step.kernel,
        Err(refusal) => unreachable!("{problem:?}: {refusal}"),
    }
}

fn shown(gather: bool) -> Kernel {
    let choice = GroupedChoice::Hopper { shape: GroupedShape::M128N256, stages: 4, cluster: 1, band: 8 };
    record(shown_problem(gather), choice)
}

fn shown_blocks() -> Kernel {
    let choice = GroupedChoice::Hopper { shape: GroupedShape::M128N128, stages: 6, cluster: 1, band: 8 };
    match grouped_step::<E4M3, bf16>(shown_problem(true), choice, 132) {
        Ok(step) => step.kernel,
        Err(refusal) => unreachable!("{refusal}"),
    }
}

fn shown_warps(arch: Arch) -> Kernel {
    let choice = GroupedChoice::Warps { shape: WarpShape::M128N128, stages: 3, arch };
    record(shown_problem(true), choice)
}

fn draw(seed: u64, gather: bool) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let choice = draw_choice(draw, 16, gather);
    any(seed, Asked { choice, gather }, draw)
}

fn draw_choice(draw: &mut Draw, bits: i64, gathered: bool) -> GroupedChoice {
    let shapes: Vec<_> = GroupedShape::ALL.iter().filter(|shape| shape.fits(bits, gathered)).collect();
    let shape = *shapes[draw.between(0..=shapes.len() as u32 - 1) as usize];
    let stages = draw.between(2..=3);
    GroupedChoice::Hopper { shape, stages, cluster: draw.between(1..=2), band: draw.between(1..=3) }
}

fn draw_blocks(_: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let gather = draw.between(0..=1) == 1;
    let asked = Asked { choice: draw_choice(draw, 8, gather), gather };
    match seed % 3 {
        0 => trial::<E5M2, bf16>(asked, draw),
        1 => trial::<E4M3, bf16>(asked, draw),
        _ => trial::<E4M3, f32>(asked, draw),
    }
}

fn draw_warps(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let shape = WarpShape::ALL[draw.between(0..=1) as usize];
    let gather = draw.between(0..=1) == 1;
    let choice = GroupedChoice::Warps { shape, stages: draw.between(2..=3), arch };
    any(seed, Asked { choice, gather }, draw)
}

/// The fixed part of a problem that is drawn.
#[derive(Clone, Copy)]
struct Asked {
    choice: GroupedChoice,
    gather: bool,
}

fn any(seed: u64, asked: Asked, draw: &mut Draw) -> Result<Trial, VerifyErrors> {
    match seed % 3 {
        0 => trial::<bf16, bf16>(asked, draw),
        1 => trial::<f16, f16>(asked, draw),
        _ => trial::<bf16, f32>(asked, draw),
    }
}

fn trial<F: Drawn<Sum = f32>, D: Rounded>(asked: Asked, draw: &mut Draw) -> Result<Trial, VerifyErrors> {
    let groups = if draw.between(0..=4) == 0 { draw.between(31..=70) } else { draw.between(1..=7) };
    let most = [3, 60, 300][draw.between(0..=2) as usize];
    let sizes = ragged_sizes(draw, groups, most);
    let total: u32 = sizes.iter().sum();
    let n = [draw.between(1..=40), 8 * draw.between(1..=36)][draw.between(0..=1) as usize];
    // Many groups with few weights, so that a trial stays short.
    let (n, deep) = if groups > 7 { (n.min(48), 6) } else { (n, 25) };
    // Steps are of 64 elements, or of 128.
    let k = if F::BITS == 8 { 16 * draw.between(1..=deep) } else { 8 * draw.between(1..=deep) };
    let mut flag = || draw.between(0..=1) == 1;
    let [bias, gated, residual, capped, scaled, scatter] = [(); 6].map(|()| flag());
    let functions = ResultFunctions {
        activation: gated.then_some(if total.is_multiple_of(3) { Activation::GPT_OSS } else { Activation::Silu }),
        soft_cap: SoftCap::new(2.0).ok().filter(|_| capped),
    };
    let epilogue =
        Epilogue { scale: (scaled && F::BITS > 8).then_some(SumScale::Operands), bias, gated, functions, residual };
    let epilogue = if flag() { epilogue } else { Epilogue::default() };
    let problem = GroupedProblem::new(groups, total + draw.between(1..=4), n, k).epilogue(epilogue);
    let problem = GroupedProblem { gather: asked.gather.then(|| draw.between(1..=4)), scatter, ..problem };
    let data = GroupedData::<F, D>::draw(&problem, &sizes, draw);
    let launch = match grouped_step::<F, D>(problem, asked.choice, draw.between(1..=5)) {
        Ok(launch) => launch,
        Err(refusal) => unreachable!("{problem:?}: {refusal}"),
    };
    let placed = data.placed(&problem, &data.expected(&problem));
    let note = format!("{} to {}, {problem:?}, {:?}, sizes {sizes:?}", F::NAME, D::NAME, asked.choice);
    Ok(data.trial(launch, placed)?.note(note))
}
