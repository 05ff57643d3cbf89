//! `tilewright plan`: before a GPU is there, what fits, what a token reads, how long it takes, and
//! which kernel serves it.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the subcommand, and what it prints |
//! | `cost` | the cost model of a step, and its comparison with measured rows |

pub mod cost;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use cost::{KnownBy, StepCost, StepLoad};
use thiserror::Error;
use tilewright_codegen::target::Target;
use tilewright_kernels::gemv::activations::AOperand;
use tilewright_layout::DType;
use tilewright_megakernel::edges::EdgeSummary;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::{Buffer, BufferKind};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::{DeviceOptions, Opcode, Plan};
use tilewright_megakernel::vm::device::{LinearTile, QkvTile, TileCode};

use super::Failure;
use super::forms::Forms;
use super::number;
use crate::checkpoint::{ModelConfig, Scheme, model_folder};

/// Say what a model needs of a GPU, and how fast it decodes there
///
/// Nothing runs on a device: the program is lowered and placed for it, and the cost model says the
/// rest. The model is compared with measured rows of H100 and H200 in the tests, and in the
/// dashboard's plan view.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright plan --config models/shapes/llama-3.1-8b.json --target h200 --batch 8 --context 4096")]
pub struct PlanArgs {
    /// Folder of a Hugging Face checkpoint, or ORG/MODEL in the local cache; only its configuration is read
    #[arg(long, value_name = "MODEL", required_unless_present = "config", conflicts_with = "config")]
    model: Option<PathBuf>,
    /// A config.json alone
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// GPU to plan for: h100, h200, a100, l4, l40s, rtx4090, rtx5090, b200
    #[arg(long, alias = "device", value_name = "NAME", value_parser = parse_device)]
    target: Target,
    /// Devices that share the model, 1 to 8
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    devices: u16,
    /// Sequences that are decoded together
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    batch: u16,
    /// Tokens that each sequence holds [default: the model's, at most 4096]
    #[arg(long, value_name = "TOKENS", value_parser = number::tokens())]
    context: Option<usize>,
    /// Quantise the linear layers while loading: w4a16, w8a16 or fp8
    #[arg(long, value_name = "SCHEME")]
    weights: Option<Scheme>,
    /// Print the edges of the plan: for each buffer which tasks write and read it, how results are
    /// handed over, and how they lie in memory
    #[arg(long)]
    explain: bool,
}

/// A name that is not a device.
#[derive(Debug, Error)]
#[error("`{found}` is not a known device; known are {known}")]
struct DeviceName {
    found: String,
    known: String,
}

fn parse_device(name: &str) -> Result<Target, DeviceName> {
    let gpu = |target: &Target| target.memory_bytes > 0;
    Target::named(name).filter(gpu).ok_or_else(|| {
        let known = Target::names().filter(|known| *known != "host").collect::<Vec<_>>().join(", ");
        DeviceName { found: name.to_owned(), known }
    })
}

/// Device memory that the driver and the kernels keep for themselves.
const RESERVED: u64 = 1 << 30;

/// The back end of a step, and the memory that each device keeps for it.
struct Served {
    by: String,
    kept: Vec<ResidentBytes>,
    edges: Vec<EdgeSummary>,
}

/// The memory that a device keeps, in bytes.
#[derive(Clone, Copy, Default)]
struct ResidentBytes {
    weights: u64,
    /// Keys and values.
    pools: u64,
    /// Activations and the tables of the program.
    program: u64,
}

impl ResidentBytes {
    fn all(self) -> u64 {
        self.weights + self.pools + self.program
    }
}

