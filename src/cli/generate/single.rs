//! One prompt: its text as it comes, or one JSON object.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

use super::result::Generated;
use super::{Failure, Work};
use crate::engine::{Request, Speed, Text};

/// Generates, and prints text or JSON.
pub fn run(work: &Work, request: &Request) -> Result<ExitCode, Failure> {
    if work.args.json { print_json(work, request) } else { stream(work, request) }
}

fn print_json(work: &Work, request: &Request) -> Result<ExitCode, Failure> {
    let mut text = Text::new(work.engine.tokenizer(), work.stop)?;
    let (generated, speed) = generate(work, request, |token| {
        text.push(token)?;
        Ok(text.is_ended())
    })?;
    let object = generated.json(work, request, speed, work.interrupt.came())?;
    writeln!(io::stdout(), "{object}")?;
    Ok(work.interrupt.exit_code())
}

fn stream(work: &Work, request: &Request) -> Result<ExitCode, Failure> {
    let (mut text, mut out) = (Text::new(work.engine.tokenizer(), work.stop)?, io::stdout());
    let (generated, speed) = generate(work, request, |token| {
        write!(out, "{}", text.push(token)?)?;
        out.flush()?;
        Ok(text.is_ended())
    })?;
    writeln!(io::stdout(), "{}", text.finish()?)?;
    generated.tell(work, speed, "", work.interrupt.came())?;
    Ok(work.interrupt.exit_code())
}

/// Generates; `each` says of a token whether the text ends with it. What an interrupt leaves is a result; a failure of `each`
/// wins over it.
fn generate(
    work: &Work,
    request: &Request,
    mut each: impl FnMut(u32) -> Result<bool, Failure>,
) -> Result<(Generated, Speed), Failure> {
    let (mut failure, mut generated) = (None, Generated::default());
    let result = work.engine.generate(std::slice::from_ref(request), &work.sampling, |_, token| {
        generated.push(token);
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
    let speed = match result {
        Ok((_, speed)) => speed,
        Err(error) if work.interrupt.came() && error.is_abort() => generated.speed(),
        Err(error) => return Err(error.into()),
    };
    Ok((generated, speed))
}
