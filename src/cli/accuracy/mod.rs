//! `tilewright accuracy`: compares a device's logits with the reference machine in f32, and its
//! error with a peer's.
//!
//! Rows of a batch are sequences at positions of their own. Their history is drawn, not decoded:
//! keys and values of mean 0 and deviation 1, rounded to bf16, determined by row, layer and token.
//! So one step is compared, at any position, and a peer that draws the same weights and history
//! (`benches/peers/accuracy.py`) computes the same step. Pages lie in reverse order.
//!
//! Batches of more than 16 rows are steps of a graph of launches. So are prompts, whose rows are
//! the first tokens of one sequence.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use half::bf16;
use half::slice::HalfFloatSliceExt;
use safetensors::SafeTensors;
use thiserror::Error;
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, MAX_ROWS, StepPlan, lower, plan};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::Program;
use tilewright_megakernel::schedule::{TYPICAL_CONTEXT, schedule};
use tilewright_megakernel::vm::LoadError;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::graph::{AnyGraph, PeerWeights};
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::vm::resident::DeviceWeights;
use tilewright_megakernel::weights::Uniform;

use super::Failure;
use super::bench::this_call;
use super::device::GpuArgs;
use super::input::{self, InputError};
use super::output::CommandOutput;
use super::progress::ItemBar;
use super::subject::{ModelSource, SEED, StepInputs, relative};
use crate::engine::{self, Device, KvType, Opened};
use crate::results::{OURS, ResultRow, write_call, write_row};

#[cfg(test)]
mod tests;

/// Compare a device's logits with those of the reference machine in f32
///
/// Compares each position alone, then batches whose rows are at different positions. With a peer's
/// logits of the same steps, no row may be further from the reference than the peer's bf16. Exits
/// with 1 if a row is, or a batch is refused.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright accuracy --config models/shapes/llama-3.2-1b.json --positions 1,200 --batches 2,8")]
pub struct AccuracyArgs {
    #[command(flatten)]
    source: ModelSource,
    #[command(flatten)]
    device: GpuArgs,
    /// Positions of the token that is decoded
    #[arg(long, value_name = "P,..", value_delimiter = ',', default_value = "1,200,1024,4096", value_parser = positions())]
    positions: Vec<usize>,
    /// Rows of the batches
    #[arg(long, value_name = "B,..", value_delimiter = ',', default_value = "2,4,8,16", value_parser = rows())]
    batches: Vec<usize>,
    /// Lengths of prompts, each a step of a graph of launches
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = rows())]
    prompts: Vec<usize>,
    /// Keys and values: bf16 on the device and f32 in the reference, or fp8 (e4m3) in both
    #[arg(long, value_name = "TYPE", default_value = "bf16")]
    kv: KvType,
    /// Logits of a peer for the same steps, from benches/peers/accuracy.py
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
    /// Write the rows to this file, one JSON object a line
    #[arg(long, value_name = "FILE", alias = "json")]
    out: Option<PathBuf>,
}

/// Positions that some model may have: numbers of them are i32.
fn positions() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(0..=(1 << 31) - 2)
}

fn rows() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=MAX_ROWS as u64)
}

/// Most rows of a step of the decode machine.
const MOST_ROWS: usize = 16;
/// Most bytes of a peer's logits.
const PEER_BYTES: u64 = 1 << 30;

/// Limit of the relative error of logits for any model: bf16 operands, f32 sums.
const LIMIT: f64 = 2e-2;
/// Limits as multiples of the error that bf16 operands alone cause: of the worst row, and of the
/// mean.
///
/// A device rounds at the same places, but other sums: the two errors are alike in size and
/// independent. With few rows the worst differs by a third, the mean by a tenth. A graph rounds
/// normalised queries and keys twice, which makes 1.4 times the error. Truncation instead of
/// rounding makes the mean 1.45 to 1.8 times as large.
const ROUNDED: [f64; 2] = [1.5, 1.4];
/// Limit of a peer's f32 error: another order of sums, and angles that are rounded elsewhere.
const SAME: f64 = 1e-3;