/// Runs the subcommand.
pub fn run(args: &PlanArgs) -> Result<ExitCode, Failure> {
    let ModelConfig { spec, quantization, .. } = match (&args.config, &args.model) {
        (Some(config), _) => ModelConfig::read(config)?,
        (None, Some(dir)) => ModelConfig::of_folder(&model_folder(dir)?)?,
        (None, None) => unreachable!("clap requires --model or --config"),
    };
    let forms = Forms::of(&spec, quantization, args.weights)?;
    let context = args.context.unwrap_or(spec.max_positions.min(4096));
    let target = &args.target;
    let rows = usize::from(args.batch);
    let devices = usize::from(args.devices);
    let load = StepLoad { rows, devices, context };
    let served = served(&spec, &forms, target, load)?;
    let step = StepCost::of(&spec, target, load).with_weights(forms.bytes(&spec, rows));
    print(&mut io::stdout().lock(), &PlanOutput { spec: &spec, target, load, step: &step, served: &served })?;
    if args.explain {
        explain(&mut io::stdout().lock(), &served.edges)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Lowers and places the step as `bench` and `generate` do, and asks the planner of the device
/// machine.
fn served(spec: &ModelSpec, forms: &Forms, target: &Target, load: StepLoad) -> Result<Served, Failure> {
    let StepLoad { rows, devices, context } = load;
    let options =
        LowerOptions { devices, rows, kv: DType::BF16, activation: DType::BF16, ..LowerOptions::for_context(context) };
    let options = options.splits_for_gpu(spec.kv_heads, target.sms);
    let none = |why: &dyn Display| Served { by: format!("no kernel: {why}"), kept: Vec::new(), edges: Vec::new() };
    if let Some(refused) = forms.not_shared(devices) {
        return Ok(none(&refused));
    }
    let program = lower(spec, &|_| DType::BF16, target.clone(), &options)?.with_forms(&|name| forms.get(name));
    let placed = schedule(program, context)?;
    let plan = match Plan::new(&placed, DeviceOptions::default()) {
        Ok(plan) => plan,
        Err(why) => return Ok(none(&why)),
    };
    let mut ways: Vec<String> = plan.opcodes.iter().filter_map(way).collect();
    ways.sort();
    ways.dedup();
    let by = format!(
        "the megakernel: {} blocks, a ring of {} stages of {} KB; {}",
        plan.blocks,
        plan.options.thresholds.stages,
        plan.options.stage_bytes >> 10,
        ways.join(", ")
    );
    let kept = |device: usize| {
        let lies = |buffer: &&Buffer| buffer.device.is_none_or(|on| on.index() == device);
        let pools = placed.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool).filter(lies);
        ResidentBytes {
            weights: plan.packed_of(device) + plan.plain_bytes,
            pools: pools.filter_map(Buffer::bytes).map(|bytes| bytes as u64).sum(),
            program: plan.places.state + plan.tables.len() as u64,
        }
    };
    Ok(Served { by, kept: (0..devices).map(kept).collect(), edges: plan.edges.summary(&placed) })
}

/// The storage of a product's activations.
fn way(opcode: &Opcode) -> Option<String> {
    let linear = opcode.get::<LinearTile>().map(|linear| linear.tile);
    let TileCode { product, .. } = linear.or_else(|| opcode.get::<QkvTile>().map(|qkv| qkv.tile))?;
    let place = match product.a_operand {
        AOperand::Shared => "shared memory",
        AOperand::Registers => "registers",
        AOperand::Phases { .. } => "registers, some columns of all strips at a time",
        AOperand::Reloaded { .. } => "the ring's stages",
    };
    Some(format!("activations of k={} in {place}", product.strip.k()))
}

/// The contents of the output.
struct PlanOutput<'a> {
    spec: &'a ModelSpec,
    target: &'a Target,
    load: StepLoad,
    step: &'a StepCost,
    served: &'a Served,
}

/// Prints the edges of a plan, a line for each buffer and way of handing it over.
fn explain(to: &mut dyn Write, edges: &[EdgeSummary]) -> io::Result<()> {
    writeln!(to)?;
    writeln!(to, "{:<14} {:>11} {:>13}  {:<33} layout", "buffer", "generations", "tasks", "transport")?;
    edges.iter().try_for_each(|edge| writeln!(to, "{edge}"))
}

fn print(to: &mut dyn Write, planned: &PlanOutput) -> io::Result<()> {
    let PlanOutput { spec, target, load: StepLoad { rows, context, .. }, step, served } = *planned;
    let giga = 1e-9;
    let milli = 1e3;
    let devices = match step.devices {
        1 => String::new(),
        devices => format!("{devices} devices, "),
    };
    writeln!(
        to,
        "{} of {} layers on {}, {devices}batch {rows}, context {context}",
        spec.name(),
        spec.layers,
        target.name
    )?;
    // Where no kernel serves it, what a step reads.
    let read = ResidentBytes { weights: step.weights, pools: step.cache, program: 0 };
    let largest = served.kept.iter().copied().max_by_key(|kept| kept.all()).unwrap_or(read);
    let fits = if largest.all() + RESERVED <= target.memory_bytes { "fits" } else { "DOES NOT FIT" };
    let each = if step.devices > 1 { "each: " } else { "" };
    writeln!(
        to,
        "memory     {each}{:.2} GB weights, {:.3} GB program and its state, {:.2} GB keys and values, {:.2} GB for the driver, of {:.1} GB: {fits}",
        largest.weights as f64 * giga,
        largest.program as f64 * giga,
        largest.pools as f64 * giga,
        RESERVED as f64 * giga,
        target.memory_bytes as f64 * giga,
    )?;
    let each = (step.cache / (rows * context).max(1) as u64).max(1);
    let room = target.memory_bytes.saturating_sub(largest.weights + largest.program + RESERVED) / each;
    writeln!(
        to,
        "room       {room} tokens in all sequences together; the model was made for {} in one",
        spec.max_positions
    )?;
    writeln!(
        to,
        "a token    {:.3} GB read{}: {:.3} weights, {:.3} keys and values",
        step.bytes() as f64 * giga,
        if step.devices > 1 { " by each" } else { "" },
        step.weights as f64 * giga,
        step.cache as f64 * giga
    )?;
    let exchanges = match step.exchanges {
        0 => String::new(),
        count => format!(", {:.3} for {count} exchanges", step.exchanging * milli),
    };
    let known_by = match step.known_by {
        KnownBy::Probe => "a read probe",
        KnownBy::DecodeRows => "its decode rows",
        KnownBy::DataSheet => "the data sheet",
    };
    writeln!(
        to,
        "time       {:.3} ms: {:.3} reading at {:.3} TB/s ({known_by}), {:.3} for {} levels, {:.3} for activations{exchanges}; {:.0} tokens/s",
        step.seconds() * milli,
        step.reading * milli,
        step.rate * 1e-12,
        step.waiting * milli,
        step.levels,
        step.activations * milli,
        rows as f64 / step.seconds(),
    )?;
    writeln!(to, "served by  {}", served.by)
}
