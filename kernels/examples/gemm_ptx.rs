//! temporary
use half::bf16;
use tilewright_codegen::{ptx, verify::verify};
use tilewright_kernels::gemm::{Choice, Config, Problem, Shape, hopper_step};
use tilewright_layout::view::Along;
fn main() {
    let cluster: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let step = hopper_step::<bf16, bf16>(
        &Problem::new(8192, 8192, 8192),
        Choice {
            shape: Shape::M128N256,
            config: Config { stages: 4, cluster, along: Along::Rows, group: 8 },
            splits: 1,
        },
        132,
    )
    .unwrap();
    println!("{}", ptx::emit(&verify(step.kernel).unwrap()));
}
