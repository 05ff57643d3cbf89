//! Requests of a bench: how they are drawn, served and reported.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use thiserror::Error;
use tilewright_codegen::trial::Draw;
use tilewright_megakernel::lower::MAX_ROWS;
use tilewright_megakernel::model::ModelSpec;

use super::finding;
use super::timing::Times;
use crate::cli::Failure;
use crate::cli::number::{self, MOST_TOKENS};
use crate::engine::{Bare, BatchOptions, Batcher, Event, Request, Ticket};
use crate::results::ResultRow;

/// The requests of the suite, and their batching.
#[derive(Args)]
pub struct RequestsArgs {
    /// Requests that arrive at random times; 0 for none
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = number::count(0..=1 << 20))]
    pub(super) requests: usize,
    /// Requests that arrive in a second, on average
    #[arg(long, value_name = "N", default_value_t = 500.0, value_parser = number::positive)]
    pub(super) rate: f64,
    /// Tokens of the prompt of every request that arrives; by default 16 to 512 at random
    #[arg(long, value_name = "N", value_parser = number::count(1..=MOST_PROMPT))]
    pub(super) prompt_tokens: Option<usize>,
    /// New tokens of every request that arrives; by default 16 to 400 at random
    #[arg(long, value_name = "N", value_parser = number::count(1..=4096))]
    pub(super) new_tokens: Option<usize>,
    /// Requests that run at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = number::count(1..=MAX_ROWS as u64))]
    pub(super) seats: usize,
    /// Most rows of a step: those that decode, and a chunk of prompts
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = number::count(1..=MAX_ROWS as u64))]
    pub(super) step_rows: usize,
    /// Target time of a step in which requests decode, in milliseconds
    #[arg(long, value_name = "MS", value_parser = number::milliseconds, allow_negative_numbers = true)]
    pub(super) step_ms: Option<f64>,
    /// Tokens of a prompt that arrives while 8 sequences decode; 0 for none
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = number::count(0..=MOST_PROMPT))]
    pub(super) beside: usize,
    /// Tokens of the prompts of 8 sequences that then decode together; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::count(0..=MOST_PROMPT))]
    pub(super) together: usize,
    /// Seconds of random requests, cancellations, deadlines and aborts; 0 for none
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = number::seconds, allow_negative_numbers = true)]
    pub(super) soak: f64,
}

/// Most tokens of a prompt: with those that follow, positions are `i32`.
pub(super) const MOST_PROMPT: u64 = MOST_TOKENS - 4096;

#[derive(Debug, Error)]
pub(super) enum RequestsError {
    #[error(
        "a sequence had all of its tokens before the prompts of the others, {prompt} tokens each, were in; give more --step-rows"
    )]
    Apart { prompt: usize },
    #[error("{what}; the batcher is wrong")]
    Wrong { what: String },
}

/// Longest sequence of the arrivals and of a soak, where lengths are random.
pub(super) const CONTEXT: usize = 1024;

impl RequestsArgs {
    /// Longest sequence of the arrivals.
    pub(super) fn context(&self) -> usize {
        let [prompt, new] = [(self.prompt_tokens, MOST_DRAWN[0]), (self.new_tokens, MOST_DRAWN[1])]
            .map(|(fixed, most)| fixed.unwrap_or(most));
        (prompt + new).max(CONTEXT).next_multiple_of(64)
    }

    /// A request that arrives.
    pub(super) fn draw(&self, draw: &mut Draw, vocab: usize) -> Request {
        let drawn = draw_request(draw, vocab);
        let max_new_tokens = self.new_tokens.unwrap_or(drawn.max_new_tokens);
        match self.prompt_tokens {
            None => Request { max_new_tokens, ..drawn },
            Some(tokens) => Request { prompt_ids: draw_prompt(draw, tokens, vocab), max_new_tokens },
        }
    }
}

/// Most tokens of a prompt, and most new tokens, of a request of random lengths.
const MOST_DRAWN: [usize; 2] = [512, 400];

/// Sequences of a batch in order, and sequences that decode while a prompt is prefilled.
pub(super) const EIGHT: usize = 8;

/// Steps of a launch, after which the host looks for new requests.
pub(super) const STEPS: usize = 8;

pub(super) fn options(args: &RequestsArgs, context: usize) -> BatchOptions {
    let step_time = args.step_ms.map(|ms| Duration::from_secs_f64(ms / 1e3));
    BatchOptions {
        rows: args.seats,
        step_time,
        steps: STEPS,
        sampling: false,
        sharing: false,
        ..BatchOptions::for_context(context)
    }
}

/// A number from `least` to `most`, log-uniform.
pub(super) fn spread(draw: &mut Draw, least: f64, most: f64) -> usize {
    (least * (most / least).powf(draw.unit().abs())) as usize
}

pub(super) fn draw_request(draw: &mut Draw, vocab: usize) -> Request {
    let [prompt, new] = MOST_DRAWN.map(|most| spread(draw, 16.0, most as f64));
    Request { prompt_ids: draw_prompt(draw, prompt, vocab), max_new_tokens: new }
}

fn draw_prompt(draw: &mut Draw, tokens: usize, vocab: usize) -> Vec<u32> {
    (0..tokens).map(|_| draw.between(0..=vocab as u32 - 1)).collect()
}

/// Runs to the end. Returns the tokens of each request.
pub(super) fn drain(batcher: &mut Batcher) -> Result<BTreeMap<Ticket, Vec<u32>>, Failure> {
    let mut all = BTreeMap::<Ticket, Vec<u32>>::new();
    let mut fault = None;
    let mut more = true;
    while more {
        more = batcher.step(|ticket, event| match event {
            Event::Token(token) => all.entry(ticket).or_default().push(token.id),
            Event::End(_) => {}
            Event::Fault(error) => fault = Some(error),
        });
        if let Some(fault) = fault.take() {
            return Err(fault.into());
        }
    }
    Ok(all)
}

/// The contents of a row.
pub(super) struct Measured<'a> {
    pub shape: &'a [(&'a str, usize)],
    pub variant: &'a str,
    pub seconds: f64,
    pub values: &'a [(&'a str, f64)],
}

pub(super) fn row(bare: &Bare, spec: &ModelSpec, measured: &Measured) -> ResultRow {
    let Measured { shape, variant, seconds, values } = *measured;
    let of_model = [("hidden", spec.hidden), ("layers", spec.layers)];
    let shape: Vec<_> = shape.iter().chain(&of_model).map(|&(name, extent)| (name, extent as u64)).collect();
    let row = finding::row("requests", &shape, Times { samples: vec![seconds * 1e6] }, [0, 0], 0.0);
    let values = values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let variant = bare.flow().map_or(variant.to_owned(), |flow| format!("{variant}, flow {flow}"));
    ResultRow { variant, values, bytes: None, error: None, ..row }
}
