//! The kernel of sm_90a.

use super::lab::check;
use half::{bf16, f16};
use tilewright_kernels::gemm::{Choice, Config, Problem, Shape, hopper_step};
use tilewright_layout::view::Along;

const TWO: Config = Config { stages: 3, cluster: 2, along: Along::Rows, group: 2 };

#[test]
fn a_product_of_several_tiles() {
    let problem = Problem::new(300, 264, 200);
    let choice = Choice { shape: Shape::M128N128, config: TWO, splits: 1 };
    check::<bf16>(&problem, vec![hopper_step::<bf16, bf16>(&problem, choice, 4).unwrap()], 1);
    let choice = Choice { shape: Shape::M64N128, config: Config { cluster: 1, ..TWO }, splits: 1 };
    check::<f16>(&problem, vec![hopper_step::<f16, f16>(&problem, choice, 3).unwrap()], 2);
}

#[test]
fn a_cluster_across_the_columns_shares_the_left_factor() {
    let problem = Problem::new(130, 600, 200);
    for cluster in [2, 4] {
        let config = Config { cluster, along: Along::Columns, ..TWO };
        let choice = Choice { shape: Shape::M128N128, config, splits: 1 };
        check::<bf16>(&problem, vec![hopper_step::<bf16, bf16>(&problem, choice, 4).unwrap()], 1);
    }
}
