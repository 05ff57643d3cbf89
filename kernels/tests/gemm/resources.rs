//! What the assembler makes of the shipped kernels: no spills, no serialised `wgmma`.

use half::bf16;
use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemm::{Choice, Config, Problem, Shape, hopper_step};
use tilewright_layout::view::Along;

#[test]
fn every_shape_assembles_without_spills_or_warnings() {
    let Some(ptxas) = Ptxas::find().unwrap() else { return };
    let mut table = Table::new("Matrix products", &ptxas);
    let problem = Problem::new(8192, 8192, 8192);
    for &shape in Shape::ALL {
        let (stage, staged) = shape.bytes();
        let config = Config { stages: (232_448 - 1024 - staged) / stage, cluster: 2, along: Along::Rows, group: 8 };
        let step = hopper_step::<bf16, bf16>(&problem, Choice { shape, config, splits: 1 }, 132).unwrap();
        table.add_as(format!("{shape:?}"), &verify(step.kernel).unwrap()).unwrap();
    }
    println!("{}", table.page());
}
