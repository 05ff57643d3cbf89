//! Within the budget of a flow attention is dense attention, to the bit: of steps that choose
//! nothing, and of rows that choose everything beside others that do not.

use tilewright_codegen::target::Target;
use tilewright_flow::algorithms;
use tilewright_flow::program::Phase;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::DeviceMachine;
use tilewright_megakernel::weights::RandomWeights;

use super::device::{Both, CUT, Cut, chain, device_options, spec, traced};

/// A machine without a flow, whose pools have the same keys and values.
fn dense(both: &Both, cut: Cut) -> DeviceMachine {
    let target = Target { sms: 3, ..Target::named("h100").expect("a target") };
    let Cut { rows, page_tokens, context, .. } = cut;
    let options = LowerOptions { rows, kv: DType::BF16, page_tokens, ..LowerOptions::for_context(context) };
    let options = LowerOptions { splits: Some(2), ..options };
    let program = lower(&spec(cut), &|_| DType::BF16, target, &options).expect("a model that lowers");
    let placed = schedule(program, 64).expect("a valid program");
    let weights = RandomWeights::new(&spec(cut), DType::BF16, 7).expect("weights");
    let device = both.device.device().clone();
    let machine = DeviceMachine::load(placed, &weights, &device, device_options(), &mut |_, _| ());
    let mut machine = machine.unwrap_or_else(|error| panic!("{}", chain(&error)));
    for (name, _) in both.pools().into_iter().filter(|(name, _)| !name.contains(".flow.")) {
        machine.set_pool(&name, &both.device.pool(&name).expect("a pool")).expect("a pool");
    }
    machine
}

/// Steps at these positions of all rows; of the first `equal` rows the logits have the bits of
/// dense attention.
fn check(flow: &str, phase: Phase, cut: Cut, steps: &[Vec<i32>], equal: usize) {
    let mut both = Both::new(traced(flow), phase, cut);
    let mut dense = dense(&both, cut);
    for positions in steps {
        let tokens: Vec<i32> = (0..cut.rows as i32).map(|row| row * 7 + 3).collect();
        let cells = StepCells { tokens: &tokens, positions, page_table: &both.table };
        for machine in [&mut dense, &mut both.device] {
            machine.step(&cells).unwrap_or_else(|error| panic!("{flow} {cut:?}: {}", chain(&error)));
        }
        for row in 0..equal {
            let bits = |machine: &DeviceMachine| -> Vec<u32> {
                machine.f32_row(LOGITS, row).expect("logits").into_iter().map(f32::to_bits).collect()
            };
            let what = format!("{flow} {phase:?}, row {row} of {positions:?}, {cut:?}");
            assert_eq!(bits(&dense), bits(&both.device), "{what}");
        }
    }
}

/// Every algorithm whose blocks are attended to on a device; a program of a prompt, of which steps
/// within the budget are, attends to everything by the same tasks whatever the flow.
#[test]
fn a_covering_budget_gives_the_bits_of_dense_attention() {
    let cut = Cut { rows: 1, head_dim: 32, context: 128, budget: (8, 0.0, 0, 1), seed: 22, ..CUT };
    for algorithm in algorithms::ALL.iter().filter(|algorithm| algorithm.name != "h2o-tokens") {
        check(algorithm.name, Phase::Decode, cut, &[vec![100]], 1);
    }
    let tokens = Cut { block_tokens: 1, budget: (128, 0.0, 0, 1), ..cut };
    for (name, cut) in [("quest", cut), ("h2o", cut), ("h2o-tokens", tokens)] {
        check(name, Phase::Prompt, cut, &[vec![15], vec![100]], 1);
    }
}

/// Around the ends of blocks, pages and splits; with heads whose tokens are streamed in stages of
/// several blocks, of one, and not at all; rows that are covered beside one that is not.
#[test]
fn rows_that_a_budget_covers_have_the_bits_of_dense_attention() {
    let positions = [0, 14, 15, 16, 31, 32, 63, 64, 95, 96, 100, 127, 128, 175];
    for (head_dim, page_tokens, seed) in [(16, 32, 31), (32, 64, 32), (128, 32, 33)] {
        let cut = Cut { rows: 3, head_dim, page_tokens, budget: (9, 0.0, 1, 1), seed, ..CUT };
        let steps = positions.iter().zip(positions.iter().rev()).map(|(&a, &b)| vec![a, b, 200 + a % 100]);
        let steps: Vec<_> = steps.step_by(if head_dim == 16 { 2 } else { 5 }).collect();
        check("block-sparse", Phase::Decode, cut, &steps, 2);
    }
}
