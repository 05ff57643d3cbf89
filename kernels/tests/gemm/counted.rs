//! The simulator's counters: no bank conflicts anywhere, and global memory accessed by whole
//! sectors.

use super::lab::{compare, run, verified};
use half::bf16;
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::Counters;
use tilewright_codegen::trial::Draw;
use tilewright_kernels::gemm::{
    Data, GemmProblem, HopperChoice, HopperConfig, HopperShape, PlannedLaunch, WarpChoice, WarpShape, hopper_step,
    warp_step,
};
use tilewright_layout::swizzle::canonical::Major;
use tilewright_layout::view::Along;

fn count(problem: &GemmProblem, step: PlannedLaunch) -> Counters {
    let simulator = Simulator::new(Options::default());
    let data = Data::<bf16, bf16>::draw(problem, &mut Draw::new(3));
    let found =
        run(&simulator.device(), problem, &verified(vec![step]), &data).unwrap_or_else(|error| panic!("{error}"));
    compare(problem, &data, &found).unwrap();
    simulator.last_launch().expect("a launch was made")
}

fn orders() -> impl Iterator<Item = [Major; 2]> {
    [Major::K, Major::Mn].into_iter().flat_map(|a| [[a, Major::K], [a, Major::Mn]])
}

#[test]
fn no_shape_of_hopper_has_bank_conflicts() {
    for &shape in HopperShape::ALL {
        let [m, n] = shape.tile();
        let k = 64;
        for [a, b] in orders() {
            let problem = GemmProblem::new(m, n, 2 * k).orders(a, b);
            let config = HopperConfig { stages: 2, cluster: 1, along: Along::Rows, group: 1, two_level: false };
            let step = hopper_step::<bf16, bf16>(&problem, HopperChoice { shape, config, splits: 1 }, 1).unwrap();
            let counters = count(&problem, step);
            assert_eq!(counters.conflicts(), 0, "{shape:?}, {a:?} and {b:?}");
        }
    }
}

#[test]
fn no_shape_over_warps_has_bank_conflicts_and_its_loads_are_whole_sectors() {
    for &shape in WarpShape::ALL {
        let [m, n] = shape.tile();
        let k = 64;
        for [a, b] in orders() {
            let problem = GemmProblem::new(m, n, 2 * k).orders(a, b);
            let choice = WarpChoice {
                shape,
                stages: 2,
                group: 1,
                splits: 1,
                arch: Arch::Sm80,
                aligned: [8, 8],
                two_level: false,
            };
            let counters = count(&problem, warp_step::<bf16, bf16>(&problem, choice).unwrap());
            assert_eq!(counters.conflicts(), 0, "{shape:?}, {a:?} and {b:?}");
            let loads: u64 = counters
                .each()
                .filter(|(_, text, ..)| text.starts_with("cp.async."))
                .map(|(.., site)| site.sectors)
                .sum();
            // Every sector of both operands once, and nothing else.
            assert_eq!(loads, u64::from((m + n) * 2 * k * 2 / 32), "{shape:?}, {a:?} and {b:?}");
        }
    }
}
