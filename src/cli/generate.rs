//! `tilewright generate`: a prompt's continuation, streamed.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tilewright_kernels::naive::Sampling;

use super::Failure;
use super::load::load;
use crate::engine::{Completion, Device, Engine, EngineError, Request, Speed};

/// Continue a prompt with a model
///
/// Greedy unless a temperature is given; stops at the model's end-of-sequence token. The text streams to standard
/// output.
#[derive(Args)]
pub struct GenerateArgs {
    /// Folder of a Hugging Face checkpoint
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Text to continue
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: String,
    /// Most tokens to generate
    #[arg(long, value_name = "N", default_value_t = 64)]
    max_new_tokens: usize,
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
    if args.prompt.is_empty() {
        return Err(EngineError::EmptyPrompt.into());
    }
    let engine = load(&args.model, args.device)?;
    let prompt_ids = engine.tokenizer().encode(&args.prompt)?;
    let request = Request { prompt_ids, max_new_tokens: args.max_new_tokens };
    if args.json { print_json(&engine, &request, &sampling) } else { stream(&engine, &request, &sampling) }
}

fn print_json(engine: &Engine, request: &Request, sampling: &Sampling) -> Result<ExitCode, Failure> {
    let (completion, speed) = generate(engine, request, sampling, |_| Ok(()))?;
    let text = engine.tokenizer().decode(&completion.token_ids)?;
    let object = json!({
        "prompt_ids": request.prompt_ids,
        "token_ids": completion.token_ids,
        "text": text,
        "tokens_per_second": speed.tokens_per_second(),
    });
    writeln!(io::stdout(), "{object}")?;
    Ok(ExitCode::SUCCESS)
}

fn stream(engine: &Engine, request: &Request, sampling: &Sampling) -> Result<ExitCode, Failure> {
    let mut text = engine.tokenizer().stream();
    let mut out = io::stdout();
    let (completion, speed) = generate(engine, request, sampling, |token| {
        write!(out, "{}", text.push(token)?)?;
        Ok(out.flush()?)
    })?;
    writeln!(io::stdout(), "{}", text.finish()?)?;
    if io::stderr().is_terminal() {
        let count = completion.token_ids.len();
        writeln!(io::stderr(), "{count} tokens, {:.1} tokens/s on {}", speed.tokens_per_second(), engine.device())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Generates for one request; a failure of `each` wins over the result.
fn generate(
    engine: &Engine,
    request: &Request,
    sampling: &Sampling,
    mut each: impl FnMut(u32) -> Result<(), Failure>,
) -> Result<(Completion, Speed), Failure> {
    let mut failure = None;
    let (mut completions, speed) = engine.generate(std::slice::from_ref(request), sampling, |_, token| {
        if failure.is_none() {
            failure = each(token).err();
        }
    })?;
    match (failure, completions.pop()) {
        (Some(failure), _) => Err(failure),
        (None, Some(completion)) => Ok((completion, speed)),
        (None, None) => unreachable!("one request gives one completion"),
    }
}
