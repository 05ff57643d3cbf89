//! The suite of requests: continuous batching vs. batches in order, and how a prompt slows down
//! sequences that decode.
//!
//! | row | contents |
//! |---|---|
//! | `arrivals` | new tokens per second of requests of random lengths at random times, and in batches of 8 in order |
//! | `beside` | time between tokens of 8 sequences with and without a prompt that is prefilled meanwhile |
//! | `together` | 8 long prompts, and the time of a step in which all 8 decode |
//! | `soak` | random requests, cancellations, deadlines and aborts: nothing is lost, tokens are those of a request alone |

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tilewright_codegen::trial::Draw;
use tilewright_flow::program::FlowSettings;
use tilewright_megakernel::model::ModelSpec;

use super::arrivals;
use super::journal::Journal;
use crate::cli::Failure;
use crate::cli::bench::served::{
    CONTEXT, EIGHT, Measured, RequestsArgs, RequestsError, drain, draw_request, options, row,
};
use crate::cli::subject::ModelSource;
use crate::engine::{Bare, BatchOptions, Device, Event, Request, Submission, Ticket};
use crate::results::ResultRow;

/// Runs the suite.
pub fn run(
    source: &ModelSource,
    flow: Option<FlowSettings>,
    device: Device,
    args: &RequestsArgs,
    journal: &Journal,
) -> Result<(), Failure> {
    let (spec, weights) = source.open()?;
    let bare = Bare::new(device, spec.clone(), weights, flow)?;
    let arrivals = if args.requests > 0 { arrivals::ROWS } else { 0 };
    let others = [args.beside > 0, args.together > 0, args.soak > 0.0].map(usize::from);
    journal.expect(arrivals + others.iter().sum::<usize>());
    if args.requests > 0 {
        arrivals::run(&bare, &spec, args, journal)?;
    }
    if args.beside > 0 {
        beside(&bare, &spec, args, journal)?;
    }
    if args.together > 0 {
        together(&bare, &spec, args, journal)?;
    }
    if args.soak > 0.0 {
        soak(&bare, &spec, args, journal)?;
    }
    Ok(())
}

fn beside(bare: &Bare, spec: &ModelSpec, args: &RequestsArgs, journal: &Journal) -> Result<(), Failure> {
    let context = CONTEXT.max(args.beside + 1).next_multiple_of(64);
    let few = BatchOptions { rows: EIGHT + 1, ..options(args, context) };
    let mut batcher = bare.batcher(Some(args.step_rows), &few)?;
    let draw = &mut Draw::new(5);
    let mut request = |prompt: usize, new| {
        let prompt_ids = (0..prompt).map(|_| draw.between(0..=spec.vocab as u32 - 1)).collect();
        Submission::from(Request { prompt_ids, max_new_tokens: new })
    };
    // Two rounds warm up kernels, graphs and the estimates of step times.
    let mut found = [0.0; 2];
    let mut longest = 0.0;
    let mut steps = 0;
    for round in 0..3 {
        let mut running = Vec::new();
        for _ in 0..EIGHT {
            running.push(batcher.submit(request(512, 480))?);
        }
        let mut watch = TokenWatch::of(&running);
        // Waits until all of them decode, then measures without a prompt.
        while watch.least() < 8 {
            batcher.step(|ticket, event| watch.hear(ticket, &event));
        }
        watch.restart();
        while watch.least() < 64 {
            batcher.step(|ticket, event| watch.hear(ticket, &event));
        }
        found[0] = watch.gap();
        let long = batcher.submit(request(args.beside, 1))?;
        watch.restart();
        let before = batcher.statistics().steps;
        while !watch.ended.contains(&long) {
            batcher.step(|ticket, event| watch.hear(ticket, &event));
        }
        (found[1], longest) = (watch.gap(), watch.longest);
        steps = batcher.statistics().steps - before;
        if let Some(fault) = watch.fault.take() {
            return Err(fault);
        }
        running.into_iter().for_each(|ticket| _ = batcher.cancel(ticket));
        let _ = (round, drain(&mut batcher)?);
    }
    let [without, with] = found;
    let values = [
        ("without_ms", without * 1e3),
        ("with_ms", with * 1e3),
        ("longest_ms", longest * 1e3),
        ("ratio", with / without),
        ("prompt_ms", with * steps as f64 * 1e3),
        ("steps", steps as f64),
    ];
    let shape = [("prompt", args.beside), ("running", EIGHT)];
    let name = args.step_ms.map_or("as fast as it can".to_owned(), |ms| format!("steps of {ms} ms"));
    Ok(journal.keep(row(bare, spec, &Measured { shape: &shape, variant: &name, seconds: with, values: &values }))?)
}

