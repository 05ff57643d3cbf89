//! The suite of speculative decoding: the time of a token if a text repeats its prompt, and if it
//! does not.
//!
//! Weights may be random, so the continuation is given: the device accepts tokens of a known text
//! and does all other work as usual. The texts are in `benches/workloads/speculate`.

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::Instant;

use thiserror::Error;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::schedule::{TYPICAL_CONTEXT, schedule};
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, Text};
use tilewright_megakernel::vm::resident::DeviceWeights;

use super::journal::Journal;
use crate::cli::Failure;
use crate::cli::progress::LoadBar;
use crate::cli::subject::ModelSource;
use crate::engine::{self, Device, Gain, MOST_PROPOSED, Opened, Proposer};
use crate::results::{OURS, ResultRow, Summary};

#[derive(Debug, Error)]
enum SpeculateError {
    #[error("token {at} of the text is {found} instead of {expected}; the kernel is wrong")]
    Wrong { at: usize, found: u32, expected: u32 },
}

/// A prompt and its continuation.
struct Workload {
    name: &'static str,
    prompt: Vec<u32>,
    follows: Vec<u32>,
}

/// Rows of a step with proposals.
const ROWS: usize = MOST_PROPOSED + 1;
/// Steps of a launch, as in the batcher.
const STEPS: usize = 64;
/// Runs of a workload; the first is a warm-up.
const RUNS: usize = 4;
/// Most characters of a token.
const LONGEST: usize = 6;

/// Splits a text into tokens; a token's id is the order in which it was first seen.
fn tokens(text: &str, known: &mut HashMap<String, u32>) -> Vec<u32> {
    let kind = |c: char| if c.is_alphanumeric() || c == '_' { 0 } else { 1 + u32::from(c == ' ') };
    let mut pieces: Vec<String> = Vec::new();
    for c in text.chars() {
        match pieces.last_mut() {
            Some(last)
                if kind(c) != 1 && last.len() < LONGEST && last.chars().all(|before| kind(before) == kind(c)) =>
            {
                last.push(c);
            }
            _ => pieces.push(c.to_string()),
        }
    }
    let mut number = |piece| {
        let next = known.len() as u32;
        *known.entry(piece).or_insert(next)
    };
    pieces.into_iter().map(&mut number).collect()
}

fn workloads() -> [Workload; 2] {
    let mut known = HashMap::new();
    let mut of = |text| tokens(text, &mut known);
    let prompt = of(include_str!("../../../benches/workloads/speculate/source.txt"));
    let follows = of(include_str!("../../../benches/workloads/speculate/edited.txt"));
    let mut prose = of(include_str!("../../../benches/workloads/speculate/prose.txt"));
    let rest = prose.split_off(prose.len() / 2);
    [Workload { name: "editing", prompt, follows }, Workload { name: "prose", prompt: prose, follows: rest }]
}

/// Machines of one row and of several, of one sequence.
struct SpeculationMachines {
    narrow: DeviceMachine,
    wide: DeviceMachine,
    pages: Vec<i32>,
}

/// Time and steps of a run.
#[derive(Default)]
struct Course {
    seconds: f64,
    /// Steps of one row, and of several.
    narrow: usize,
    wide: usize,
}

/// Runs the suite.
pub fn run(source: &ModelSource, device: Device, journal: &Journal) -> Result<(), Failure> {
    let workloads = workloads();
    let context = workloads.iter().map(|work| work.prompt.len() + work.follows.len() + ROWS).max().unwrap_or(1);
    let Opened { device, target, options, .. } = engine::open(device)?;
    let (spec, weights) = source.open()?;
    let shape = [("batch", 1), ("hidden", spec.hidden), ("layers", spec.layers)];
    let shape: Vec<(&str, u64)> = shape.into_iter().map(|(name, extent)| (name, extent as u64)).collect();
    journal.expect(2 * workloads.len());
    if journal.skips("speculate", &shape, 2 * workloads.len()) {
        return Ok(());
    }
    let base = LowerOptions { kv: DType::BF16, activation: DType::BF16, ..LowerOptions::for_context(context) };
    let pages = base.pages_per_sequence();
    let dtype_of = |name: &str| weights.tensor(name).map_or(DType::BF16, |tensor| tensor.dtype());
    let bar = LoadBar::new();
    let mut resident = DeviceWeights::new(device, weights.clone());
    let mut machine = |rows, kv: Option<&DeviceMachine>| -> Result<DeviceMachine, Failure> {
        let lowering =
            LowerOptions { rows, pages: Some(pages), ..base.clone() }.splits_for_gpu(spec.kv_heads, target.sms);
        let options = DeviceOptions { propose: rows > 1, ..options };
        let program = lower(&spec, &dtype_of, target.clone(), &lowering)?.stored_as(&*weights);
        let program = program.with_cut_sums(&options)?;
        let placed = schedule(program, TYPICAL_CONTEXT)?;
        Ok(resident.machine(placed, kv.map(DeviceMachine::kv), options, &mut |done, total| bar.show(done, total))?)
    };
    let wide = machine(ROWS, None)?;
    let mut machines =
        SpeculationMachines { narrow: machine(1, Some(&wide))?, wide, pages: (0..pages as i32).collect() };
    drop(bar);
    for work in &workloads {
        let mut alone = Vec::new();
        for proposes in [false, true] {
            let runs = (0..RUNS).map(|_| machines.go(work, proposes)).collect::<Result<Vec<_>, Failure>>()?;
            let count = work.follows.len() as f64;
            let samples_us: Vec<f64> = runs[1..].iter().map(|run| run.seconds * 1e6 / count).collect();
            let steps = (runs[0].narrow, runs[0].wide);
            let what = if proposes { "proposals" } else { "none" };
            let variant = format!("{}, {what}, {} and {} steps for {count} tokens", work.name, steps.0, steps.1);
            let shape = shape.iter().map(|&(name, extent)| (name.to_owned(), extent)).collect();
            let row = ResultRow {
                suite: "speculate".into(),
                who: OURS.into(),
                shape,
                variant,
                samples_us,
                ..ResultRow::default()
            };
            let (median_us, best_us) = Summary::of(&row).map(|summary| (summary.median, summary.best)).unzip();
            alone.extend(median_us);
            let mut values = row.values.clone();
            if let [without, with] = alone[..] {
                values.insert("times_as_fast".into(), without / with);
            }
            journal.keep(ResultRow { median_us, best_us, values, ..row })?;
        }
        if let [without, with] = alone[..] {
            let line = format!("{}: {:.3} times as fast with proposals", work.name, without / with);
            journal.suspend(|| writeln!(io::stdout(), "{line}"))?;
        }
    }
    Ok(())
}

