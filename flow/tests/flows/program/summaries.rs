//! Summaries by a program of their own: the fields that a prompt's steps leave, bit for bit.

use std::sync::Arc;

use half::bf16;
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::sim::Checks;
use tilewright_codegen::target::Target;
use tilewright_flow::algorithms;
use tilewright_flow::memory::Budget;
use tilewright_flow::program::{FlowSettings, Lowered, Phase, summaries};
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower_indexed};
use tilewright_megakernel::program::{BufferKind, Program};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::DeviceOptions;
use tilewright_megakernel::vm::resident::DeviceWeights;
use tilewright_megakernel::weights::RandomWeights;

/// Two layers of two key heads.
fn spec() -> Llama {
    Llama::small().inner(64).vocab(40).heads(4, 2)
}

const PAGE: usize = 32;
const BLOCK: usize = 16;
/// Pages of the one sequence, not in order.
const TABLE: [i32; 4] = [2, 0, 3, 1];

fn prompt(flow: &FlowSettings, rows: usize) -> Program {
    let target = Target { sms: 3, ..Target::named("h100").expect("a target") };
    let base = LowerOptions::for_context(PAGE * TABLE.len());
    let options =
        LowerOptions { rows, kv: DType::BF16, page_tokens: PAGE, splits: Some(1), pages: Some(TABLE.len()), ..base };
    let mut indexer = Lowered::new(flow, Phase::Prompt, 1);
    lower_indexed(&spec(), &|_| DType::BF16, target, &options, Some(&mut indexer)).expect("a model that lowers")
}

#[test]
fn summaries_alone_are_those_of_a_prompts_steps() {
    for name in ["quest", "value-energy"] {
        let budget = Budget::new(2, 0.0, 1, 1).expect("a budget");
        let flow = FlowSettings::new(algorithms::named(name).unwrap().trace().unwrap(), BLOCK, budget).unwrap();
        let weights = Arc::new(RandomWeights::new(&spec(), DType::BF16, 7).expect("weights"));
        let device = Simulator::new(Options { seed: 3, sms: 3, checks: Checks::On, ..Options::default() }).device();
        let mut weights = DeviceWeights::on(vec![device], weights);
        let options = DeviceOptions { stage_bytes: 2048, ..DeviceOptions::for_simulator() };
        let program = prompt(&flow, 8);
        let fields: Vec<String> = {
            let pools = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool);
            pools.map(|pool| pool.name.clone()).filter(|name| name.contains(".flow.")).collect()
        };
        assert!(!fields.is_empty());
        let placed = schedule(program, 64).expect("a valid program");
        let mut steps = weights.machine(placed, None, options, &mut |_, _| ()).expect("a machine");
        // Three pages and a half: the last block is not complete.
        for first in (0..PAGE * 3 + 8).step_by(8) {
            let tokens = [3, 1, 4, 1, 5, 9, 2, 6];
            let positions = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| first as i32 + at);
            let tables = TABLE.repeat(8);
            steps.step(&StepCells { tokens: &tokens, positions: &positions, page_table: &tables }).expect("a step");
        }
        let read = |machine: &tilewright_megakernel::vm::device::DeviceMachine| -> Vec<Vec<bf16>> {
            fields.iter().map(|name| machine.pool(name).expect("a field")).collect()
        };
        let expected = read(&steps);
        for (name, values) in fields.iter().zip(&expected) {
            steps.set_pool(name, &vec![bf16::ZERO; values.len()]).expect("a field");
        }
        assert_ne!(read(&steps), expected);
        let alone = summaries(&prompt(&flow, 4)).expect("a program").expect("fields");
        let placed = schedule(alone, 64).expect("a valid program");
        let mut alone = weights.machine(placed, Some(steps.kv()), options, &mut |_, _| ()).expect("the same pools");
        for blocks in [[0, 1, 2, 3], [4, 5, -1, -1]] {
            let positions = blocks.map(|block| if block < 0 { -1 } else { (block + 1) * BLOCK as i32 - 1 });
            let tables = TABLE.repeat(4);
            alone.step(&StepCells { tokens: &[], positions: &positions, page_table: &tables }).expect("a step");
        }
        assert_eq!(read(&steps), expected, "{name}");
    }
}
