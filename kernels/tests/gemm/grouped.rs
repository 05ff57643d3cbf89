//! Grouped products: the tile scheduler's law, random groups, epilogues of one's own.

use std::cell::Cell;

use half::bf16;
use proptest::prelude::*;
use tilewright_codegen::build::{block, record};
use tilewright_codegen::device::sim;
use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{Draw, Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::activation::{Activation, ClampedSwiglu};
use tilewright_kernels::epilogue::{CustomEpilogue, CustomGate, Epilogue, SumScale};
use tilewright_kernels::gemm::grouped::{
    GroupTiles, GroupTiling, GroupedBuffer, GroupedChoice, GroupedData, GroupedProblem, GroupedShape, grouped_step,
    shipped,
};
use tilewright_kernels::gemm::{GemmRefusal, WarpShape};
use tilewright_kernels::mma::E4M3;
use tilewright_kernels::naive;

/// Counts, for each row and column of tiles, how often a tile covers it.
fn covers(tiling: GroupTiling) -> Kernel {
    record("covers", Arch::Sm80, block(64), |k| {
        let counts = k.global::<u32>("counts");
        let groups = k.global::<u32>("groups");
        let columns = k.param::<u32>("columns");
        let tiles = GroupTiles::new(k, k.global("offsets"), tiling, columns);
        k.barrier();
        tiles.each(k, k.block_id(), k.blocks(), &mut |tile| {
            let end = (tile.row + tiling.rows).min(tile.end);
            k.for_step(tile.row + k.tid(), end, k.threads(), |row| {
                let at = row * columns + tile.column;
                counts.at(at).red(AtomOp::Add, 1u32, RedOrder::Relaxed(Scope::Gpu));
                groups.at(at).red(AtomOp::Add, tile.group, RedOrder::Relaxed(Scope::Gpu));
            });
        });
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Each row and column is covered once, by a tile of the row's group, for any offsets and any
    /// number of blocks.
    #[test]
    fn each_tile_is_scheduled_once(
        sizes in prop::collection::vec(prop_oneof![3 => Just(0u32), 4 => 1..=9u32, 2 => 1..=90u32], 1..=70),
        rows in prop::sample::select(vec![1, 3, 16, 64]),
        band in 1..=4u32,
        columns in 1..=5u32,
        blocks in 1..=9u32,
    ) {
        let tiling = GroupTiling { groups: sizes.len() as u32, rows, band };
        let mut offsets = vec![0u32];
        for size in &sizes {
            offsets.push(offsets[offsets.len() - 1] + size);
        }
        let group = (0..).zip(&sizes).flat_map(|(group, size)| vec![group; (size * columns) as usize]);
        let group: Vec<u32> = group.chain([0]).collect();
        let counts: Vec<u32> = group.iter().enumerate().map(|(i, _)| u32::from(i + 1 < group.len())).collect();
        let zeros = vec![0u32; counts.len()];
        let mut trial = Trial::new(verify(covers(tiling)).unwrap(), blocks);
        let ids = [
            trial.changed("counts", &zeros, Expected::exact(&counts)),
            trial.changed("groups", &zeros, Expected::exact(&group)),
        ];
        let offsets = trial.input("offsets", &offsets);
        let outcome = trial.pass(ids[0]).pass(ids[1]).pass(columns).pass(offsets).run(&sim::open(1)).unwrap();
        prop_assert!(outcome.is_right(), "{outcome}");
    }
}

#[test]
fn trials_of_grouped_products_are_right_in_the_simulator() {
    for kernel in shipped() {
        for seed in 0..12 {
            let outcome = kernel.draw(Arch::Sm90a, seed).unwrap().run(&sim::open(seed)).unwrap();
            assert!(outcome.is_right(), "{} seed {seed}: {outcome}", kernel.name());
        }
    }
}

fn choice() -> impl Strategy<Value = GroupedChoice> {
    let hopper = (prop::sample::select(GroupedShape::ALL), 2..=3u32, 1..=2u32, 1..=3u32)
        .prop_map(|(shape, stages, cluster, band)| GroupedChoice::Hopper { shape, stages, cluster, band });
    let warps = (prop::sample::select(WarpShape::ALL), 2..=3u32).prop_map(|(shape, stages)| GroupedChoice::Warps {
        shape,
        stages,
        arch: Arch::Sm80,
    });
    prop_oneof![2 => hopper, 1 => warps]
}

/// Each row times its own factor: the weight that a router gives it.
const WEIGHTED: CustomEpilogue<'static> = CustomEpilogue(&|k, _| {
    let weights = k.global::<f32>("weights");
    Box::new(move |at, result| result * weights.at(at.row).load())
});

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn grouped_products_are_right(
        sizes in prop::collection::vec(prop_oneof![2 => Just(0u32), 3 => 1..=9u32, 2 => 1..=150u32], 1..=6),
        (n, k) in (1..=140u32, 1..=20u32),
        gather in prop::option::of(1..=4u32),
        (scatter, bias, gated, weighted) in any::<(bool, bool, bool, bool)>(),
        drawn in choice(),
        multiprocessors in 1..=5u32,
        seed in any::<u64>(),
    ) {
        // Tiles of 256 rows have no registers for the addresses of gathered ones.
        let how = match drawn {
            GroupedChoice::Hopper { shape, stages, cluster, band } if !shape.fits(16, gather.is_some()) => {
                GroupedChoice::Hopper { shape: GroupedShape::M128N128, stages, cluster, band }
            }
            other => other,
        };
        let total: u32 = sizes.iter().sum();
        let plain = if gated { Epilogue::gate(Activation::GeluTanh) } else { Epilogue::default() };
        let problem = GroupedProblem::new(sizes.len() as u32, total + 1, n, 8 * k);
        let problem = GroupedProblem { gather, scatter, epilogue: Epilogue { bias, ..plain }, ..problem };
        let draw = &mut Draw::new(seed);
        let data = GroupedData::<bf16, bf16>::draw(&problem, &sizes, draw);
        let weights: Vec<f32> = draw.floats(total as usize, |v| v as f32);
        let mut results = data.expected(&problem);
        let launch = if weighted {
            for (i, (value, error)) in results.iter_mut().enumerate() {
                let weight = f64::from(weights[i / n as usize]);
                *value *= weight;
                *error = *error * weight.abs() + (value.abs() + 1e-6) / 256.0;
            }
            grouped_step::<bf16, bf16>(problem.custom(WEIGHTED), how, multiprocessors)
        } else {
            grouped_step::<bf16, bf16>(problem, how, multiprocessors)
        };
        let mut trial = data.trial(launch.unwrap(), data.placed(&problem, &results)).unwrap();
        if weighted {
            let weights = trial.input("weights", &weights);
            trial = trial.pass(weights);
        }
        let outcome = trial.run(&sim::open(seed)).unwrap();
        prop_assert!(outcome.is_right(), "{problem:?}: {outcome}");
    }
}

