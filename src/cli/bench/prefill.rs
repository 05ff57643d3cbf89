//! The prefill suite: the time of a prompt, from its step inputs on the host to the logits of its
//! last token there.
//!
//! Two logits are checked in the run: those after a prompt that the graph prefilled, and those of
//! the next token, which the decode machine computes on the same pages. The reference is a prompt
//! that the decode machine prefilled alone.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use thiserror::Error;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, MAX_ROWS, lower, plan};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::DeviceMachine;
use tilewright_megakernel::vm::graph::{AnyGraph, Exchange, PeerWeights};
use tilewright_megakernel::vm::resident::DeviceWeights;

use super::journal::Journal;
use super::timing::{Times, is_simulated};
use super::{finding, launches};
use crate::cli::Failure;
use crate::cli::bench::decode_args::{GraphArgs, ROUTED_LIMIT};
use crate::cli::number::{self, MOST_TOKENS, tokens};
use crate::cli::progress::LoadBar;
use crate::cli::subject::{ModelSource, StepInputs, relative};
use crate::engine::{self, Device, KvType, Opened};
use crate::results::ResultRow;

/// The prompts of the suite, and their chunks.
#[derive(Args)]
pub struct PrefillArgs {
    /// Lengths of the prompts that are timed, in tokens
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [512, 2048, 8192], value_parser = tokens())]
    prompts: Vec<usize>,
    /// Tokens of a chunk, 17 to 4096; of several widths a prompt gets the widest that it fills,
    /// else the least
    #[arg(long = "prompt-chunks", alias = "prompt-chunk", value_name = "N,..", value_delimiter = ',', default_values_t = [512], value_parser = tokens())]
    prompt_chunk: Vec<usize>,
    /// Time each prompt with every width of chunks that it fills
    #[arg(long)]
    every_chunk: bool,
    /// Tokens of the prompt whose logits are compared with those of the decode machine; 0 for none
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = number::count(0..=MOST_TOKENS))]
    check_prompt: usize,
    #[command(flatten)]
    graph: GraphArgs,
}

#[derive(Debug, Error)]
enum PrefillError {
    #[error("--prompt-chunks has a chunk of {found} tokens; it must be 17 to {MAX_ROWS}")]
    Chunk { found: usize },
    #[error("--prompts has a prompt of {found} tokens; it must be 1 to {most} with this model")]
    Prompt { found: usize, most: usize },
}

/// Limit of the relative error of logits, as in the decode suite: both machines round activations
/// to bf16.
const LIMIT: f64 = 2e-2;
/// Limit with quantised weights: graphs round a code times its scale to bf16, the decode machine
/// does not. That doubles the number of roundings and makes 1.4 times the error.
const WEIGHTS_LIMIT: f64 = 2.8e-2;
/// Limit with e4m3 keys and values: one near the middle of two codes is rounded to either.
const KV_LIMIT: f64 = 5e-2;
/// Rows of the decode machine, which is the reference.
const ROWS: usize = 16;
/// Warm-up runs and timed runs of a prompt; a simulated device's times mean nothing.
const REPEATS: [usize; 2] = [2, 7];

/// The machines of a model.
struct Prompts {
    spec: ModelSpec,
    /// Graphs by rising width.
    graphs: Vec<AnyGraph>,
    /// Index of the graph in use.
    at: usize,
    /// Warm-up runs and timed runs of a prompt.
    repeats: [usize; 2],
    /// Pages of a sequence.
    pages: usize,
    /// Devices that share the model.
    devices: usize,
    /// The all-reduce algorithm as text, empty for the default.
    by: &'static str,
    /// Name and fewest bits of the weights' codes, if they are quantised.
    form: Option<(String, usize)>,
}

/// The subject of the suite: a model on a device.
pub struct PrefillSubject<'a> {
    /// The model.
    pub source: &'a ModelSource,
    /// The type that keys and values are stored as.
    pub kv: KvType,
    /// The device or devices.
    pub device: Device,
}

