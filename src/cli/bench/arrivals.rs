//! Random requests at random times: with continuous batching, and in batches one after the other.
//! Also the time of steps by their width.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use tilewright_codegen::trial::Draw;
use tilewright_megakernel::model::ModelSpec;

use super::journal::Journal;
use crate::cli::Failure;
use crate::cli::bench::served::{EIGHT, Measured, RequestsArgs, drain, options, row};
use crate::engine::{Bare, BatchOptions, Batcher, Event, Request, Submission, WidthTimes};

/// Up to this many requests, all of them also run in batches; of more, a quarter, since batches
/// take long.
const FEW: usize = 64;

/// A request and its time of arrival.
struct Arrival {
    at: Duration,
    request: Request,
}

/// Times of a run of requests.
struct Ran {
    requests: usize,
    seconds: f64,
    tokens: usize,
    /// Seconds from arrival to first token, per request.
    first: Vec<f64>,
    widths: Vec<WidthTimes>,
    /// Kernels that were compiled during the run, and the seconds that the driver took.
    compiled: (usize, f64),
}

impl Ran {
    fn speed(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }

    /// Figures of every row.
    fn values(&self) -> Vec<(String, f64)> {
        let all = [("tokens_per_s", self.speed()), ("new_tokens", self.tokens as f64)].into_iter();
        let compiled = [("compiled", self.compiled.0 as f64), ("compile_s", self.compiled.1)];
        let of_width = |times: &WidthTimes| {
            let name = |what: &str| format!("{what}_of_{}_rows", times.width);
            [
                (name("steps"), times.steps as f64),
                (name("step_ms"), mean(times)),
                (name("longest_ms"), ms(times.longest)),
            ]
        };
        let all = all.chain(compiled).map(|(name, value)| (name.to_owned(), value));
        all.chain(self.widths.iter().flat_map(of_width)).collect()
    }

