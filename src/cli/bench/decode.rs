//! The decode suite: the time of a token as the caller sees it.
//!
//! Two figures: a token of a launch that feeds its tokens back, and a launch of one token, each
//! from the step inputs on the host to the tokens on the host. First the logits of a few steps are
//! compared with those of the reference machine on the same weights.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use std::time::Instant;

use tilewright_kernels::quant::Code;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, NEXT_TOKEN};
use tilewright_megakernel::program::{Buffer, BufferKind, Source};
use tilewright_megakernel::vm::MAX_STEPS;
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::weights::Uniform;

use super::journal::Journal;
use super::timing::Times;
use super::{finding, many};
use crate::cli::Failure;
use crate::cli::bench::decode_args::{DecodeArgs, DecodeError, LAUNCHES, LIMIT, WEIGHT_BITS, limit, shape};
use crate::cli::bench::tunable::{Prepare, Tunable};
use crate::cli::subject::{DecodeSubject, SEED, SubjectArgs, relative};
use crate::engine::{self, Device, KvType, settings};
use crate::results::{OURS, ResultRow, Summary};
use crate::tuning::{SearchSpace, Settings};

/// Limit with e4m3 keys and values: at the first positions, which are checked, attention's result
/// is made of few numbers of 4 bits, and one near the middle of two codes may be rounded to either.
const CODES_LIMIT: f64 = 5e-2;

/// Models, batches and contexts of `bench all`.
const SHAPES: [(&str, u16, usize); 4] =
    [("llama-3.2-1b", 1, 200), ("llama-3.2-1b", 1, 4096), ("llama-3.2-1b", 8, 1024), ("llama-3.1-8b", 1, 1024)];

/// Rows of the journal for a shape: launches that feed tokens back, and launches of one token.
const ROWS_OF_A_SHAPE: usize = 2;

/// The number of rows that [`run_all`] keeps or skips.
pub fn rows_of_all() -> usize {
    SHAPES.len() * ROWS_OF_A_SHAPE
}

/// The number of rows that [`run`] keeps or skips.
pub fn rows_of(subject: &SubjectArgs, args: &DecodeArgs) -> usize {
    if subject.rows() > many::FEW { args.launch_settings.len().max(1) } else { ROWS_OF_A_SHAPE }
}

/// Runs the suite on the shapes of known models, with random weights.
pub fn run_all(device: Device, journal: &Journal) -> Result<(), Failure> {
    for (model, batch, context) in SHAPES {
        run(&SubjectArgs::of_known_model(model, batch, context), device, &DecodeArgs::default(), journal)?;
    }
    Ok(())
}