/// Tokens of each of the sequences that decode together.
const TOGETHER: usize = 256;

fn together(bare: &Bare, spec: &ModelSpec, args: &RequestsArgs, journal: &Journal) -> Result<(), Failure> {
    let context = (args.together + TOGETHER).next_multiple_of(64);
    let eight = BatchOptions { rows: EIGHT, steps: 64, ..options(args, context) };
    let mut batcher = bare.batcher(Some(args.step_rows), &eight)?;
    let draw = &mut Draw::new(5);
    let mut found = [0.0; 3];
    // A shorter prompt builds kernels and graphs before the measurement.
    for prompt in [args.together.min(2 * args.step_rows), args.together] {
        let start = Instant::now();
        let mut running = Vec::new();
        for _ in 0..EIGHT {
            let prompt_ids = (0..prompt).map(|_| draw.between(0..=spec.vocab as u32 - 1)).collect();
            running.push(batcher.submit(Submission::from(Request { prompt_ids, max_new_tokens: TOGETHER }))?);
        }
        let mut watch = TokenWatch::of(&running);
        while watch.least() < 1 {
            batcher.step(|ticket, event| watch.hear(ticket, &event));
        }
        let prompts = start.elapsed().as_secs_f64();
        let steps = batcher.statistics().steps;
        // Until the first sequence ends, all are in every step.
        let decoding = Instant::now();
        while watch.ended.is_empty() {
            batcher.step(|ticket, event| watch.hear(ticket, &event));
        }
        let count = batcher.statistics().steps - steps;
        if count == 0 {
            return Err(watch.fault.take().unwrap_or_else(|| RequestsError::Apart { prompt }.into()));
        }
        found = [prompts, decoding.elapsed().as_secs_f64() / count as f64, count as f64];
        drain(&mut batcher)?;
    }
    let ([prompts, step, steps], tokens) = (found, (EIGHT * args.together) as f64);
    let values = [("prompts_s", prompts), ("prompt_tokens_per_s", tokens / prompts), ("steps", steps)];
    let shape = [("prompt", args.together), ("running", EIGHT)];
    Ok(journal.keep(row(
        bare,
        spec,
        &Measured { shape: &shape, variant: "together", seconds: step, values: &values },
    ))?)
}

/// Times at which tokens of running requests arrive.
struct TokenWatch {
    tokens: BTreeMap<Ticket, usize>,
    ended: Vec<Ticket>,
    since: Instant,
    last: Instant,
    longest: f64,
    /// Tokens of the first request at the last restart.
    counted: usize,
    fault: Option<Failure>,
}

impl TokenWatch {
    fn of(running: &[Ticket]) -> TokenWatch {
        let tokens = running.iter().map(|&ticket| (ticket, 0)).collect();
        let now = Instant::now();
        TokenWatch { tokens, ended: Vec::new(), since: now, last: now, longest: 0.0, counted: 0, fault: None }
    }

    fn hear(&mut self, ticket: Ticket, event: &Event) {
        match event {
            Event::Token(_) => {
                if let Some(count) = self.tokens.get_mut(&ticket) {
                    *count += 1;
                    // All running requests are in every step, so the first stands for all.
                    if self.tokens.first_key_value().is_some_and(|(first, _)| *first == ticket) {
                        let now = Instant::now();
                        self.longest = self.longest.max((now - self.last).as_secs_f64());
                        self.last = now;
                    }
                }
            }
            Event::End(_) => self.ended.push(ticket),
            Event::Fault(error) => {
                self.ended.push(ticket);
                self.fault = Some(error.clone().into());
            }
        }
    }

    fn least(&self) -> usize {
        // A fault ends the wait.
        if self.fault.is_some() { usize::MAX } else { self.tokens.values().copied().min().unwrap_or(usize::MAX) }
    }

    fn first(&self) -> usize {
        self.tokens.values().next().copied().unwrap_or(0)
    }

    fn restart(&mut self) {
        self.since = Instant::now();
        (self.last, self.longest, self.counted) = (self.since, 0.0, self.first());
    }