#[derive(Debug, Error)]
enum AccuracyError {
    #[error("the peer's logits `{}` cannot be read", path.display())]
    Peer {
        path: PathBuf,
        #[source]
        source: InputError,
    },
    #[error("the peer's file has no `{name}`; write it with the same --config, --positions, --batches and --prompts")]
    Missing { name: String },
    #[error("the peer's `{name}` has {found} elements, and {expected} are compared")]
    Length { name: String, expected: usize, found: usize },
    #[error("the peer's case {case} is at positions {found:?}, ours at {expected:?}")]
    Positions { case: usize, expected: Vec<usize>, found: Vec<usize> },
}

/// A step of an accuracy run: the position of every row.
struct AccuracyCase {
    positions: Vec<usize>,
    page_tokens: usize,
    /// Whether its rows are the first tokens of one sequence; else each is a sequence of its own.
    prompt: bool,
}

/// The machine that decodes and, of a step that it is too narrow for, a graph on its pools.
type MachineWithGraph = (DeviceMachine, Option<AnyGraph>);

/// Weights on the devices: those of the decode machine and those of graphs.
struct Resident {
    decode: DeviceWeights,
    graphs: PeerWeights,
}

/// The error of each row of a step against the reference, ‖found − expected‖ / ‖expected‖.
struct Finding {
    hidden: usize,
    layers: usize,
    positions: Vec<usize>,
    error: Vec<f64>,
    /// Errors of a peer that computes in bf16, and of one that computes in f32.
    peer_bf16: Vec<f64>,
    peer_f32: Vec<f64>,
    /// Limits of the worst row and of the mean.
    limits: [f64; 2],
    /// Time of the reference machine, seconds.
    reference_s: f64,
}