/// Runs the suite.
pub fn run(subject: &PrefillSubject, args: &PrefillArgs, journal: &Journal) -> Result<(), Failure> {
    let PrefillSubject { source, kv, device } = *subject;
    let launches = args.graph.launches;
    let exchange = args.graph.exchange();
    let spec = source.spec()?;
    let most = spec.max_positions;
    if let Some(&found) = args.prompt_chunk.iter().find(|chunk| !(ROWS + 1..=MAX_ROWS).contains(*chunk)) {
        return Err(PrefillError::Chunk { found }.into());
    }
    let mut chunks = args.prompt_chunk.clone();
    chunks.sort_unstable();
    chunks.dedup();
    if let Some(&found) = args.prompts.iter().find(|tokens| !(1..=most).contains(*tokens)) {
        return Err(PrefillError::Prompt { found, most }.into());
    }
    let count = device.count();
    let forms = source.forms()?;
    let form = forms.name().zip(forms.bits()).map(|(name, bits)| (name.to_owned(), bits));
    let bits = form.as_ref().map(|(_, bits)| *bits);
    journal.expect(args.prompts.len());
    let wanted: Vec<usize> = args
        .prompts
        .iter()
        .copied()
        .filter(|&tokens| !journal.skips("prefill", &shape(&spec, tokens, count, bits), 1))
        .collect();
    // One row of a prompt was counted by its shape.
    journal.expect(wanted.iter().map(|&tokens| timed_chunks(&chunks, tokens, args.every_chunk).count() - 1).sum());
    let Some(&longest) = wanted.iter().max() else { return Ok(()) };
    let Opened { device, devices, target, options, .. } = engine::open(device)?;
    let (spec, weights) = source.open()?;
    let quantised = !forms.is_empty();
    // One token follows the prompt that is checked.
    let context = longest.max(args.check_prompt.min(most - 1) + 1);
    let lowering =
        LowerOptions { kv: kv.dtype(), activation: DType::BF16, devices: count, ..LowerOptions::for_context(context) };
    let pages = lowering.pages_per_sequence();
    let lowering = LowerOptions { pages: Some(pages), ..lowering };
    let dtype_of = |name: &str| weights.tensor(name).map_or(DType::BF16, |tensor| tensor.dtype());
    let options_of = |rows| LowerOptions { rows, ..lowering.clone() };
    let bar = LoadBar::new();
    let mut rows = PeerWeights::new(&devices, &weights);
    rows.set_exchange(exchange);
    let mut packed = DeviceWeights::on(devices, Arc::clone(&weights));
    let narrow = || {
        let lowering = options_of(ROWS).splits_for_gpu(spec.kv_heads, target.sms);
        let program = lower(&spec, &dtype_of, target.clone(), &lowering)?.stored_as(&*weights);
        Ok::<_, Failure>(schedule(program, context)?)
    };
    if quantised {
        // Products of any number of rows read the packed codes.
        packed.send(&narrow()?, options, &mut |done, total| bar.show(done, total))?;
        rows.share(&packed);
    }
    let mut graphs: Vec<AnyGraph> = Vec::new();
    for &chunk in &chunks {
        let wide = plan(&spec, &dtype_of, target.clone(), &options_of(chunk))?.stored_as(&*weights);
        graphs.push(rows.machine(wide, graphs.first().map(AnyGraph::kv), &mut |done, total| bar.show(done, total))?);
    }
    let repeats = if is_simulated(&device) { [0, 1] } else { REPEATS };
    let by = match exchange {
        Exchange::Own => "",
        Exchange::OneShot => ", one shot",
        Exchange::TwoShot => ", two shots",
        Exchange::Nccl => ", NCCL",
    };
    let mut prompts = Prompts { spec: spec.clone(), graphs, at: 0, repeats, pages, devices: count, by, form };
    let mut error = f64::NAN;
    let checked = args.check_prompt.min(context - 1);
    if checked > 0 {
        let kv = prompts.graphs.first().map(AnyGraph::kv);
        let mut decode = packed.machine(narrow()?, kv, options, &mut |done, total| bar.show(done, total))?;
        error = 0.0;
        for at in 0..chunks.len() {
            prompts.at = at;
            let found = prompts.check(&mut decode, checked)?;
            // NaN counts as an error.
            error = if found.is_nan() { found } else { found.max(error) };
        }
    }
    drop(bar);
    let limit = match kv {
        KvType::Fp8 => KV_LIMIT,
        KvType::Bf16 if quantised => WEIGHTS_LIMIT,
        KvType::Bf16 => LIMIT,
    };
    let limit = if spec.experts.is_some() { ROUTED_LIMIT.max(limit) } else { limit };
    for tokens in wanted {
        for at in timed_chunks(&chunks, tokens, args.every_chunk) {
            prompts.at = at;
            let row = prompts.time(tokens, error)?;
            journal.keep(if checked > 0 { finding::check(row, limit)? } else { ResultRow { error: None, ..row } })?;
            if launches {
                journal.suspend(|| prompts.table(tokens))?;
            }
        }
    }
    Ok(())
}

/// The chunks that a prompt is timed with, by their index among the sorted ones: the widest that it
/// fills, and every narrower one if `every` asks for them.
fn timed_chunks(chunks: &[usize], tokens: usize, every: bool) -> RangeInclusive<usize> {
    let widest = chunks.iter().rposition(|&chunk| chunk <= tokens).unwrap_or(0);
    if every { 0..=widest } else { widest..=widest }
}

