//! Generation of more sequences than a device's step has rows.

use std::ops::ControlFlow;
use std::time::Instant;

use super::super::sampling::Sampling;

use super::super::Engine;
use super::super::error::EngineError;
use super::super::generate::{Answer, Completion, Finish, Request, Speed};
use super::batcher::{BatchOptions, MOST_SEATS};
use super::submission::{Event, Submission};

impl Engine {
    /// Continues every prompt, as [`Engine::generate`] does: each draws by its number.
    pub(in crate::engine) fn generate_batched<A: Answer>(
        &self,
        requests: &[Request],
        sampling: &Sampling,
        mut each: impl FnMut(usize, u32) -> A,
    ) -> Result<(Vec<Completion>, Speed), EngineError> {
        let context = Request::context(requests, self.spec().max_positions);
        let base = BatchOptions::for_context(context);
        // Where there are machines of many rows anyway, more sequences run at a time.
        let many = self.prompt_chunk.is_some() && self.flow.is_none();
        let rows = if many { requests.len().clamp(1, MOST_SEATS) } else { base.rows };
        let options = BatchOptions { sampling: !sampling.is_greedy(), rows, ..base };
        let mut batcher = self.batcher(&options)?;
        for (request, row) in requests.iter().zip(0..) {
            batcher.submit(Submission { sampling: *sampling, row, ..Submission::from(request.clone()) })?;
        }
        let none = Completion { token_ids: Vec::new(), finish: Finish::Length };
        let (mut completions, mut first, mut fault) = (vec![none; requests.len()], None, None);
        let mut more = true;
        while more && fault.is_none() {
            more = batcher.step(|ticket, event| {
                // A batcher counts its requests from 0.
                let at = ticket.number() as usize;
                match event {
                    Event::Token(token) => {
                        first.get_or_insert_with(Instant::now);
                        if !each(at, token.id).goes_on() {
                            return ControlFlow::Break(());
                        }
                    }
                    Event::End(completion) => completions[at] = completion,
                    Event::Fault(error) => fault = fault.take().or(Some(error)),
                }
                ControlFlow::Continue(())
            });
        }
        if let Some(fault) = fault {
            return Err(fault.into());
        }
        let tokens = completions.iter().map(|completion| completion.token_ids.len()).sum();
        Ok((completions, Speed { tokens, seconds: first.map_or(0.0, |first| first.elapsed().as_secs_f64()) }))
    }
}
