//! What was generated of one prompt: tokens and times, as one JSON object or one line on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use serde_json::{Value, json};

use super::{Failure, Work};
use crate::cli::started;
use crate::engine::{Compilation, Request, Speed};

/// Tokens of one prompt, and when they came.
#[derive(Default)]
pub struct Generated {
    /// The new tokens.
    pub tokens: Vec<u32>,
    /// When the first and the last of them came.
    came: Option<[Instant; 2]>,
}

impl Generated {
    /// Takes the next token, which comes now.
    pub fn push(&mut self, token: u32) {
        let now = Instant::now();
        let first = self.came.map_or(now, |[first, _]| first);
        self.came = Some([first, now]);
        self.tokens.push(token);
    }

    /// Seconds from the program's start to the first token.
    fn first(&self) -> Option<f64> {
        self.came.map(|[first, _]| first.duration_since(started()).as_secs_f64())
    }

    /// How fast the tokens behind the first came.
    pub fn speed(&self) -> Speed {
        let seconds = self.came.map_or(0.0, |[first, last]| last.duration_since(first).as_secs_f64());
        Speed { tokens: self.tokens.len().saturating_sub(1), seconds }
    }

    /// The object that --json prints.
    pub fn json(&self, work: &Work, request: &Request, speed: Speed, interrupted: bool) -> Result<Value, Failure> {
        let compiled = work.engine.compiled();
        let seconds = |one: &Compilation| one.took.as_secs_f64();
        let each = |one: &Compilation| {
            let began = one.began.duration_since(started()).as_secs_f64();
            json!({ "name": one.name, "began": began, "seconds": seconds(one) })
        };
        Ok(json!({
            "prompt_ids": request.prompt_ids,
            "token_ids": self.tokens,
            "text": work.whole(&self.tokens)?,
            "first_token_seconds": self.first(),
            "kernels": {
                "compiled": compiled.len(),
                "seconds": compiled.iter().map(seconds).fold(0.0, |sum, one| sum + one),
                "each": compiled.iter().map(each).collect::<Vec<_>>(),
            },
            "tokens_per_second": speed.tokens_per_second(),
            "interrupted": interrupted,
        }))
    }

    /// Tells a terminal how long it took, and `remark` behind that.
    pub fn tell(&self, work: &Work, speed: Speed, remark: &str, interrupted: bool) -> io::Result<()> {
        if !io::stderr().is_terminal() {
            return Ok(());
        }
        let (count, first, device) = (self.tokens.len(), self.first().unwrap_or(0.0), work.engine.device());
        let end = if interrupted { "; interrupted" } else { "" };
        let speed = format!("{:.1} tokens/s on {device}", speed.tokens_per_second());
        writeln!(io::stderr(), "{count} tokens, the first after {first:.2} s, {speed}{remark}{end}")
    }
}