/// The shape of a row. Rows of bf16 weights on one device have the peers' shape; others add the
/// number of devices and the fewest bits of the weights' codes.
fn shape(spec: &ModelSpec, tokens: usize, devices: usize, bits: Option<usize>) -> Vec<(&'static str, u64)> {
    let of_model = [("tokens", tokens), ("hidden", spec.hidden), ("layers", spec.layers)];
    let devices = (devices > 1).then_some(("devices", devices));
    let bits = bits.map(|bits| (super::decode_args::WEIGHT_BITS, bits));
    of_model.into_iter().chain(devices).chain(bits).map(|(name, extent)| (name, extent as u64)).collect()
}

impl Prompts {
    /// Rows of a step of the graph in use.
    fn chunk(&self) -> usize {
        self.graphs[self.at].plan().rows as usize
    }

    /// The inputs of tokens `first..end` of the prompt in a step of `rows` rows.
    fn cells(&self, first: usize, end: usize, rows: usize) -> StepInputs {
        let token = |at: usize| ((at * 7919 + 11) % self.spec.vocab) as i32;
        let mut cells = StepInputs {
            tokens: (first..end).map(token).collect(),
            positions: (first as i32..end as i32).collect(),
            page_table: (0..rows).flat_map(|_| 0..self.pages as i32).collect(),
        };
        cells.tokens.resize(rows, 0);
        cells.positions.resize(rows, -1);
        cells
    }

    /// Prefills the prompt's first tokens. Returns the logits of the last.
    fn feed(&mut self, tokens: usize) -> Result<Vec<f32>, Failure> {
        let mut last = Vec::new();
        let chunk = self.chunk();
        for first in (0..tokens).step_by(chunk) {
            let end = tokens.min(first + chunk);
            let cells = self.cells(first, end, chunk);
            let graph = &mut self.graphs[self.at];
            match end == tokens {
                true => graph.step(&cells.view(), &[end - first - 1], &mut |_, logits| last = logits.to_vec())?,
                false => graph.submit(&cells.view())?,
            }
        }
        Ok(last)
    }

    /// The larger error of a prompt's last token and of the next one, which is decoded.
    fn check(&mut self, decode: &mut DeviceMachine, tokens: usize) -> Result<f64, Failure> {
        let mut by_decoding = |prompts: &Prompts, first: usize, end: usize| -> Result<Vec<f32>, Failure> {
            decode.step(&prompts.cells(first, end, ROWS).view())?;
            Ok(decode.f32_row(LOGITS, end - first - 1)?)
        };
        let found = [self.feed(tokens)?, by_decoding(self, tokens, tokens + 1)?];
        let mut last = Vec::new();
        for first in (0..tokens).step_by(ROWS) {
            last = by_decoding(self, first, tokens.min(first + ROWS))?;
        }
        let expected = [last, by_decoding(self, tokens, tokens + 1)?];
        let errors = found.iter().zip(&expected).map(|(found, expected)| relative(found, expected));
        // NaN counts as an error.
        Ok(errors.fold(0.0, |worst: f64, error| if error.is_nan() { error } else { worst.max(error) }))
    }

    /// Writes the times of the launches of the prompt's last complete chunk.
    fn table(&mut self, tokens: usize) -> Result<(), Failure> {
        let chunk = self.chunk().min(tokens);
        let first = (tokens / chunk - 1) * chunk;
        let cells = self.cells(first, first + chunk, self.chunk());
        launches::table(&mut self.graphs[self.at], &cells, self.spec.layers)
    }

    /// Times a prompt.
    fn time(&mut self, tokens: usize, error: f64) -> Result<ResultRow, Failure> {
        let [warm_up, timed] = self.repeats;
        let mut samples = Vec::with_capacity(timed);
        for run in 0..warm_up + timed {
            let start = Instant::now();
            self.feed(tokens)?;
            if run >= warm_up {
                samples.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        let spec = &self.spec;
        let heads = spec.heads * spec.head_dim;
        // The output projection computes one row; causal attention is half of a square.
        let attention = 2 * spec.layers * heads * tokens * tokens;
        let operations = 2 * spec.layers * spec.layer_products() * tokens + 2 * spec.vocab * spec.hidden + attention;
        let read = spec.layer_reads(tokens.min(self.chunk()));
        let bytes = 2 * (tokens.div_ceil(self.chunk()) * spec.layers * read + spec.vocab * spec.hidden);
        let row = finding::row(
            "prefill",
            &shape(spec, tokens, self.devices, self.form.as_ref().map(|(_, bits)| *bits)),
            Times { samples },
            [bytes as u64, operations as u64],
            error,
        );
        let form = self.form.as_ref().map_or(String::new(), |(name, _)| format!(", {name}"));
        // The bytes above are those of bf16 weights.
        let bytes = row.bytes.filter(|_| self.form.is_none());
        Ok(ResultRow {
            variant: format!("chunks of {}{}{form}, median of {timed}", self.chunk(), self.by),
            bytes,
            ..row
        })
    }
}
