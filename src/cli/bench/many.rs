//! The decode suite for more than 16 rows: graphs of launches, whose tokens the device chooses and
//! feeds back.
//!
//! The logits of all rows are compared with those of the decode machine, 16 rows at a time, on the
//! same pools.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Instant;

use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower, plan};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::MAX_STEPS;
use tilewright_megakernel::vm::graph::{AnyGraph, GraphTuning, PeerWeights, ProductTuning};
use tilewright_megakernel::vm::resident::DeviceWeights;

use super::journal::Journal;
use super::timing::Times;
use super::{finding, launches};
use crate::cli::Failure;
use crate::cli::bench::decode_args::{DecodeArgs, DecodeError, LAUNCHES, limit, shape};
use crate::cli::progress::LoadBar;
use crate::cli::subject::{StepInputs, SubjectArgs, relative};
use crate::engine::{self, Device, Opened};
use crate::results::ResultRow;
use crate::tuning::{Settings, SettingsError};

/// Most rows of the decode machine.
pub const FEW: usize = 16;

/// Runs the suite.
pub fn run(subject: &SubjectArgs, device: Device, args: &DecodeArgs, journal: &Journal) -> Result<(), Failure> {
    let spec = subject.spec()?;
    let rows = subject.rows();
    let context = subject.context();
    let tokens = args.tokens;
    let mut shape = shape(&spec, subject)?;
    if device.count() > 1 {
        shape.push(("devices", device.count() as u64));
    }
    let shipped = [Settings::default()];
    let settings = if args.launch_settings.is_empty() { &shipped[..] } else { &args.launch_settings };
    settings.iter().try_for_each(|settings| tuning(settings).map(drop))?;
    if journal.skips("decode", &shape, settings.len()) {
        return Ok(());
    }
    if tokens == 0 || tokens > context || tokens > MAX_STEPS {
        return Err(DecodeError::Tokens { tokens, context }.into());
    }
    let Opened { devices, target, options, .. } = engine::open(device)?;
    let (spec, weights) = subject.weights()?;
    let kv = subject.kv().dtype();
    let count = devices.len();
    let base = LowerOptions { kv, activation: DType::BF16, devices: count, ..LowerOptions::for_context(context) };
    let pages = base.pages_per_sequence();
    let base = LowerOptions { pages: Some(pages * rows), ..base };
    let dtype_of = |name: &str| weights.tensor(name).map_or(DType::BF16, |tensor| tensor.dtype());
    let options_of = |rows| LowerOptions { rows, ..base.clone() };
    let bar = LoadBar::new();
    // As in an engine: the decode machine packs the weights, and the graph reads them there.
    let mut graphs = PeerWeights::new(&devices, &weights);
    graphs.set_exchange(args.graph.exchange());
    let mut packed = DeviceWeights::on(devices, Arc::clone(&weights));
    let lowering = options_of(FEW).splits_for_gpu(spec.kv_heads, target.sms);
    let program = lower(&spec, &dtype_of, target.clone(), &lowering)?.stored_as(&*weights);
    let placed = schedule(program.with_cut_sums(&options)?, context)?;
    let mut few = packed.machine(placed, None, options, &mut |done, total| bar.show(done, total))?;
    drop(bar);
    graphs.share(&packed);
    let wide = plan(&spec, &dtype_of, target, &options_of(rows))?.stored_as(&*weights);
    let all_cells = |position: usize, rows: Range<usize>| StepInputs {
        tokens: rows.clone().map(|row| ((row * 7 + 11) % spec.vocab) as i32).collect(),
        positions: vec![position as i32; rows.len()],
        page_table: ((rows.start * pages) as i32..(rows.end * pages) as i32).collect(),
    };
    let cells = |position: usize, rows: usize| all_cells(position, 0..rows);
    let first = context - tokens;
    let mut expected = None;
    for settings in settings {
        let (attention, products) = tuning(settings)?;
        graphs.tune(attention, &products);
        let bar = LoadBar::new();
        let mut machine = graphs.machine(wide.clone(), Some(few.kv()), &mut |done, total| bar.show(done, total))?;
        drop(bar);
        let expected = match &expected {
            Some(expected) => expected,
            None => {
                // Decodes the tokens before the timed ones.
                let mut now = cells(0, rows);
                for start in (0..first).step_by(MAX_STEPS) {
                    now.positions.fill(start as i32);
                    let steps = MAX_STEPS.min(first - start);
                    now.tokens = generate(&mut machine, &now, steps)?.iter().map(|&token| token as i32).collect();
                }
                let mut logits = Vec::new();
                // If fewer rows are left than the decode machine has, some are compared twice.
                let starts = (0..rows).step_by(FEW).map(|start| start.min(rows - FEW)).filter(|_| args.check > 0);
                for start in starts {
                    few.step(&all_cells(first, start..start + FEW).view())?;
                    logits.resize(start, Vec::new());
                    for row in 0..FEW {
                        logits.push(few.f32_row(LOGITS, row)?);
                    }
                }
                expected.insert(logits)
            }
        };
        let error = worst(&mut machine, &cells(first, rows), expected)?;
        let mut samples = Vec::with_capacity(LAUNCHES);
        for _ in 0..LAUNCHES {
            let start = Instant::now();
            generate(&mut machine, &cells(first, rows), tokens)?;
            samples.push(start.elapsed().as_secs_f64() * 1e6 / tokens as f64);
        }
        let bytes = bytes(&spec, rows, rows * (context - tokens / 2));
        let row = finding::row("decode", &shape, Times { samples }, [bytes, 0], error.unwrap_or(f64::NAN));
        let chosen: String = settings.iter().map(|(name, value)| format!(", {name}={value}")).collect();
        // The bytes above are those of bf16 weights.
        let bytes = row.bytes.filter(|_| !shape.iter().any(|(name, _)| *name == super::decode_args::WEIGHT_BITS));
        let row =
            ResultRow { bytes, variant: format!("graph, launches of {tokens}, median of {LAUNCHES}{chosen}"), ..row };
        journal.keep(if error.is_some() {
            finding::check(row, limit(&spec))?
        } else {
            ResultRow { error: None, ..row }
        })?;
        if args.graph.launches {
            journal.suspend(|| launches::table(&mut machine, &cells(context - tokens / 2, rows), 0))?;
        }
    }
    Ok(())
}