/// Runs the subcommand.
pub fn run(args: &AccuracyArgs) -> Result<ExitCode, Failure> {
    let device = args.device.get()?;
    let output = args.out.as_deref().map(CommandOutput::create).transpose()?;
    let read = |path: &PathBuf| {
        input::read_bytes(path, PEER_BYTES).map_err(|source| AccuracyError::Peer { path: path.clone(), source })
    };
    let peer = args.peer.as_ref().map(read).transpose()?;
    let peer = peer.as_deref().map(SafeTensors::deserialize).transpose()?;
    let place = device;
    let Opened { device, devices, target, options, .. } = engine::open(place)?;
    let several = devices.len();
    let (spec, weights) = args.source.open()?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let name = device.properties().name.clone();
    let mut resident = Resident {
        decode: DeviceWeights::on(devices.clone(), weights.clone()),
        graphs: PeerWeights::new(&devices, &weights),
    };
    let mut findings = Vec::new();
    let mut right = true;
    writeln!(io::stdout(), "{:5} {:28} {:>9} {:>9} {:>9}", "batch", "positions", "worst", "bf16 peer", "f32 peer")?;
    let cases = cases(args);
    let bar = ItemBar::new("comparing", cases.len());
    bar.show(0, cases.len());
    for (at, case) in cases.iter().enumerate() {
        let base = case.options();
        let base = match args.kv {
            KvType::Bf16 => base,
            KvType::Fp8 => LowerOptions { kv: args.kv.dtype(), ..base },
        };
        let on_gpu = LowerOptions { kv: args.kv.dtype(), activation: DType::BF16, devices: several, ..base.clone() };
        let dtype_of = |name: &str| weights.tensor(name).map_or(DType::BF16, |tensor| tensor.dtype());
        let program = |target: Target, options: &LowerOptions| -> Result<Program, Failure> {
            Ok(lower(&spec, &dtype_of, target, options)?.stored_as(&*weights))
        };
        let options_of = |rows| LowerOptions { rows, ..on_gpu.clone() };
        let made = MachinesOf {
            narrow: {
                let options = options_of(case.narrow_rows()).splits_for_gpu(spec.kv_heads, target.sms);
                program(target.clone(), &options)?
            },
            wide: match case.is_wide() {
                true => {
                    let step = plan(&spec, &dtype_of, target.clone(), &options_of(case.positions.len()))?;
                    Some(step.stored_as(&*weights))
                }
                false => None,
            },
        };
        let (mut machine, mut graph) = match machines(made, options, &mut resident)? {
            Err(LoadError::Unsupported(why)) => {
                right = false;
                bar.suspend(|| writeln!(io::stdout(), "{:5} refused: {why}", case.positions.len()))?;
                bar.advance();
                continue;
            }
            machines => machines?,
        };
        let placed = schedule(program(Target::host(workers), &base)?, TYPICAL_CONTEXT)?;
        let mut reference = Machine::new(placed, &*weights, workers)?;
        let mut kv = KvState::new(reference.program())?;
        case.each_history(&spec, &mut |name, pool| {
            kv.write(name, 0, &pool.to_f32_vec())?;
            let pool = SharedPool { name, values: pool, devices: several, stored_as: args.kv };
            send_history(&spec, &pool, &kv, &mut machine)
        })?;
        let cells = case.cells(&spec);
        let found = match &mut graph {
            Some(graph) => {
                let mut all = Vec::new();
                let rows: Vec<usize> = (0..case.positions.len()).collect();
                graph.step(&cells.view(), &rows, &mut |_, logits| all.extend_from_slice(logits))?;
                all
            }
            None => {
                machine.step(&cells.view())?;
                machine.f32(LOGITS)?
            }
        };
        let start = Instant::now();
        let expected = reference.step(&mut kv, &cells.view())?.f32(LOGITS)?;
        let reference_s = start.elapsed().as_secs_f64();
        let errors = |found: &[f32]| -> Vec<f64> {
            let rows = found.chunks_exact(spec.vocab).zip(expected.chunks_exact(spec.vocab));
            rows.map(|(found, expected)| relative(found, expected)).collect()
        };
        let logits = |dtype: &str| match &peer {
            Some(peer) => case.peer(peer, at, dtype, expected.len()),
            None => Ok(Vec::new()),
        };
        let error = errors(&found);
        let limits = match error.iter().all(|&error| error <= LIMIT) {
            true => [LIMIT; 2],
            false => {
                // The error that bf16 operands alone cause in this model's step.
                let options = LowerOptions { kv: args.kv.dtype(), ..base };
                let placed = schedule(program(Target::host(workers), &options)?, TYPICAL_CONTEXT)?;
                let mut rounded = Machine::new(placed, &*weights, workers)?;
                rounded.set_operands(Some(|x| bf16::from_f32(x).to_f32()));
                limits(&errors(&case.logits(&spec, &mut rounded)?))
            }
        };
        let finding = Finding {
            hidden: spec.hidden,
            layers: spec.layers,
            positions: case.positions.clone(),
            error,
            limits,
            peer_bf16: errors(&logits("bf16")?),
            peer_f32: errors(&logits("f32")?),
            reference_s,
        };
        right &= bar.suspend(|| finding.print(&mut io::stdout()))?;
        findings.push(finding);
        bar.advance();
    }
    drop(bar);
    if let Some(output) = output {
        let ordinal = if let Device::Cuda { ordinal } = place { Some(ordinal) } else { None };
        output.write(|file| {
            write_call(file, &this_call(name, ordinal))?;
            findings.iter().flat_map(Finding::rows).try_for_each(|row| write_row(file, &row))
        })?;
    }
    Ok(ExitCode::from(u8::from(!right)))
}

/// The programs of a case.
struct MachinesOf {
    /// The persistent kernel's program.
    narrow: Program,
    /// The step of a wide case.
    wide: Option<StepPlan>,
}