/// Runs the suite.
pub fn run(subject: &SubjectArgs, device: Device, args: &DecodeArgs, journal: &Journal) -> Result<(), Failure> {
    if subject.rows() > many::FEW {
        return many::run(subject, device, args, journal);
    }
    let spec = subject.spec()?;
    let context = subject.context();
    let tokens = args.tokens;
    let mut shape = shape(&spec, subject)?;
    if device.count() > 1 {
        shape.push(("devices", device.count() as u64));
    }
    let forms = subject.forms()?.name().map_or(String::new(), |forms| format!(", {forms}"));
    let flow = subject.flow()?.map_or(String::new(), |flow| format!(", flow {}", flow.traced().name));
    if journal.skips("decode", &shape, ROWS_OF_A_SHAPE) {
        return Ok(());
    }
    let mut subject = subject.open(device, Ok)?;
    if tokens == 0 || tokens > context || tokens > MAX_STEPS {
        return Err(DecodeError::Tokens { tokens, context }.into());
    }
    let error = check(&mut subject, args.check.min(context))?;
    if args.repeat > 1 {
        repeat(&mut subject, args.repeat)?;
    }
    // Keys and values of the tokens before the timed ones: decoded, or drawn.
    let first = context - tokens;
    match args.drawn_history {
        true => draw_history(&mut subject)?,
        false => drop(sequences(&mut subject, first)?),
    }
    let bytes = bytes(&subject, context - tokens / 2);
    let row = |what: &str, samples_us: Vec<f64>| {
        let variant = format!("{what}{forms}{flow}, median of {}", samples_us.len());
        let shape = shape.iter().map(|&(name, extent)| (name.to_owned(), extent)).collect();
        let row =
            ResultRow { suite: "decode".into(), who: OURS.into(), shape, variant, samples_us, ..ResultRow::default() };
        let summary = Summary::of(&row);
        let (median_us, best_us) = summary.map(|summary| (summary.median, summary.best)).unzip();
        ResultRow { median_us, best_us, bytes: Some(bytes), error, ..row }
    };
    let joules = journal.telemetry.joules();
    let start = Instant::now();
    let fed = fed_back(&mut subject, first, tokens)?;
    let used = journal.telemetry.joules().zip(joules).map(|(after, before)| after - before);
    let seconds = start.elapsed().as_secs_f64();
    let steps = (LAUNCHES * tokens) as f64;
    let fed = row(&format!("launches of {tokens}"), fed);
    journal.keep(ResultRow { watts: used.map(|used| used / seconds), joules: used.map(|used| used / steps), ..fed })?;
    let single = by_launches(&mut subject, first, tokens)?;
    Ok(journal.keep(row("launches of 1", single))?)
}

/// The kernel to tune: the megakernel for one model, batch and context.
pub(super) fn tunables(subject: &SubjectArgs, device: Device) -> Result<Vec<Prepare<'_>>, Failure> {
    let shape = shape(&subject.spec()?, subject)?;
    let prepare = move || -> Result<Box<dyn Tunable>, Failure> {
        Ok(Box::new(Tokens { subject, device, shape, expected: OnceCell::new() }))
    };
    Ok(vec![Box::new(prepare)])
}

/// A decode machine whose options vary.
struct Tokens<'a> {
    subject: &'a SubjectArgs,
    device: Device,
    shape: Vec<(&'static str, u64)>,
    /// The logits of the first step with the shipped options.
    expected: OnceCell<Vec<f32>>,
}

/// Most tokens of a launch that is timed for tuning.
const TUNED_TOKENS: usize = 200;

impl Tokens<'_> {
    fn open(&self, settings: &Settings) -> Result<DecodeSubject, Failure> {
        self.subject.open(self.device, |shipped| Ok(settings::options(shipped, settings)?))
    }

    /// The logits of all rows of the first step.
    fn logits(&self, subject: &mut DecodeSubject) -> Result<Vec<f32>, Failure> {
        let cells = subject.cells(0);
        subject.machine.step(&cells.view())?;
        let rows = (0..subject.rows).map(|row| Ok(subject.machine.f32_row(LOGITS, row)?));
        Ok(rows.collect::<Result<Vec<_>, Failure>>()?.concat())
    }
}

impl Tunable for Tokens<'_> {
    fn suite(&self) -> &str {
        "decode"
    }

    fn shape(&self) -> Vec<(&'static str, u64)> {
        self.shape.clone()
    }

    fn space(&self) -> SearchSpace {
        let quantised = self.shape.iter().any(|&(name, _)| name == WEIGHT_BITS);
        settings::space(engine::device_options(self.device), self.subject.rows(), quantised)
    }

    fn as_right(&self) -> f64 {
        ORDER
    }

    fn measure(&self, settings: &Settings) -> Result<ResultRow, Failure> {
        let mut subject = self.open(settings)?;
        let found = self.logits(&mut subject)?;
        let expected = match self.expected.get() {
            Some(expected) => expected,
            None => {
                let space = self.space();
                let shipped = self.logits(&mut self.open(&space.at(space.shipped()))?)?;
                self.expected.get_or_init(|| shipped)
            }
        };
        let error = relative(&found, expected);
        let tokens = TUNED_TOKENS.min(subject.context);
        let first = subject.context - tokens;
        sequences(&mut subject, first)?;
        let samples = fed_back(&mut subject, first, tokens)?;
        let bytes = bytes(&subject, subject.context - tokens / 2);
        let row = finding::row("decode", &self.shape(), Times { samples }, [bytes, 0], error);
        finding::check(row, ORDER)
    }
}

