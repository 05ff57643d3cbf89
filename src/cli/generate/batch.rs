//! Many prompts, or one with what only a batch has: batched continuously. Each of many is a line of JSON when it ends.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::result::Generated;
use super::{Failure, Work};
use crate::engine::{BatchOptions, Batcher, Event, Finish, Logprobs, Request, Statistics, Submission, Text, Ticket};

/// A request under way.
struct Answer<'w> {
    /// Which of the prompts.
    prompt: usize,
    request: &'w Request,
    text: Text<'w>,
    generated: Generated,
    logprobs: Vec<Logprobs>,
}

/// All requests, and those that have just ended.
struct Answers<'w> {
    work: &'w Work<'w>,
    open: BTreeMap<Ticket, Answer<'w>>,
    ended: Vec<(Answer<'w>, Finish)>,
    failure: Option<Failure>,
}

/// Generates, and prints text or JSON.
pub fn run(work: &Work) -> Result<ExitCode, Failure> {
    let mut batcher = batcher(work)?;
    let mut answers = Answers { work, open: BTreeMap::new(), ended: Vec::new(), failure: None };
    for (prompt, request) in work.requests.iter().enumerate() {
        let ticket = batcher.submit(submission(work, prompt, request))?;
        answers.open.insert(ticket, Answer::new(work, prompt, request)?);
    }
    loop {
        let more = batcher.step(|ticket, event| match answers.hear(ticket, event) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        if let Some(failure) = answers.failure {
            return Err(failure);
        }
        for (answer, finish) in answers.ended.drain(..) {
            answer.print(work, Some(finish), batcher.statistics())?;
        }
        if !more || work.interrupt.came() {
            break;
        }
    }
    // What an interrupt left, in the order of the prompts.
    for answer in answers.open.into_values() {
        answer.print(work, None, batcher.statistics())?;
    }
    Ok(work.interrupt.exit_code())
}

/// A batcher with room for the longest request.
fn batcher(work: &Work) -> Result<Batcher, Failure> {
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

fn submission(work: &Work, prompt: usize, request: &Request) -> Submission {
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

impl Work<'_> {
    /// Whether the text of the one prompt streams.
    fn streams(&self) -> bool {
        self.requests.len() == 1 && !self.args.json
    }
}

impl Answers<'_> {
    /// Takes an event; whether its request goes on.
    fn hear(&mut self, ticket: Ticket, event: Event) -> bool {
        if self.failure.is_some() {
            return false;
        }
        match event {
            Event::Token(token) => {
                let Some(answer) = self.open.get_mut(&ticket) else { return false };
                answer.logprobs.extend(token.logprobs);
                answer.push(token.id, self.work.streams()).unwrap_or_else(|failure| {
                    self.failure = Some(failure);
                    false
                })
            }
            Event::End(completion) => {
                self.ended.extend(self.open.remove(&ticket).map(|answer| (answer, completion.finish)));
                false
            }
            Event::Fault(error) => {
                // What an interrupt leaves is a result.
                if !(error.is_abort() && self.work.interrupt.came()) {
                    self.failure = Some(error.into());
                }
                false
            }
        }
    }
}

impl<'w> Answer<'w> {
    fn new(work: &Work<'w>, prompt: usize, request: &'w Request) -> Result<Answer<'w>, Failure> {
        let text = Text::new(work.engine.tokenizer(), work.stop)?;
        Ok(Answer { prompt, request, text, generated: Generated::default(), logprobs: Vec::new() })
    }

    /// Takes a token; whether the text goes on.
    fn push(&mut self, token: u32, streams: bool) -> Result<bool, Failure> {
        self.generated.push(token);
        let piece = self.text.push(token)?;
        if streams {
            let mut out = io::stdout();
            write!(out, "{piece}")?;
            out.flush()?;
        }
        Ok(!self.text.is_ended())
    }

    /// Prints the rest of a text that streams, or a line of JSON. Without a finish it was interrupted.
    fn print(self, work: &Work, finish: Option<Finish>, statistics: Statistics) -> Result<(), Failure> {
        let mut out = io::stdout();
        if !work.streams() {
            writeln!(out, "{}", self.json(work, finish, statistics)?)?;
            return Ok(out.flush()?);
        }
        let Answer { text, generated, .. } = self;
        writeln!(out, "{}", text.finish()?)?;
        let accepted = match work.args.batch.speculate {
            true => format!("; {} of {} proposed tokens accepted", statistics.accepted, statistics.proposed),
            false => String::new(),
        };
        Ok(generated.tell(work, generated.speed(), &accepted, finish.is_none())?)
    }

    fn json(&self, work: &Work, finish: Option<Finish>, statistics: Statistics) -> Result<Value, Failure> {
        let mut object = self.generated.json(work, self.request, self.generated.speed(), finish.is_none())?;
        if work.requests.len() > 1 {
            object["prompt"] = json!(self.prompt);
            object["finish"] = match finish {
                _ if self.text.is_ended() => json!("stop"),
                None => Value::Null,
                Some(Finish::Stop | Finish::Taker) => json!("stop"),
                Some(Finish::Length) => json!("length"),
                Some(Finish::Positions) => json!("positions"),
                Some(Finish::Deadline) => json!("deadline"),
            };
        }
        if work.args.batch.logprobs.is_some() {
            let of = |l: &Logprobs| json!({ "chosen": l.chosen, "top": l.top });
            object["logprobs"] = self.logprobs.iter().map(of).collect();
        }
        if work.args.batch.speculate && work.requests.len() == 1 {
            let Statistics { steps, proposed, accepted, .. } = statistics;
            object["speculation"] = json!({ "steps": steps, "proposed": proposed, "accepted": accepted });
        }
        Ok(object)
    }
}