/// Makes the machines of a case.
fn machines(
    of: MachinesOf,
    options: DeviceOptions,
    resident: &mut Resident,
) -> Result<Result<MachineWithGraph, LoadError>, Failure> {
    let placed = schedule(of.narrow.with_cut_sums(&options)?, TYPICAL_CONTEXT)?;
    let (decode, wide) = match (resident.decode.machine(placed, None, options, &mut |_, _| ()), of.wide) {
        (Ok(decode), Some(wide)) => (decode, wide),
        (decode, _) => return Ok(decode.map(|decode| (decode, None))),
    };
    resident.graphs.share(&resident.decode);
    let graph = resident.graphs.machine(wide, Some(decode.kv()), &mut |_, _| ());
    Ok(graph.map(|graph| (decode, Some(graph))))
}

/// A callback for each pool, by name.
type EachPool<'e> = &'e mut dyn FnMut(&str, &[bf16]) -> Result<(), Failure>;

/// A pool of keys or values that devices share.
struct SharedPool<'a> {
    name: &'a str,
    values: &'a [bf16],
    devices: usize,
    stored_as: KvType,
}

/// Sends a pool to all devices: its numbers, or the codes of the reference.
fn send_history(spec: &ModelSpec, pool: &SharedPool, kv: &KvState, machine: &mut DeviceMachine) -> Result<(), Failure> {
    let SharedPool { name, values, devices, stored_as } = *pool;
    let codes = kv.codes(name).unwrap_or_default();
    for device in 0..devices {
        // Each device has the heads that it needs; with fewer heads than devices, several have the
        // same.
        let head = device * spec.kv_heads / devices;
        let heads = (spec.kv_heads / devices).max(1);
        let part = |len: usize| head * (len / spec.kv_heads)..(head + heads) * (len / spec.kv_heads);
        let name = if devices > 1 { format!("{name}.dev{device}") } else { name.to_owned() };
        match stored_as {
            KvType::Bf16 => machine.set_pool(&name, &values[part(values.len())])?,
            KvType::Fp8 => machine.set_pool_codes(&name, &codes[part(codes.len())])?,
        }
    }
    Ok(())
}

/// The largest error of some rows, and their mean.
fn worst_and_mean(errors: &[f64]) -> [f64; 2] {
    let worst = errors.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0);
    [worst, errors.iter().sum::<f64>() / errors.len().max(1) as f64]
}

/// Limits of the worst row and of the mean, given the errors that bf16 operands alone cause.
fn limits(rounded: &[f64]) -> [f64; 2] {
    let [worst, mean] = worst_and_mean(rounded);
    [LIMIT.max(ROUNDED[0] * worst), ROUNDED[1] * mean]
}

/// Whether the errors of all rows are within the limits.
fn is_near(errors: &[f64], limits: [f64; 2]) -> bool {
    let [worst, mean] = worst_and_mean(errors);
    // NaN is not.
    worst <= LIMIT || (worst <= limits[0] && mean <= limits[1])
}

/// The cases: each position alone; then the batches, whose rows cycle through the positions; then
/// the prompts.
fn cases(args: &AccuracyArgs) -> Vec<AccuracyCase> {
    let turn = args.positions.len().max(1);
    let alone = args.positions.iter().map(|&position| vec![position]);
    let together = args.batches.iter().map(|&rows| {
        let position = |row: usize| args.positions.get(row % turn).map_or(0, |&position| position + row / turn);
        (0..rows).map(position).collect()
    });
    let page_tokens = LowerOptions::for_context(1).page_tokens;
    let rows = alone.chain(together).map(|positions| AccuracyCase { positions, page_tokens, prompt: false });
    let prompts = args.prompts.iter().map(|&tokens| (0..tokens).collect());
    rows.chain(prompts.map(|positions| AccuracyCase { positions, page_tokens, prompt: true })).collect()
}

impl AccuracyCase {
    /// Whether it has more rows than a decode machine.
    fn is_wide(&self) -> bool {
        self.prompt || self.positions.len() > MOST_ROWS
    }

    /// Rows of its decode machine: of a wide case that decodes one row after the prompts.
    fn narrow_rows(&self) -> usize {
        if self.is_wide() { 1 } else { self.positions.len() }
    }