/// Largest distance of logits whose sums have another order: a few bf16 roundings of 2⁻⁹ each.
const ORDER: f64 = 1e-2;

/// Compares logits with those of the reference machine. Returns the largest relative error of a
/// row.
fn check(subject: &mut DecodeSubject, steps: usize) -> Result<Option<f64>, Failure> {
    if steps == 0 {
        return Ok(None);
    }
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut reference = Machine::new(subject.program().clone(), &*subject.weights, workers)?;
    let mut kv = KvState::new(reference.program())?;
    let mut worst = 0f64;
    let limit = limit(&subject.spec).max(if subject.kv == KvType::Fp8 { CODES_LIMIT } else { LIMIT });
    for step in 0..steps {
        let cells = subject.cells(step);
        subject.machine.step(&cells.view())?;
        let output = reference.step(&mut kv, &cells.view())?;
        for row in 0..subject.rows {
            let error = relative(&subject.machine.f32_row(LOGITS, row)?, &output.f32_row(LOGITS, row)?);
            if error.is_nan() || error > limit {
                return Err(DecodeError::Wrong { step, error, limit }.into());
            }
            worst = worst.max(error);
        }
    }
    Ok(Some(worst))
}

/// Decodes from the first position. Returns the tokens, `[length, rows]`.
fn sequences(subject: &mut DecodeSubject, length: usize) -> Result<Vec<u32>, Failure> {
    let mut cells = subject.cells(0);
    let mut tokens = Vec::with_capacity(length * subject.rows);
    for start in (0..length).step_by(MAX_STEPS) {
        cells.positions.fill(start as i32);
        tokens.extend(subject.machine.run(&cells.view(), MAX_STEPS.min(length - start))?);
        cells.tokens = tokens[tokens.len() - subject.rows..].iter().map(|&token| token as i32).collect();
    }
    Ok(tokens)
}

/// Period of the numbers in drawn pools.
const DRAWN: usize = 1 << 20;

