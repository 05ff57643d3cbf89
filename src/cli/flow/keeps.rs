//! Measures the share of dense attention that each flow keeps, on a model's own activations and on
//! a planted needle.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use tilewright_flow::algorithms::{Algorithm, CalibrationSample};
use tilewright_flow::memory::Budget;
use tilewright_flow::run::{FlowExecutor as _, Interpreter, KeptAttention, LayerActivations, kept};
use tilewright_flow::{ModelShape, Parameters, RunError, Traced, algorithms};

use super::activations::{Layer, activations};
use crate::cli::Failure;
use crate::cli::load::load;
use crate::engine::{Device, Engine, Request, Sampling};

/// The subject of the measurement.
#[derive(Args)]
pub struct KeepsArgs {
    /// Folder of a Hugging Face checkpoint, or ORG/MODEL in the local cache
    #[arg(long, value_name = "MODEL")]
    model: PathBuf,
    /// Measure this flow alone; may be given several times
    #[arg(long, value_name = "NAME")]
    flow: Vec<String>,
    /// Tokens of the sequence, which the model continues from this prompt at temperature 1
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Text that the sequence begins with
    #[arg(long, value_name = "TEXT", default_value = "The")]
    prompt: String,
    /// Blocks that a flow chooses besides the first and the last
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [4u32, 8, 16, 32, 64],
        value_parser = clap::value_parser!(u32).range(1..))]
    budgets: Vec<u32>,
    /// Tokens of a block; a flow that takes other blocks gets the same number of tokens
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    block: u32,
    /// Decode steps at the end of the sequence that are measured
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
}

/// Random sequences with a needle.
const TRIALS: u64 = 16;

/// Runs the subcommand.
pub fn run(args: &KeepsArgs) -> Result<(), Failure> {
    let mut flows: Vec<&Algorithm> = args.flow.iter().map(|name| algorithms::named(name)).collect::<Result<_, _>>()?;
    if flows.is_empty() {
        flows.extend(algorithms::ALL);
    }
    let engine = load(&args.model, Device::cpu())?;
    let ids = sequence(&engine, args)?;
    let layers = activations(engine.checkpoint(), &ids)?;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{} tokens, {} steps, blocks of {}; first and last block besides",
        ids.len(),
        args.steps,
        args.block
    )?;
    let heads = args.budgets.iter().map(|budget| format!(" {budget}: mass, error | needle |"));
    writeln!(out, "| flow |{}", heads.collect::<String>())?;
    writeln!(out, "|---|{}", "---|---|".repeat(args.budgets.len()))?;
    for algorithm in flows {
        let traced = algorithm.trace()?;
        write!(out, "| `{}` |", algorithm.name)?;
        for &blocks in &args.budgets {
            let (block_tokens, budget) = fitting(&traced, args.block as usize, blocks)?;
            let spec = engine.spec();
            let model =
                ModelShape { kv_heads: spec.kv_heads, group: spec.group(), head_dim: spec.head_dim, block_tokens };
            let flow = MeasuredFlow { algorithm, traced: &traced };
            let KeptAttention { mass, error } = over_layers(&flow, &model, &layers, args.steps as usize, &budget)?;
            let found = needles(&flow, block_tokens, &budget)?;
            write!(out, " {mass:.3}, {error:.3} | {found}/{TRIALS} |")?;
            out.flush()?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A flow that is measured.
struct MeasuredFlow<'f> {
    algorithm: &'static Algorithm,
    traced: &'f Traced,
}

impl MeasuredFlow<'_> {
    /// Its parameters, where it has some, measured on these activations.
    fn parameters(&self, model: &ModelShape, seen: CalibrationSample<'_>) -> Result<Parameters, Failure> {
        match self.traced.declared.parameters.is_empty() {
            true => Ok(Parameters::new()),
            false => Ok(self.algorithm.calibrate(model, seen)?),
        }
    }
}