    fn pages_of(&self, row: usize) -> usize {
        self.positions[row] / self.page_tokens + 1
    }

    fn pages(&self) -> usize {
        match self.prompt {
            true => self.positions.last().map_or(0, |last| last / self.page_tokens + 1),
            false => (0..self.positions.len()).map(|row| self.pages_of(row)).sum(),
        }
    }

    /// Options that the programs share; f32 throughout.
    fn options(&self) -> LowerOptions {
        let context = self.positions.iter().max().map_or(1, |most| most + 1);
        let rows = self.positions.len();
        LowerOptions {
            rows,
            pages: Some(self.pages()),
            page_tokens: self.page_tokens,
            ..LowerOptions::for_context(context)
        }
    }

    /// The page of an entry of a row's table: the last page is the first row's first.
    fn page(&self, row: usize, entry: usize) -> usize {
        let before: usize = if self.prompt { 0 } else { (0..row).map(|row| self.pages_of(row)).sum() };
        self.pages() - 1 - before - entry
    }

    fn cells(&self, spec: &ModelSpec) -> StepInputs {
        let entries = self.options().pages_per_sequence();
        let table = |row: usize| {
            let used = if self.prompt { self.pages() } else { self.pages_of(row) };
            (0..entries).map(move |entry| self.page(row, entry.min(used - 1)) as i32)
        };
        let token = |(row, position): (usize, &usize)| ((row * 7 + position * 13 + 11) % spec.vocab) as i32;
        StepInputs {
            tokens: self.positions.iter().enumerate().map(token).collect(),
            positions: self.positions.iter().map(|&position| position as i32).collect(),
            page_table: (0..self.positions.len()).flat_map(table).collect(),
        }
    }

    /// The keys or values of all rows' tokens before their positions as a pool, `[kv_heads, pages,
    /// page_tokens, head_dim]`.
    fn history(&self, spec: &ModelSpec, layer: usize, which: &str) -> Vec<bf16> {
        let heads = spec.kv_heads;
        let dim = spec.head_dim;
        let page_tokens = self.page_tokens;
        let mut pool = vec![bf16::ZERO; heads * self.pages() * page_tokens * dim];
        for (row, &tokens) in self.positions.iter().enumerate().filter(|_| !self.prompt) {
            let name = format!("history.{row}.layers.{layer}.{which}");
            let drawn = Uniform::with_deviation(1.0).bf16(&name, SEED, tokens * heads * dim);
            for (at, values) in drawn.chunks_exact(dim).enumerate() {
                let token = at / heads;
                let head = at % heads;
                let page = self.page(row, token / page_tokens);
                let start = ((head * self.pages() + page) * page_tokens + token % page_tokens) * dim;
                pool[start..start + dim].copy_from_slice(values);
            }
        }
        pool
    }

    /// Calls back with the keys and values before the step, by the name of their pool.
    fn each_history(&self, spec: &ModelSpec, each: EachPool) -> Result<(), Failure> {
        for (layer, which) in (0..spec.layers).flat_map(|layer| [(layer, "k"), (layer, "v")]) {
            each(&format!("layers.{layer}.{which}"), &self.history(spec, layer, which))?;
        }
        Ok(())
    }

    /// The logits of a reference machine.
    fn logits(&self, spec: &ModelSpec, machine: &mut Machine) -> Result<Vec<f32>, Failure> {
        let mut kv = KvState::new(machine.program())?;
        self.each_history(spec, &mut |name, pool| Ok(kv.write(name, 0, &pool.to_f32_vec())?))?;
        Ok(machine.step(&mut kv, &self.cells(spec).view())?.f32(LOGITS)?)
    }

