//! The assembler's report of the shipped kernels: no spills, no serialised `wgmma`.

use half::bf16;
use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::verify::verify;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::epilogue::SumScale;
use tilewright_kernels::gemm::grouped::{GroupedChoice, GroupedProblem, GroupedShape, grouped_step};
use tilewright_kernels::gemm::{
    Epilogue, GemmProblem, HopperChoice, HopperConfig, HopperShape, WarpChoice, WarpShape, hopper_step, reduce_step,
    warp_step,
};
use tilewright_kernels::mma::E4M3;
use tilewright_layout::view::Along;

#[test]
fn every_shape_assembles_without_spills_or_warnings() {
    let Some(ptxas) = Ptxas::find().unwrap() else { return };
    let mut table = Table::new("Matrix products", &ptxas);
    let problem = GemmProblem::new(8192, 8192, 8192);
    for &shape in HopperShape::ALL {
        let (stage, staged) = shape.bytes();
        let config = HopperConfig {
            stages: (232_448 - 1024 - staged) / stage,
            cluster: 2,
            along: Along::Rows,
            group: 8,
            two_level: false,
        };
        let step = hopper_step::<bf16, bf16>(&problem, HopperChoice { shape, config, splits: 1 }, 132).unwrap();
        table.add_as(format!("{shape:?}"), &verify(step.kernel).unwrap()).unwrap();
    }
    // The largest tiles whose sums fit twice, and the largest.
    for (problem, shape) in [(problem, HopperShape::M128N192), (problem.fast(), HopperShape::M128N256)] {
        let two_level = problem.two_level::<E4M3>();
        let (stage, staged) = shape.bytes();
        let stages = (232_448 - 1024 - staged) / stage;
        let config = HopperConfig { stages, cluster: 2, along: Along::Rows, group: 8, two_level };
        let step = hopper_step::<E4M3, bf16>(&problem, HopperChoice { shape, config, splits: 1 }, 132).unwrap();
        let name = format!("{shape:?}, e4m3{}", if two_level { ", promoted" } else { "" });
        table.add_as(name.clone(), &verify(step.kernel).unwrap()).unwrap();
        let by_rows = problem.epilogue(Epilogue { scale: Some(SumScale::Rows), ..Epilogue::default() });
        let step = hopper_step::<E4M3, bf16>(&by_rows, HopperChoice { shape, config, splits: 1 }, 132).unwrap();
        table.add_as(format!("{name}, scaled by rows"), &verify(step.kernel).unwrap()).unwrap();
        let scaled = problem.epilogue(Epilogue { scale: Some(SumScale::Operands), ..Epilogue::default() });
        let config = HopperConfig { two_level: false, ..config };
        let step = hopper_step::<i8, bf16>(&scaled, HopperChoice { shape, config, splits: 1 }, 132).unwrap();
        table.add_as(format!("{shape:?}, s8, scaled"), &verify(step.kernel).unwrap()).unwrap();
    }
    let shape = WarpShape::M128N128;
    let arch = Arch::Sm80;
    let choice = WarpChoice { shape, stages: 3, group: 8, splits: 1, arch, aligned: [8, 8], two_level: false };
    let step = warp_step::<bf16, bf16>(&problem, choice).unwrap();
    table.add_as("M128N128 over warps", &verify(step.kernel).unwrap()).unwrap();
    let choice = WarpChoice { arch: Arch::Sm89, aligned: [16, 16], two_level: true, ..choice };
    let step = warp_step::<E4M3, bf16>(&problem, choice).unwrap();
    table.add_as("M128N128 over warps, e4m3, promoted", &verify(step.kernel).unwrap()).unwrap();
    // Gate and up of 128 experts, 2048 tokens of 8 choices each, and down.
    let gate = GroupedProblem::new(128, 16384, 768, 2048).epilogue(Epilogue::gate(Activation::Silu));
    let down = GroupedProblem::new(128, 16384, 2048, 768).scatter();
    let forms = [("", gate), (", gathered", gate.gather(8)), (", scattered", down)];
    for (form, problem) in forms {
        let gathered = problem.gather.is_some();
        for &shape in GroupedShape::ALL.iter().filter(|shape| shape.fits(16, gathered)) {
            let choice = GroupedChoice::Hopper { shape, stages: 8, cluster: 1, band: 8 };
            let launch = grouped_step::<bf16, bf16>(problem, choice, 132).unwrap();
            table.add_as(format!("{shape:?}, grouped{form}"), &verify(launch.kernel).unwrap()).unwrap();
        }
        for &shape in GroupedShape::ALL.iter().filter(|shape| shape.fits(8, gathered)) {
            let choice = GroupedChoice::Hopper { shape, stages: 8, cluster: 1, band: 8 };
            let launch = grouped_step::<E4M3, bf16>(problem, choice, 132).unwrap();
            table.add_as(format!("{shape:?}, e4m3 by blocks, grouped{form}"), &verify(launch.kernel).unwrap()).unwrap();
        }
        for &shape in WarpShape::ALL {
            let launch = grouped_step::<bf16, bf16>(problem, GroupedChoice::Warps { shape, stages: 3, arch }, 108);
            table
                .add_as(format!("{shape:?} over warps, grouped{form}"), &verify(launch.unwrap().kernel).unwrap())
                .unwrap();
        }
    }
    let step = reduce_step::<bf16, bf16>(&problem, 4, arch).unwrap();
    table.add(&verify(step.kernel).unwrap()).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ptxas/gemm.md");
    table.check(page.as_ref()).unwrap();
}
