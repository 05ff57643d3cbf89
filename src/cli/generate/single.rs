//! Generation for a single prompt: its text as it is generated, or one JSON object.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

use super::Failure;
use super::result::Generated;
use crate::cli::generate::job::GenerationJob;
use crate::engine::{Finish, Request, Speed};

/// Generates, and prints text or JSON.
pub fn run(work: &GenerationJob, request: &Request) -> Result<ExitCode, Failure> {
    let mut generated = Generated::new(work, 0, request)?;
    let (finish, speed) = generate(work, request, &mut generated)?;
    let (rest, finish) = generated.finish(finish)?;
    if work.args.json {
        writeln!(io::stdout(), "{}", generated.json(work, speed, finish))?;
    } else {
        writeln!(io::stdout(), "{rest}")?;
        generated.tell(work, speed, "", work.interrupt.came())?;
    }
    Ok(work.interrupt.exit_code())
}

/// Generates. An interrupt leaves a result without a finish; a failure to decode or print wins over
/// it.
fn generate(
    work: &GenerationJob,
    request: &Request,
    generated: &mut Generated,
) -> Result<(Option<Finish>, Speed), Failure> {
    let mut failure = None;
    let result = work.engine.generate(std::slice::from_ref(request), work.sampling, |_, token| {
        match generated.push(token, None, !work.args.json) {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(()),
            Err(error) => {
                // Without a reader of the text the rest need not be computed.
                failure = Some(error);
                work.engine.abort_handle().abort();
                ControlFlow::Break(())
            }
        }
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    match result {
        Ok((completions, speed)) => Ok((completions.first().map(|completion| completion.finish), speed)),
        Err(error) if work.interrupt.came() && error.is_abort() => Ok((None, generated.speed())),
        Err(error) => Err(error.into()),
    }
}