    /// A peer's logits of this step, `[rows, vocab]`.
    fn peer(&self, file: &SafeTensors, case: usize, dtype: &str, expected: usize) -> Result<Vec<f32>, Failure> {
        let values = |name: String| -> Result<Vec<f32>, AccuracyError> {
            let tensor = file.tensor(&name).map_err(|_| AccuracyError::Missing { name: name.clone() })?;
            Ok(tensor.data().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
        };
        let found: Vec<usize> =
            values(format!("positions.{case}"))?.iter().map(|&position| position as usize).collect();
        if found != self.positions {
            return Err(AccuracyError::Positions { case, expected: self.positions.clone(), found }.into());
        }
        let name = format!("{dtype}.{case}");
        let logits = values(name.clone())?;
        if logits.len() != expected {
            return Err(AccuracyError::Length { name, expected, found: logits.len() }.into());
        }
        Ok(logits)
    }
}

impl Finding {
    /// Whether every row is within the limits, and no further from the reference than the peer's
    /// bf16.
    fn is_right(&self) -> bool {
        is_near(&self.error, self.limits)
            && self.error.iter().zip(&self.peer_bf16).all(|(ours, peer)| ours <= peer)
            && self.peer_f32.iter().all(|&error| error <= SAME)
    }

    /// The rows of a step: ours and the peer's, each with the error of its worst row, and those of
    /// all rows by name.
    fn rows(&self) -> Vec<ResultRow> {
        let shape = [("rows", self.positions.len()), ("hidden", self.hidden), ("layers", self.layers)];
        let shown: Vec<String> = self.positions.iter().take(5).map(usize::to_string).collect();
        let more = if self.positions.len() > 5 { " .." } else { "" };
        let row = |who: &str, errors: &[f64]| {
            let position = |(at, position): (usize, &usize)| (format!("position of row {at}"), *position as f64);
            let error = |(at, error): (usize, &f64)| (format!("error of row {at}"), *error);
            let positions = self.positions.iter().enumerate().map(position);
            ResultRow {
                suite: "accuracy".into(),
                who: who.into(),
                shape: shape.map(|(name, extent)| (name.to_owned(), extent as u64)).into(),
                variant: format!("positions {}{more}", shown.join(" ")),
                error: errors.iter().copied().max_by(f64::total_cmp),
                values: positions.chain(errors.iter().enumerate().map(error)).collect(),
                ..ResultRow::default()
            }
        };
        let mut ours = row(OURS, &self.error);
        ours.values.insert("reference_s".into(), self.reference_s);
        for (name, value) in ["limit", "limit of the mean"].into_iter().zip(self.limits) {
            ours.values.insert(name.into(), value);
        }
        ours.verdict = Some(if self.is_right() { "right" } else { "WRONG" }.into());
        let peers = [("pytorch bf16", &self.peer_bf16), ("pytorch f32", &self.peer_f32)];
        let peers = peers.into_iter().filter(|(_, errors)| !errors.is_empty()).map(|(who, errors)| row(who, errors));
        std::iter::once(ours).chain(peers).collect()
    }

    /// Prints a line of the table. Returns whether the step is right.
    fn print(&self, to: &mut dyn Write) -> io::Result<bool> {
        let worst = |errors: &[f64]| match errors.iter().copied().max_by(f64::total_cmp) {
            Some(worst) => format!("{worst:9.2e}"),
            None => format!("{:>9}", "-"),
        };
        let shown: Vec<String> = self.positions.iter().take(5).map(usize::to_string).collect();
        let more = if self.positions.len() > 5 { " .." } else { "" };
        let ours = worst(&self.error);
        let bf16 = worst(&self.peer_bf16);
        let f32 = worst(&self.peer_f32);
        let verdict = if self.is_right() { "right" } else { "WRONG" };
        let positions = format!("{}{more}", shown.join(" "));
        writeln!(
            to,
            "{:5} {positions:28} {ours} {bf16} {f32}  {verdict}, limit {:.2e}, mean {:.2e} of {:.2e}, reference {:.2} s",
            self.positions.len(),
            self.limits[0],
            worst_and_mean(&self.error)[1],
            self.limits[1],
            self.reference_s
        )?;
        Ok(self.is_right())
    }
}
