//! A crate that brings a flow of its own to the decode steps of a small Llama, on the reference
//! machine.
//!
//! `cargo run -p tilewright-flow --example custom_flow`. It decodes with dense attention, with a
//! budget that covers the sequence, and with two blocks of choice; it fails where the first two
//! differ by more than rounding, or the third does not.

mod newest_and_loudest;

use std::error::Error;

use tilewright_codegen::target::Target;
use tilewright_flow::memory::Budget;
use tilewright_flow::program::{FlowSettings, Lowered, Phase};
use tilewright_flow::trace;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{Indexer, LOGITS, LowerOptions, lower_indexed};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::weights::RandomWeights;

use newest_and_loudest::NewestAndLoudest;

/// Longest sequence.
const CONTEXT: usize = 64;
/// Tokens of a block.
const BLOCK: usize = 4;

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(2);
    }
}

/// Two layers, GQA of two.
fn spec() -> Llama {
    Llama::small().hidden(32).inner(32).vocab(40).max_positions(CONTEXT).heads(4, 2)
}

/// The logits after the last of 60 tokens, fed one by one.
fn logits(flow: Option<&FlowSettings>) -> Result<Vec<f32>, Box<dyn Error>> {
    let spec = spec();
    let target = Target::host(2);
    let options = LowerOptions { page_tokens: 16, ..LowerOptions::for_context(CONTEXT) };
    let mut lowered = flow.map(|flow| Lowered::new(flow, Phase::Decode, 1));
    let indexer = lowered.as_mut().map(|lowered| lowered as &mut dyn Indexer);
    let placed = schedule(lower_indexed(&spec, &|_| DType::F32, target, &options, indexer)?, CONTEXT)?;
    let weights = RandomWeights::new(&spec, DType::F32, 7)?;
    let mut machine = Machine::new(placed, &weights, 2)?;
    let mut kv = KvState::new(machine.program())?;
    let mut logits = Vec::new();
    for position in 0..60 {
        let cells = StepCells { tokens: &[position * 7 % 40], positions: &[position], page_table: &[3, 0, 2, 1] };
        logits = machine.step(&mut kv, &cells)?.f32(LOGITS)?;
    }
    Ok(logits)
}

fn run() -> Result<(), Box<dyn Error>> {
    let flow = |blocks| -> Result<FlowSettings, Box<dyn Error>> {
        let budget = Budget::new(blocks, 0.0, 1, 1)?;
        Ok(FlowSettings::new(trace(&NewestAndLoudest { fading: 0.01 })?, BLOCK, budget)?)
    };
    let dense = logits(None)?;
    let apart = |other: &[f32]| dense.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max);
    let all = apart(&logits(Some(&flow(CONTEXT as u32)?))?);
    let few = apart(&logits(Some(&flow(2)?))?);
    println!("logits after 60 tokens, against dense attention: all blocks {all:.1e}, 4 of 15 blocks {few:.1e}");
    if all.is_nan() || all > 1e-5 || few.is_nan() || few <= 1e-5 {
        return Err("all blocks are dense attention, and four of them are not".into());
    }
    Ok(())
}
