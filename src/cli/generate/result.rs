//! The output for one prompt: tokens, text and times, as one JSON object or one line on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use serde_json::{Value, json};

use super::Failure;
use crate::checkpoint::Tokenizer;
use crate::cli::generate::job::GenerationJob;
use crate::cli::started::started;
use crate::engine::{Compilation, Finish, Logprobs, Request, Speed, StopCause, Text};

/// The answer to one prompt as it grows.
pub struct Generated<'w> {
    /// Index of the prompt.
    prompt: usize,
    request: &'w Request,
    /// The text that is still held back; none once the answer is finished.
    text: Option<Text<'w>>,
    /// The text so far.
    whole: String,
    /// The new tokens.
    tokens: Vec<u32>,
    /// Log probabilities of the tokens, if they were asked for.
    logprobs: Vec<Logprobs>,
    /// Times of the first and the last token.
    times: Option<[Instant; 2]>,
}

impl<'w> Generated<'w> {
    /// Creates the answer to the prompt of that index, without tokens.
    pub fn new(work: &GenerationJob<'w>, prompt: usize, request: &'w Request) -> Result<Generated<'w>, Failure> {
        let text = Some(Text::new(work.engine.tokenizer(), work.stop)?);
        let tokens = Vec::new();
        let logprobs = Vec::new();
        Ok(Generated { prompt, request, text, whole: String::new(), tokens, logprobs, times: None })
    }

    /// Takes the next token, which was generated just now, and prints the text that it completes if
    /// it `streams`. Returns whether the text goes on.
    pub fn push(&mut self, token: u32, logprobs: Option<Logprobs>, streams: bool) -> Result<bool, Failure> {
        let now = Instant::now();
        let first = self.times.map_or(now, |[first, _]| first);
        self.times = Some([first, now]);
        self.tokens.push(token);
        self.logprobs.extend(logprobs);
        let Some(text) = &mut self.text else { return Ok(false) };
        let piece = text.push(token)?;
        if streams {
            let mut out = io::stdout();
            write!(out, "{piece}")?;
            out.flush()?;
        }
        self.whole.push_str(&piece);
        Ok(!text.is_ended())
    }

    /// Completes the text; returns what was held back, and why the text ended, which a stop text or
    /// token decides before `finish`.
    pub fn finish(&mut self, finish: Option<Finish>) -> Result<(String, Option<Finish>), Failure> {
        let Some(text) = self.text.take() else { return Ok((String::new(), finish)) };
        let finish = text.cause().map(Finish::Stop).or(finish);
        let rest = text.finish()?;
        self.whole.push_str(&rest);
        Ok((rest, finish))
    }

    /// Seconds from the program's start to the first token.
    fn first(&self) -> Option<f64> {
        self.times.map(|[first, _]| first.duration_since(started()).as_secs_f64())
    }

    /// The speed of the tokens after the first.
    pub fn speed(&self) -> Speed {
        let seconds = self.times.map_or(0.0, |[first, last]| last.duration_since(first).as_secs_f64());
        Speed { tokens: self.tokens.len().saturating_sub(1), seconds }
    }

    /// The object that --json prints. Without a `finish` the work was interrupted.
    pub fn json(&self, work: &GenerationJob, speed: Speed, finish: Option<Finish>) -> Value {
        let compiled = work.engine.compiled();
        let seconds = |one: &Compilation| one.took.as_secs_f64();
        let each = |one: &Compilation| {
            let began = one.began.duration_since(started()).as_secs_f64();
            json!({ "name": one.name, "began": began, "seconds": seconds(one) })
        };
        let tokenizer = work.engine.tokenizer();
        let mut object = json!({
            "prompt": self.prompt,
            "prompt_ids": self.request.prompt_ids,
            "token_ids": self.tokens,
            "text": self.whole,
            "finish_reason": finish.map(reason),
            "stop": stop(tokenizer, work.stop, finish),
            "first_token_seconds": self.first(),
            "kernels": {
                "compiled": compiled.len(),
                "seconds": compiled.iter().map(seconds).fold(0.0, |sum, one| sum + one),
                "each": compiled.iter().map(each).collect::<Vec<_>>(),
            },
            "tokens_per_second": speed.tokens_per_second(),
            "interrupted": finish.is_none(),
        });
        if work.args.batch.logprobs.is_some() {
            let of_token = |(token, found): (&u32, &Logprobs)| {
                let mut object = token_json(tokenizer, *token, Some(found.chosen));
                object["top"] =
                    found.top.iter().map(|&(id, logprob)| token_json(tokenizer, id, Some(logprob))).collect();
                object
            };
            object["logprobs"] = self.tokens.iter().zip(&self.logprobs).map(of_token).collect();
        }
        object
    }

    /// Prints to a terminal how long the work took, followed by `remark`.
    pub fn tell(&self, work: &GenerationJob, speed: Speed, remark: &str, interrupted: bool) -> io::Result<()> {
        if !io::stderr().is_terminal() {
            return Ok(());
        }
        let count = self.tokens.len();
        let first = self.first().unwrap_or(0.0);
        let device = work.engine.device();
        let end = if interrupted { "; interrupted" } else { "" };
        let speed = format!("{:.1} tokens/s on {device}", speed.tokens_per_second());
        writeln!(io::stderr(), "{count} tokens, the first after {first:.2} s, {speed}{remark}{end}")
    }
}

/// Why a text ended, in a word: `stop` and `length` as in other engines' JSON.
fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop(_) => "stop",
        Finish::Length => "length",
        Finish::Positions => "positions",
        Finish::Cancelled => "cancelled",
        Finish::Deadline => "deadline",
    }
}

/// The stop condition that was met, as JSON: an end-of-sequence token, or a text or special token
/// of --stop.
fn stop(tokenizer: &Tokenizer, texts: &[String], finish: Option<Finish>) -> Value {
    let token = |kind: &str, id: u32| {
        let mut object = token_json(tokenizer, id, None);
        object["kind"] = json!(kind);
        object
    };
    match finish {
        Some(Finish::Stop(StopCause::EndToken(id))) => token("end_token", id),
        Some(Finish::Stop(StopCause::StopToken(id))) => token("stop_token", id),
        Some(Finish::Stop(StopCause::StopText(at))) => json!({ "kind": "stop_text", "text": texts.get(at) }),
        _ => Value::Null,
    }
}

/// A token: its id, its text (incomplete characters replaced), its bytes, and its log probability.
fn token_json(tokenizer: &Tokenizer, id: u32, logprob: Option<f32>) -> Value {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    let mut object = json!({ "id": id, "token": String::from_utf8_lossy(&bytes), "bytes": bytes });
    if let Some(logprob) = logprob {
        object["logprob"] = json!(logprob);
    }
    object
}