/// Fills all pools with numbers of mean 0 and deviation 1.
pub fn draw_history(subject: &mut DecodeSubject) -> Result<(), Failure> {
    let drawn = Uniform::with_deviation(1.0).bf16("history", SEED, DRAWN);
    let codes: Vec<u8> = drawn.iter().map(|x| Code::E4m3.nearest(x.to_f32())).collect();
    let pools = subject.program().buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool);
    // Pools of one shape get the same numbers; those of other types hold state of a flow, which
    // starts anew.
    let mut shapes: BTreeMap<(DType, Vec<usize>), Vec<String>> = BTreeMap::new();
    pools.for_each(|pool| shapes.entry((pool.dtype, pool.shape.clone())).or_default().push(pool.name.clone()));
    for ((dtype, shape), names) in shapes {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let elements = shape.iter().product();
        match dtype {
            DType::BF16 => {
                let mut values = Vec::with_capacity(elements);
                while values.len() < elements {
                    values.extend_from_slice(&drawn[..drawn.len().min(elements - values.len())]);
                }
                subject.machine.set_pools(&names, &values)?;
            }
            DType::F8E4M3 => {
                let values: Vec<u8> = codes.iter().copied().cycle().take(elements).collect();
                names.iter().try_for_each(|name| subject.machine.set_pool_codes(name, &values))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Decodes the whole context repeatedly. The order of a row's sums is fixed, so every run must give
/// the same tokens.
fn repeat(subject: &mut DecodeSubject, runs: usize) -> Result<(), Failure> {
    let context = subject.context;
    let rows = subject.rows;
    let mut before: Option<Vec<u32>> = None;
    for run in 0..runs {
        let start = Instant::now();
        let tokens = sequences(subject, context)?;
        let seconds = start.elapsed().as_secs_f64();
        let other = before.iter().flatten().zip(&tokens).position(|(a, b)| a != b);
        if let (Some(at), Some(before)) = (other, &before) {
            let position = at / rows;
            let row = at % rows;
            return Err(DecodeError::Differs { run, row, position, found: tokens[at], expected: before[at] }.into());
        }
        let distinct = tokens.iter().collect::<HashSet<_>>().len();
        let same = if run == 0 { "" } else { ", the same as before" };
        writeln!(io::stderr(), "run {run}: {} tokens in {seconds:.2} s, {distinct} distinct{same}", tokens.len())?;
        before = Some(tokens);
    }
    Ok(())
}

/// Microseconds per token of each launch: the time of the call, divided by its tokens. The host
/// polls for tokens at its own pace, so times between single tokens would be less exact.
fn fed_back(subject: &mut DecodeSubject, first: usize, tokens: usize) -> Result<Vec<f64>, Failure> {
    let cells = subject.cells(first);
    let mut times = Vec::with_capacity(LAUNCHES);
    for _ in 0..LAUNCHES {
        let start = Instant::now();
        subject.machine.run(&cells.view(), tokens)?;
        times.push(start.elapsed().as_secs_f64() * 1e6 / tokens as f64);
    }
    Ok(times)
}

/// Microseconds of launches of one token each, including the host's part.
fn by_launches(subject: &mut DecodeSubject, first: usize, tokens: usize) -> Result<Vec<f64>, Failure> {
    let mut cells = subject.cells(first);
    let mut times = Vec::with_capacity(tokens);
    for _ in 0..tokens {
        let start = Instant::now();
        subject.machine.step(&cells.view())?;
        cells.tokens = subject.machine.i32(NEXT_TOKEN)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
        cells.positions.iter_mut().for_each(|position| *position += 1);
    }
    Ok(times)
}

/// Bytes that a step must read at a position: every weight once (of an untied embedding only the
/// rows that are looked up), and the keys and values of all earlier tokens.
fn bytes(subject: &DecodeSubject, position: usize) -> u64 {
    let spec = &subject.spec;
    let program = subject.program();
    let weights = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::Weight);
    // Of experts those that rows choose uniformly.
    let share = spec.experts.map_or(1.0, |experts| experts.share(subject.rows));
    let read = |buffer: &Buffer| {
        let all = buffer.elements().unwrap_or(0);
        let is_of_experts = matches!(buffer.source, Some(Source::Experts { experts: 2.., .. }));
        buffer.stored_bytes(if is_of_experts { (all as f64 * share) as usize } else { all })
    };
    let weights: u64 = weights.map(read).sum();
    let embedding = if spec.tied_embeddings { 0 } else { (spec.vocab - subject.rows) * spec.hidden * 2 };
    let rows = |of_head: usize| subject.rows * spec.kv_heads * of_head;
    let pools = || program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool);
    let page_tokens = pools().filter_map(|pool| pool.shape.get(2).copied()).max();
    // A flow reads its fields of all blocks, and the tokens of the blocks that it chose.
    let elements = |pool: &Buffer| match (&subject.flow, &pool.shape[..]) {
        (Some(flow), [_, _, blocks, of_block]) if Some(*blocks) != page_tokens => {
            rows(position / flow.block_tokens() * of_block)
        }
        (Some(flow), _) => rows(position.min(flow.budget().selected(position) * flow.block_tokens()) * spec.head_dim),
        (None, _) => rows(position * spec.head_dim),
    };
    let cache: u64 = pools().map(|pool| pool.stored_bytes(elements(pool))).sum();
    weights - embedding as u64 + cache
}