    /// Mean seconds between tokens of a request since the restart.
    fn gap(&self) -> f64 {
        (self.last - self.since).as_secs_f64() / (self.first() - self.counted).max(1) as f64
    }
}

/// Requests of a soak that are repeated alone.
const SAMPLE: usize = 8;

fn soak(bare: &Bare, spec: &ModelSpec, args: &RequestsArgs, journal: &Journal) -> Result<(), Failure> {
    // A fixed width makes a request's tokens independent of the others; there are pages for half of
    // the seats.
    let pages = args.seats * CONTEXT / 64 / 2;
    let options = BatchOptions { deterministic: true, sharing: true, pages: Some(pages), ..options(args, CONTEXT) };
    let mut batcher = bare.batcher(Some(args.step_rows.min(128)), &options)?;
    let draw = &mut Draw::new(3);
    let start = Instant::now();
    let mut open: BTreeMap<Ticket, (Request, Vec<u32>)> = BTreeMap::new();
    let mut whole: Vec<(Request, Vec<u32>)> = Vec::new();
    let [mut given, mut cancelled, mut faults, mut expired, mut ended] = [0usize; 5];
    let mut submitting = true;
    loop {
        submitting &= start.elapsed().as_secs_f64() < args.soak;
        while submitting && open.len() < 2 * args.seats {
            let request = draw_request(draw, spec.vocab);
            let deadline = (draw.between(0..=19) == 0).then(|| Duration::from_millis(draw.between(1..=2000).into()));
            let priority = draw.between(0..=1) as i32;
            let submission = Submission { deadline, priority, ..Submission::from(request.clone()) };
            open.insert(batcher.submit(submission)?, (request, Vec::new()));
        }
        if submitting && draw.between(0..=19) == 0 {
            let at = draw.between(0..=open.len() as u32 - 1) as usize;
            if let Some(ticket) = open.keys().nth(at).copied() {
                cancelled += usize::from(batcher.cancel(ticket).is_some());
                open.remove(&ticket);
            }
        }
        if submitting && draw.between(0..=999) == 0 {
            bare.abort().abort();
        }
        let mut wrong = None;
        let more = batcher.step(|ticket, event| {
            let Some((request, tokens)) = open.get_mut(&ticket) else {
                wrong = Some(format!("request {} has an event after its end", ticket.number()));
                return ControlFlow::Break(());
            };
            match event {
                Event::Token(token) => {
                    given += 1;
                    tokens.push(token.id);
                }
                Event::End(completion) => {
                    if completion.token_ids != *tokens {
                        wrong = Some(format!("request {} has other tokens at its end than were told", ticket.number()));
                    }
                    ended += 1;
                    match tokens.len() == request.max_new_tokens {
                        true => whole.extend(open.remove(&ticket)),
                        false => {
                            expired += 1;
                            open.remove(&ticket);
                        }
                    }
                }
                Event::Fault(_) => {
                    faults += 1;
                    open.remove(&ticket);
                }
            }
            ControlFlow::Continue(())
        });
        if let Some(what) = wrong {
            return Err(RequestsError::Wrong { what }.into());
        }
        if !more && !submitting {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let held = batcher.held_pages();
    if !open.is_empty() || held > 0 {
        let what = format!("{} requests have not ended, {held} pages were not freed", open.len());
        return Err(RequestsError::Wrong { what }.into());
    }
    let every = (whole.len() / SAMPLE).max(1);
    for (request, tokens) in whole.iter().step_by(every) {
        let ticket = batcher.submit(Submission::from(request.clone()))?;
        let alone = drain(&mut batcher)?.remove(&ticket).unwrap_or_default();
        if let Some(at) = alone.iter().zip(tokens).position(|(a, b)| a != b) {
            let what = format!("a request of {} tokens has another token {at} alone", request.prompt_ids.len());
            return Err(RequestsError::Wrong { what }.into());
        }
    }
    let values = [
        ("new_tokens", given),
        ("ended", ended),
        ("cancelled", cancelled),
        ("expired", expired),
        ("faults", faults),
        ("preemptions", batcher.statistics().preemptions as usize),
        ("run_alone", whole.len().div_ceil(every)),
    ];
    let values = values.map(|(name, count)| (name, count as f64));
    let shape = [("seats", args.seats)];
    let found = row(bare, spec, &Measured { shape: &shape, variant: "soak", seconds, values: &values });
    Ok(journal.keep(ResultRow { verdict: Some("right".into()), ..found })?)
}