    /// The figures as text for a person.
    fn tell(&self, name: &str) -> io::Result<()> {
        let (compiled, seconds) = self.compiled;
        let mut out = io::stderr().lock();
        writeln!(
            out,
            "{name}: {} requests, {} tokens, {:.0} tokens/s; {compiled} kernels compiled meanwhile, {seconds:.2} s",
            self.requests,
            self.tokens,
            self.speed()
        )?;
        for times in &self.widths {
            let WidthTimes { width, steps, launches, longest, .. } = *times;
            let mean = mean(times);
            let longest = ms(longest);
            writeln!(
                out,
                "  {width:4} rows: {steps:6} steps, {launches:6} launches, {mean:8.3} ms a step, {longest:8.3} longest"
            )?;
        }
        Ok(())
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn mean(times: &WidthTimes) -> f64 {
    ms(times.time) / times.steps.max(1) as f64
}

fn draw_arrivals(args: &RequestsArgs, vocab: usize) -> Vec<Arrival> {
    let draw = &mut Draw::new(11);
    let mut at = 0.0;
    let mut arrival = || {
        at -= (1.0 - draw.unit().abs()).max(1e-9).ln() / args.rate;
        Arrival { at: Duration::from_secs_f64(at), request: args.draw(draw, vocab) }
    };
    (0..args.requests).map(|_| arrival()).collect()
}

/// Runs requests, and collects statistics of the batcher and compiled kernels.
fn watched(
    bare: &Bare,
    batcher: &mut Batcher,
    arrivals: &[Arrival],
    run: impl FnOnce(&mut Batcher, &[Arrival]) -> Result<(usize, Vec<f64>), Failure>,
) -> Result<Ran, Failure> {
    batcher.take_times();
    let before = bare.compiled().len();
    let start = Instant::now();
    let (tokens, first) = run(batcher, arrivals)?;
    let seconds = start.elapsed().as_secs_f64();
    let compiled = bare.compiled().split_off(before);
    let compiled = (compiled.len(), compiled.iter().map(|kernel| kernel.took).sum::<Duration>().as_secs_f64());
    Ok(Ran { requests: arrivals.len(), seconds, tokens, first, widths: batcher.take_times(), compiled })
}

/// Runs requests as they arrive. Returns their tokens, and the seconds from arrival to first token.
fn as_they_come(batcher: &mut Batcher, arrivals: &[Arrival]) -> Result<(usize, Vec<f64>), Failure> {
    let start = Instant::now();
    let mut next = 0;
    let mut came = BTreeMap::new();
    let mut first = Vec::new();
    let mut tokens = 0;
    let mut fault = None;
    loop {
        while let Some(arrival) = arrivals.get(next).filter(|arrival| arrival.at <= start.elapsed()) {
            came.insert(batcher.submit(Submission::from(arrival.request.clone()))?, arrival.at);
            next += 1;
        }
        let more = batcher.step(|ticket, event| match event {
            Event::Token(_) => {
                tokens += 1;
                first.extend(came.remove(&ticket).map(|at| (start.elapsed().saturating_sub(at)).as_secs_f64()));
            }
            Event::End(_) => {}
            Event::Fault(error) => fault = Some(error),
        });
        if let Some(fault) = fault.take() {
            return Err(fault.into());
        }
        if !more && next == arrivals.len() {
            return Ok((tokens, first));
        }
    }
}

/// Runs requests in batches of a fixed size; a batch starts when all requests of the previous one
/// have ended.
fn in_order(batcher: &mut Batcher, arrivals: &[Arrival]) -> Result<(usize, Vec<f64>), Failure> {
    let mut tokens = 0;
    for batch in arrivals.chunks(EIGHT) {
        for arrival in batch {
            batcher.submit(Submission::from(arrival.request.clone()))?;
        }
        tokens += drain(batcher)?.values().map(Vec::len).sum::<usize>();
    }
    Ok((tokens, Vec::new()))
}

/// Rows of [`run`]: requests as they come, and the two ways to run them in order.
pub(super) const ROWS: usize = 3;

/// Measures continuous batching and batches in order.
pub(super) fn run(bare: &Bare, spec: &ModelSpec, args: &RequestsArgs, journal: &Journal) -> Result<(), Failure> {
    let all = draw_arrivals(args, spec.vocab);
    let shape = |requests| {
        let fixed = [("prompt_tokens", args.prompt_tokens), ("new_tokens", args.new_tokens)];
        let fixed = fixed.into_iter().filter_map(|(name, tokens)| tokens.map(|tokens| (name, tokens)));
        [("requests", requests), ("seats", args.seats)].into_iter().chain(fixed).collect::<Vec<_>>()
    };
    let mut batcher = bare.batcher(Some(args.step_rows), &options(args, args.context()))?;
    // Kernels and graphs of every width are built before the measurement.
    as_they_come(&mut batcher, &all[..all.len().min(2 * args.seats)])?;
    let before = batcher.statistics();
    let ours = watched(bare, &mut batcher, &all, as_they_come)?;
    let after = batcher.statistics();
    drop(batcher);
    journal.suspend(|| ours.tell("as they come"))?;
    let mut first = ours.first.clone();
    first.sort_by(f64::total_cmp);
    let part = |part: f64| first.get((first.len() as f64 * part) as usize).copied().unwrap_or(0.0) * 1e3;
    let steps = after.steps - before.steps;
    let rows = after.rows - before.rows;
    let values = [
        ("steps", steps as f64),
        ("rows_per_step", rows as f64 / steps as f64),
        ("preemptions", (after.preemptions - before.preemptions) as f64),
        ("first_token_ms", part(0.5)),
        ("first_token_p95_ms", part(0.95)),
    ];
    let measured =
        Measured { shape: &shape(all.len()), variant: "as they come", seconds: ours.seconds, values: &values };
    let mut kept = row(bare, spec, &measured);
    kept.values.extend(ours.values());
    journal.keep(kept)?;
    let some = if all.len() <= FEW { &all[..] } else { &all[..all.len().div_ceil(4)] };
    let few = BatchOptions { rows: EIGHT, ..options(args, args.context()) };
    for (chunk, name) in [(None, "8 in order"), (Some(args.step_rows), "8 in order, prompts in chunks")] {
        let mut batcher = bare.batcher(chunk, &few)?;
        in_order(&mut batcher, &some[..some.len().min(EIGHT)])?;
        let found = watched(bare, &mut batcher, some, in_order)?;
        journal.suspend(|| found.tell(name))?;
        let ratio = [("ratio", ours.speed() / found.speed())];
        let measured = Measured { shape: &shape(some.len()), variant: name, seconds: found.seconds, values: &ratio };
        let mut kept = row(bare, spec, &measured);
        kept.values.extend(found.values());
        journal.keep(kept)?;
    }
    Ok(())
}