/// The bytes of a step of `rows` rows: weights, and keys and values of `tokens` tokens of all rows
/// together.
fn bytes(spec: &ModelSpec, rows: usize, tokens: usize) -> u64 {
    let cache = tokens * spec.layers * spec.kv_heads * spec.head_dim * 2;
    2 * (spec.layers * spec.layer_reads(rows) + spec.vocab * spec.hidden + cache) as u64
}

/// The largest error of a step's rows; `None` if nothing is expected.
fn worst(machine: &mut AnyGraph, cells: &StepInputs, expected: &[Vec<f32>]) -> Result<Option<f64>, Failure> {
    let mut worst = 0f64;
    let all = (0..expected.len()).collect::<Vec<_>>();
    if all.is_empty() {
        return Ok(None);
    }
    machine.step(&cells.view(), &all, &mut |row, logits| {
        let found = relative(logits, &expected[row]);
        // A NaN is an error, too.
        worst = if found.is_nan() { found } else { worst.max(found) };
    })?;
    Ok(Some(worst))
}

/// Settings of a graph's attention, the shipped ones if none is given, and settings of products by
/// the shape of their weights, such as "4096x14336.in_flight=4".
fn tuning(settings: &Settings) -> Result<(Option<GraphTuning>, Vec<ProductTuning>), SettingsError> {
    let mut tuning = GraphTuning::SHARES;
    let mut attention = false;
    let mut products: Vec<ProductTuning> = Vec::new();
    for (name, value) in settings.iter() {
        if let Some((shape, setting)) = name.split_once('.') {
            let unknown = || SettingsError::Unknown { name: name.to_owned(), value: value.to_owned() };
            let extents = shape.split_once('x').and_then(|(n, k)| Some([n.parse().ok()?, k.parse().ok()?]));
            let shape = extents.ok_or_else(unknown)?;
            let at = products.iter().position(|product| product.shape == shape).unwrap_or_else(|| {
                products.push(ProductTuning::of(shape));
                products.len() - 1
            });
            products[at].set(setting, settings.number(name)?).ok_or_else(unknown)?;
            continue;
        }
        attention = true;
        match name {
            "tile" => tuning.tile = settings.choice(name, &[("16", 16), ("32", 32)], "16 or 32 tokens")?,
            "stages" => tuning.stages = settings.choice(name, &[("2", 2), ("3", 3), ("4", 4)], "2 to 4")?,
            "staying" => tuning.staying = settings.choice(name, &[("0", 0), ("1", 1), ("2", 2), ("3", 3)], "0 to 3")?,
            "splits" => {
                tuning.splits = settings.choice(name, &[("1", 1), ("2", 2), ("4", 4), ("8", 8)], "1, 2, 4 or 8")?
            }
            _ => return Err(SettingsError::Unknown { name: name.to_owned(), value: value.to_owned() }),
        }
    }
    Ok((attention.then_some(tuning), products))
}

/// Runs steps that feed tokens back. Returns the last tokens of all rows.
fn generate(machine: &mut AnyGraph, cells: &StepInputs, steps: usize) -> Result<Vec<u32>, Failure> {
    let mut last = Vec::new();
    machine.run_until(&cells.view(), steps, &[], &[], &mut |tokens| {
        last = tokens.to_vec();
        ControlFlow::Continue(())
    })?;
    Ok(last)
}