/// Blocks that the flow takes, and a budget of the same number of tokens.
fn fitting(traced: &Traced, block: usize, blocks: u32) -> Result<(usize, Budget), RunError> {
    let block_tokens = traced.block_tokens(block);
    let blocks = (u64::from(blocks) * block as u64).div_ceil(block_tokens as u64);
    Ok((block_tokens, Budget::new(u32::try_from(blocks).unwrap_or(u32::MAX), 0.0, 1, 1)?))
}

/// The prompt and what the model makes of it.
fn sequence(engine: &Engine, args: &KeepsArgs) -> Result<Vec<u32>, Failure> {
    let mut ids = engine.tokenizer().encode(&args.prompt)?;
    let tokens = (args.tokens as usize).min(engine.spec().max_positions);
    // An end of a sequence ends no measurement: it goes on from there.
    while ids.len() < tokens {
        let sampling = Sampling::default().temperature(1.0).seed(ids.len() as u64);
        let request = Request { prompt_ids: ids.clone(), max_new_tokens: tokens - ids.len() };
        let (completions, _) = engine.generate(&[request], sampling, |_, _| ())?;
        ids.extend(&completions[0].token_ids);
    }
    ids.truncate(tokens);
    Ok(ids)
}

/// The mean over layers. Parameters are measured on the tokens before the steps.
fn over_layers(
    flow: &MeasuredFlow,
    model: &ModelShape,
    layers: &[Layer],
    steps: usize,
    budget: &Budget,
) -> Result<KeptAttention, Failure> {
    let query = model.kv_heads * model.group * model.head_dim;
    let key = model.kv_heads * model.head_dim;
    let mut mean = KeptAttention::default();
    for layer in layers {
        let (before, queries) = layer.queries.split_at(layer.queries.len().saturating_sub(steps * query));
        let seen = CalibrationSample { queries: before, keys: &layer.keys[..before.len() / query * key] };
        let bound = flow.traced.bind(model, &flow.parameters(model, seen)?)?;
        let machine = Interpreter::new(&bound);
        let found = kept(&machine, LayerActivations { keys: &layer.keys, values: &layer.values, queries }, budget)?;
        mean.mass += found.mass / layers.len() as f64;
        mean.error += found.error / layers.len() as f64;
    }
    Ok(mean)
}

/// Random sequences of 1024 tokens, one of whose keys is the query: how often its block is
/// selected. Parameters are measured on the keys, as if each had been a query.
fn needles(flow: &MeasuredFlow, block_tokens: usize, budget: &Budget) -> Result<u64, Failure> {
    let model = ModelShape { kv_heads: 1, group: 1, head_dim: 64, block_tokens };
    let mut found = 0;
    for trial in 0..TRIALS {
        let mut state = trial.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut normal = || {
            // Twelve numbers of a linear congruence (Knuth, MMIX), summed: about normal.
            let unit = |state: &mut u64| {
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (*state >> 40) as f64 / f64::from(1u32 << 24)
            };
            (0..12).map(|_| unit(&mut state)).sum::<f64>() - 6.0
        };
        let tokens = 1024;
        let mut draw = |n: usize| (0..n).map(|_| normal()).collect::<Vec<f64>>();
        let mut keys = draw(tokens * 64);
        let values = draw(tokens * 64);
        let query = draw(64);
        let needle = 200 + 37 * trial as usize;
        keys[needle * 64..][..64].copy_from_slice(&query);
        let bound =
            flow.traced.bind(&model, &flow.parameters(&model, CalibrationSample { queries: &keys, keys: &keys })?)?;
        let machine = Interpreter::new(&bound);
        let pages: Vec<usize> = (0..tokens / block_tokens).collect();
        let mut pool = tilewright_flow::memory::FlowPool::new(&bound, block_tokens, pages.len())?;
        let mut requests = [tilewright_flow::memory::FlowRequest::new(&pool, &pages, 0)?];
        machine.append(&mut pool, &mut requests[0], &keys, &values)?;
        let rows = machine.step(&pool, &mut requests, &query, budget)?;
        found += u64::from(rows[0].selected.positions.contains(&((needle / block_tokens) as u32)));
    }
    Ok(found)
}