impl SpeculationMachines {
    /// Continues a prompt as a batcher with one request does.
    fn go(&mut self, work: &Workload, proposes: bool) -> Result<Course, Failure> {
        let mut known = work.prompt.clone();
        let mut proposer = Proposer::default();
        let mut gain = Gain::default();
        proposer.read(&known);
        let mut course = Course::default();
        let start = Instant::now();
        while known.len() < work.prompt.len() + work.follows.len() {
            let at = known.len() - work.prompt.len();
            let follows = &work.follows[at..];
            if gain.is_wide() {
                self.several(&mut known, &mut gain, follows, &mut course)?;
                proposer.read(&known);
                continue;
            }
            let mut each = |token: u32| {
                course.narrow += 1;
                if proposes {
                    gain.came(token, || proposer.guess(&known, MOST_PROPOSED));
                    known.push(token);
                    proposer.read(&known);
                } else {
                    known.push(token);
                }
                if gain.is_wide() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let tokens = [0];
            let positions = [(work.prompt.len() + at - 1) as i32];
            let cells = StepCells { tokens: &tokens, positions: &positions, page_table: &self.pages };
            let mut follows = follows.iter();
            let steps = STEPS.min(follows.len());
            self.narrow.run_each(&cells, steps, &mut |_| {
                follows.next().map_or(ControlFlow::Break(()), |&token| each(token))
            })?;
        }
        course.seconds = start.elapsed().as_secs_f64();
        Ok(course)
    }

    /// A launch with proposals.
    fn several(
        &mut self,
        known: &mut Vec<u32>,
        gain: &mut Gain,
        follows: &[u32],
        course: &mut Course,
    ) -> Result<(), Failure> {
        let before = known.clone();
        let from = known.len();
        let left = follows.len().min(STEPS * ROWS);
        let text = Text {
            tokens: &before,
            pages: &self.pages,
            request: None,
            ends: &[],
            left,
            proposed: MOST_PROPOSED,
            script: Some(follows),
        };
        course.wide += self.wide.propose(&text, STEPS, &mut |accepted| {
            known.extend(&accepted.tokens);
            gain.gave(accepted.tokens.len());
            if gain.is_wide() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let wrong = known[from..].iter().zip(follows).position(|(found, expected)| found != expected);
        match wrong {
            Some(at) => {
                Err(SpeculateError::Wrong { at: from + at, found: known[from + at], expected: follows[at] }.into())
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_text_repeats_its_prompt_and_prose_does_not() {
        let rate = |work: &Workload| {
            let mut known = work.prompt.clone();
            let mut proposer = Proposer::default();
            let mut steps = 0;
            let mut follows = &work.follows[..];
            while !follows.is_empty() {
                proposer.read(&known);
                let guess = proposer.guess(&known, MOST_PROPOSED);
                let right = guess.iter().zip(follows).take_while(|(a, b)| a == b).count();
                let (now, later) = follows.split_at((right + 1).min(follows.len()));
                known.extend(now);
                (follows, steps) = (later, steps + 1);
            }
            work.follows.len() as f64 / f64::from(steps)
        };
        let [editing, prose] = workloads().map(|work| rate(&work));
        assert!(editing > 4.0 && prose < 1.6, "{editing} and {prose} tokens a step");
    }
}
