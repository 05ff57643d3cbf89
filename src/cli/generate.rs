//! `tilewright generate`: a prompt's continuation, streamed.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tilewright_kernels::naive::Sampling;

use super::Failure;
use super::interrupt::Interrupt;
use super::load::load;
use super::prompt::PromptArgs;
use crate::checkpoint::TextStream;
use crate::engine::{Device, Engine, EngineError, Request, StopTexts};

/// Continue a prompt with a model
///
/// Greedy unless a temperature is given; stops at the model's end-of-sequence token, or before a text of --stop. The text
/// streams to standard output. Ctrl-C ends it with what there is by then, and exit code 130.
#[derive(Args)]
pub struct GenerateArgs {
    /// Folder of a Hugging Face checkpoint
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Most tokens to generate
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_new_tokens: usize,
    /// End before this text, or at the special token of this name; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
    /// Sample with this temperature; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f32,
    /// Sample among the K likeliest tokens only
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Sample among the likeliest tokens that together have probability P
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f32,
    /// Seed of the sampler: the same seed gives the same text
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Where to run: cpu (all cores), cpu:N, cuda:N or sim:SEED
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: Device,
    /// Print one JSON object at the end instead of streaming text
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    let sampling = Sampling::new(args.temperature, args.top_k, args.top_p, args.seed).map_err(EngineError::from)?;
    StopTexts::new(args.stop.clone())?;
    let text = args.prompt.text()?;
    let engine = load(&args.model, args.device)?;
    let prompt_ids = args.prompt.ids(text, &engine)?;
    let request = Request { prompt_ids, max_new_tokens: args.max_new_tokens };
    let interrupt = Interrupt::aborts(engine.abort_handle())?;
    let work = Work { engine: &engine, request, sampling, stop: &args.stop, interrupt };
    if args.json { print_json(&work) } else { stream(&work) }
}

/// What is to be generated.
struct Work<'e> {
    engine: &'e Engine,
    request: Request,
    sampling: Sampling,
    stop: &'e [String],
    interrupt: Interrupt,
}

/// The text of the tokens, up to where it stops.
struct Text<'e> {
    stream: TextStream<'e>,
    stop: StopTexts,
    /// Special tokens that end it. They have no text.
    ends: Vec<u32>,
    ended: bool,
}

impl<'e> Text<'e> {
    fn new(work: &Work<'e>) -> Result<Text<'e>, Failure> {
        let tokenizer = work.engine.tokenizer();
        let ends = work.stop.iter().filter_map(|text| tokenizer.special_id(text)).collect();
        let stop = StopTexts::new(work.stop.iter().cloned())?;
        Ok(Text { stream: tokenizer.stream(), stop, ends, ended: false })
    }

    /// The text that a token makes certain.
    fn push(&mut self, token: u32) -> Result<String, Failure> {
        let piece = self.stop.push(&self.stream.push(token)?);
        self.ended = self.stop.is_found() || self.ends.contains(&token);
        Ok(piece)
    }

    /// The rest of the text.
    fn finish(mut self) -> Result<String, Failure> {
        // Behind a stop text no more is wanted, not even to be decoded.
        if self.stop.is_found() {
            return Ok(String::new());
        }
        let rest = self.stop.push(&self.stream.finish()?);
        Ok(rest + &self.stop.finish())
    }
}

/// What was generated.
struct Generated {
    tokens: Vec<u32>,
    /// Seconds from the program's start to the first token.
    first: Option<f64>,
    tokens_per_second: f64,
}

fn print_json(work: &Work) -> Result<ExitCode, Failure> {
    let mut text = Text::new(work)?;
    let generated = generate(work, |token| {
        text.push(token)?;
        Ok(text.ended)
    })?;
    let mut stop = StopTexts::new(work.stop.iter().cloned())?;
    let whole = stop.push(&work.engine.tokenizer().decode(&generated.tokens)?) + &stop.finish();
    let object = json!({
        "prompt_ids": work.request.prompt_ids,
        "token_ids": generated.tokens,
        "text": whole,
        "first_token_seconds": generated.first,
        "tokens_per_second": generated.tokens_per_second,
        "interrupted": work.interrupt.came(),
    });
    writeln!(io::stdout(), "{object}")?;
    Ok(work.interrupt.exit_code())
}

fn stream(work: &Work) -> Result<ExitCode, Failure> {
    let (mut text, mut out) = (Text::new(work)?, io::stdout());
    let generated = generate(work, |token| {
        write!(out, "{}", text.push(token)?)?;
        out.flush()?;
        Ok(text.ended)
    })?;
    writeln!(io::stdout(), "{}", text.finish()?)?;
    if io::stderr().is_terminal() {
        let Generated { tokens, first, tokens_per_second } = generated;
        let (count, first, device) = (tokens.len(), first.unwrap_or(0.0), work.engine.device());
        let end = if work.interrupt.came() { "; interrupted" } else { "" };
        let speed = format!("{tokens_per_second:.1} tokens/s on {device}");
        writeln!(io::stderr(), "{count} tokens, the first after {first:.2} s, {speed}{end}")?;
    }
    Ok(work.interrupt.exit_code())
}

/// Generates; `each` says of a token whether the text ends with it. What an interrupt leaves is a result; a failure of `each`
/// wins over it.
fn generate(work: &Work, mut each: impl FnMut(u32) -> Result<bool, Failure>) -> Result<Generated, Failure> {
    let (mut failure, mut tokens, mut first) = (None, Vec::new(), None);
    let mut last = Instant::now();
    let result = work.engine.generate(std::slice::from_ref(&work.request), &work.sampling, |_, token| {
        last = Instant::now();
        first.get_or_insert(last);
        tokens.push(token);
        match each(token) {
            Ok(false) => ControlFlow::Continue(()),
            Ok(true) => ControlFlow::Break(()),
            Err(error) => {
                // Whoever reads the text is gone: nobody needs more of it.
                failure = Some(error);
                work.engine.abort_handle().abort();
                ControlFlow::Break(())
            }
        }
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    let tokens_per_second = match result {
        Ok((_, speed)) => speed.tokens_per_second(),
        Err(error) if work.interrupt.came() && error.is_abort() => {
            let seconds = first.map_or(0.0, |first| last.duration_since(first).as_secs_f64());
            if seconds > 0.0 { (tokens.len() - 1) as f64 / seconds } else { 0.0 }
        }
        Err(error) => return Err(error.into()),
    };
    let first = first.map(|first| first.duration_since(super::started()).as_secs_f64());
    Ok(Generated { tokens, first, tokens_per_second })
}