/// The gate of gpt-oss, with a bound that sums reach.
fn clamped() -> Activation {
    Activation::ClampedSwiglu(ClampedSwiglu::new(1.702, LIMIT).expect("sound numbers"))
}

/// The same as a closure.
const CLAMPED: CustomGate<'static> = CustomGate(&|_| Box::new(|gate, up| clamped().apply(gate) * clamped().factor(up)));
const LIMIT: f32 = 1.5;

#[test]
fn a_gate_of_ones_own_is_applied_to_both_sums() {
    let hopper = |shape| GroupedChoice::Hopper { shape, stages: 3, cluster: 2, band: 2 };
    let warps = GroupedChoice::Warps { shape: WarpShape::M64N64, stages: 3, arch: Arch::Sm80 };
    for (seed, choice) in [hopper(GroupedShape::M64N256), hopper(GroupedShape::M128N128), warps].into_iter().enumerate()
    {
        let problem = GroupedProblem::new(3, 90, 72, 104).gather(3);
        let problem = problem.epilogue(Epilogue { bias: true, residual: true, ..Epilogue::default() }).gate(CLAMPED);
        let draw = &mut Draw::new(seed as u64);
        let data = GroupedData::<bf16, bf16>::draw(&problem.problem, &[70, 0, 17], draw);
        let reached = Cell::new(0);
        let results = data.gated(&problem.problem, &|[y, error], up| {
            let [up, of_up] = up.expect("the product is gated");
            let limit = f64::from(LIMIT);
            reached.set(reached.get() + u32::from(y > limit || up.abs() > limit));
            let value = naive::gated(clamped(), &[y], &[up])[0];
            // The slopes are at most 1.1 times the other factor, and the gate.
            let error = error * 1.1 * (1.0 + limit) + of_up * limit + 2f64.powi(-18);
            [value, error]
        });
        assert!(reached.get() > 100, "{} sums reach the bound", reached.get());
        let launch = grouped_step::<bf16, bf16>(problem, choice, 3).unwrap();
        let trial = data.trial(launch, data.placed(&problem.problem, &results)).unwrap();
        let outcome = trial.run(&sim::open(seed as u64)).unwrap();
        assert!(outcome.is_right(), "{choice:?}: {outcome}");
    }
}

#[test]
fn what_no_grouped_kernel_computes_is_refused() {
    let problem = GroupedProblem::new(4, 100, 64, 64);
    let choice = GroupedChoice::Hopper { shape: GroupedShape::M128N256, stages: 4, cluster: 1, band: 1 };
    let refused = |problem: GroupedProblem, choice| grouped_step::<bf16, bf16>(problem, choice, 4).unwrap_err();
    assert_eq!(
        refused(GroupedProblem { groups: 0, ..problem }, choice).to_string(),
        "the number of groups is 0; at least 1 is needed"
    );
    assert_eq!(
        refused(GroupedProblem { k: 60, ..problem }, choice).to_string(),
        "lines of A are 60 elements apart; a tensor map needs a multiple of 8"
    );
    let three = GroupedChoice::Hopper { shape: GroupedShape::M128N256, stages: 4, cluster: 3, band: 1 };
    assert_eq!(refused(problem, three), GemmRefusal::Cluster { blocks: 3, lines: 256 });
    assert_eq!(
        grouped_step::<E4M3, bf16>(problem, choice, 4).unwrap_err().to_string(),
        "tiles of 128×256 have more sums than a thread has registers for, where operands have 8 bits; take smaller tiles"
    );
    let by_rows = Epilogue { scale: Some(SumScale::Rows), ..Epilogue::default() };
    assert_eq!(
        refused(problem.epilogue(by_rows), choice).to_string(),
        "a grouped product has one scale for each operand: SumScale::Operands"
    );
    let launch = grouped_step::<bf16, bf16>(problem, choice, 132).unwrap();
    assert!(
        !launch
            .arguments
            .iter()
            .any(|argument| format!("{argument:?}").contains(&format!("{:?}", GroupedBuffer::Order)))
    );
}
