//! One prompt: its text as it comes, or one JSON object.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;

use super::{Failure, Work};
use crate::engine::{Request, Text};

/// What was generated.
struct Generated {
    tokens: Vec<u32>,
    /// Seconds from the program's start to the first token.
    first: Option<f64>,
    tokens_per_second: f64,
}

/// Generates, and prints text or JSON.
pub fn run(work: &Work, request: &Request) -> Result<ExitCode, Failure> {
    if work.args.json { print_json(work, request) } else { stream(work, request) }
}

fn print_json(work: &Work, request: &Request) -> Result<ExitCode, Failure> {
    let mut text = Text::new(work.engine.tokenizer(), work.stop)?;
    let generated = generate(work, request, |token| {
        text.push(token)?;
        Ok(text.is_ended())
    })?;
    let object = json!({
        "prompt_ids": request.prompt_ids,
        "token_ids": generated.tokens,
        "text": work.whole(&generated.tokens)?,
        "first_token_seconds": generated.first,
        "tokens_per_second": generated.tokens_per_second,
        "interrupted": work.interrupt.came(),
    });
    writeln!(io::stdout(), "{object}")?;
    Ok(work.interrupt.exit_code())
}

fn stream(work: &Work, request: &Request) -> Result<ExitCode, Failure> {
    let (mut text, mut out) = (Text::new(work.engine.tokenizer(), work.stop)?, io::stdout());
    let generated = generate(work, request, |token| {
        write!(out, "{}", text.push(token)?)?;
        out.flush()?;
        Ok(text.is_ended())
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
fn generate(
    work: &Work,
    request: &Request,
    mut each: impl FnMut(u32) -> Result<bool, Failure>,
) -> Result<Generated, Failure> {
    let (mut failure, mut tokens, mut first) = (None, Vec::new(), None);
    let mut last = Instant::now();
    let result = work.engine.generate(std::slice::from_ref(request), &work.sampling, |_, token| {
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
    let first = first.map(|first| first.duration_since(crate::cli::started()).as_secs_f64());
    Ok(Generated { tokens, first, tokens_per_second })
}
