//! Several prompts, or one with options that only a batch has: batched continuously. Each of
//! several prompts is a line of JSON when it ends.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

use serde_json::json;

use super::Failure;
use super::result::Generated;
use crate::cli::generate::job::GenerationJob;
use crate::engine::{BatchOptions, Batcher, Event, Finish, Request, Statistics, Submission, Ticket};

/// All requests, and those that have just ended.
struct Answers<'w> {
    work: &'w GenerationJob<'w>,
    open: BTreeMap<Ticket, Generated<'w>>,
    ended: Vec<(Generated<'w>, Finish)>,
    failure: Option<Failure>,
}

/// Generates, and prints text or JSON.
pub fn run(work: &GenerationJob) -> Result<ExitCode, Failure> {
    let mut batcher = batcher(work)?;
    let mut answers = Answers { work, open: BTreeMap::new(), ended: Vec::new(), failure: None };
    for (prompt, request) in work.requests.iter().enumerate() {
        let ticket = batcher.submit(submission(work, prompt, request))?;
        answers.open.insert(ticket, Generated::new(work, prompt, request)?);
    }
    loop {
        let more = batcher.step(|ticket, event| match answers.take(ticket, event) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        if let Some(failure) = answers.failure {
            return Err(failure);
        }
        for (answer, finish) in answers.ended.drain(..) {
            print(answer, work, Some(finish), batcher.statistics())?;
        }
        if !more || work.interrupt.came() {
            break;
        }
    }
    // Prompts left by an interrupt, in order.
    for answer in answers.open.into_values() {
        print(answer, work, None, batcher.statistics())?;
    }
    Ok(work.interrupt.exit_code())
}

/// A batcher with room for the longest request.
fn batcher(work: &GenerationJob) -> Result<Batcher, Failure> {
    let max = work.engine.spec().max_positions;
    let context = Request::context(&work.requests, max);
    let options = BatchOptions {
        deterministic: work.args.batch.deterministic,
        sampling: !work.sampling.is_greedy(),
        rows: work.args.batch.rows.into(),
        step_time: work.args.batch.step_time()?,
        ..BatchOptions::for_context(context)
    };
    Ok(work.engine.batcher(&options)?)
}

fn submission(work: &GenerationJob, prompt: usize, request: &Request) -> Submission {
    let args = &work.args.batch;
    Submission {
        sampling: work.sampling,
        row: u32::try_from(prompt).unwrap_or(u32::MAX),
        penalties: work.penalties(),
        suppressed: work.suppressed().to_vec(),
        logprobs: args.logprobs,
        speculate: args.speculate,
        ..Submission::from(request.clone())
    }
}

impl GenerationJob<'_> {
    /// Whether the text of the one prompt streams.
    fn streams(&self) -> bool {
        self.requests.len() == 1 && !self.args.json
    }
}

impl Answers<'_> {
    /// Takes an event; returns whether its request goes on.
    fn take(&mut self, ticket: Ticket, event: Event) -> bool {
        if self.failure.is_some() {
            return false;
        }
        match event {
            Event::Token(token) => {
                let Some(answer) = self.open.get_mut(&ticket) else { return false };
                answer.push(token.id, token.logprobs, self.work.streams()).unwrap_or_else(|failure| {
                    self.failure = Some(failure);
                    false
                })
            }
            Event::End(completion) => {
                self.ended.extend(self.open.remove(&ticket).map(|answer| (answer, completion.finish)));
                false
            }
            Event::Fault(error) => {
                // The answers left by an interrupt are results.
                if !(error.is_abort() && self.work.interrupt.came()) {
                    self.failure = Some(error.into());
                }
                false
            }
        }
    }
}

/// Prints the rest of a text that streams, or a line of JSON. Without a finish the request was
/// interrupted.
fn print(
    mut answer: Generated,
    work: &GenerationJob,
    finish: Option<Finish>,
    statistics: Statistics,
) -> Result<(), Failure> {
    let mut out = io::stdout();
    let (rest, finish) = answer.finish(finish)?;
    let Statistics { steps, proposed, accepted, .. } = statistics;
    if work.streams() {
        writeln!(out, "{rest}")?;
        let remark = match work.args.batch.speculate {
            true => format!("; {accepted} of {proposed} proposed tokens accepted"),
            false => String::new(),
        };
        return Ok(answer.tell(work, answer.speed(), &remark, finish.is_none())?);
    }
    let mut object = answer.json(work, answer.speed(), finish);
    if work.args.batch.speculate && work.requests.len() == 1 {
        object["speculation"] = json!({ "steps": steps, "proposed": proposed, "accepted": accepted });
    }
    writeln!(out, "{object}")?;
    Ok(out.flush()?)
}
