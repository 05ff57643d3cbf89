//! The stream of a request: tokens of the engine as chunks of Dynamo.

use std::ops::ControlFlow;
use std::sync::Arc;

use dynamo_backend_common::{
    AsyncEngineContext, DynamoError, LLMEngineOutput, LLMEngineOutputExt, StopReason, TopLogprob, usage,
};
use futures::stream::{BoxStream, StreamExt};
use tilewright::engine::{
    EngineError, Finish, RequestHandle, Server, ServerEvent, ServerRequest, StopCause, Submission, TextRules, Token,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::error::{WorkerError, of_engine};

/// What a stream yields.
pub type Chunk = Result<LLMEngineOutput, DynamoError>;

/// A request that the engine has taken.
pub struct Running {
    handle: RequestHandle,
    events: mpsc::UnboundedReceiver<ServerEvent>,
    context: Arc<dyn AsyncEngineContext>,
    closing: CancellationToken,
    lasts: LastTokens,
    prompt: u32,
    /// Tokens that are not part of a chunk yet.
    pending: Vec<Token>,
    given: u32,
}

/// What a stream watches besides its tokens.
pub struct Watched {
    /// The request's context, which reports a cancel.
    pub context: Arc<dyn AsyncEngineContext>,
    /// Cancelled when the worker ends.
    pub closing: CancellationToken,
}

/// After which tokens a request ends, so that the end can be part of the last token's chunk.
struct LastTokens {
    ends: Vec<u32>,
    most: usize,
}

impl Running {
    /// Submits a request to the engine's server, in a model whose sequences end at `model_ends`.
    ///
    /// # Errors
    /// The engine refuses it.
    pub async fn submit(
        server: &Server,
        submission: Submission,
        model_ends: &[u32],
        watched: Watched,
    ) -> Result<Running, DynamoError> {
        let own = submission.ends.tokens.iter().copied();
        let of_model = model_ends.iter().copied().filter(|_| !submission.ends.ignore_model);
        let lasts = LastTokens { ends: own.chain(of_model).collect(), most: submission.request.max_new_tokens };
        let prompt = u32::try_from(submission.request.prompt_ids.len()).unwrap_or(u32::MAX);
        // A sequence bounds the number of events.
        let (sender, events) = mpsc::unbounded_channel();
        let (answer, answered) = oneshot::channel();
        let deliver = move |event| match sender.send(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        };
        let request = ServerRequest { submission, text: TextRules::default(), most_waiting: None };
        // A caller that has gone drops the handle, which cancels the request.
        server.post(request, deliver, move |handle| _ = answer.send(handle));
        let handle = answered.await.unwrap_or(Err(EngineError::ServerEnded)).map_err(|error| of_engine(&error))?;
        let Watched { context, closing } = watched;
        Ok(Running { handle, events, context, closing, lasts, prompt, pending: Vec::new(), given: 0 })
    }

    /// The chunks of the request; the last one is its end. Dropping the stream cancels the request.
    pub fn into_stream(self) -> BoxStream<'static, Chunk> {
        futures::stream::unfold(Some(self), |running| async move { running?.next().await.into() }).boxed()
    }

    /// The next chunk, and the request unless the chunk is its last.
    async fn next(mut self) -> (Chunk, Option<Running>) {
        loop {
            let event = tokio::select! {
                biased;
                () = self.context.stopped() => {
                    let used = usage(self.prompt, self.given);
                    return (Ok(LLMEngineOutput::cancelled().with_usage(used)), None);
                }
                event = self.events.recv() => event,
                // The frontend continues the request on another worker.
                () = self.closing.cancelled() => return (Err(WorkerError::ShuttingDown.into()), None),
            };
            match event {
                Some(ServerEvent::Token { token, .. }) => {
                    let is_last = self.is_last(&token);
                    self.pending.push(token);
                    if !is_last {
                        let chunk = self.fill(LLMEngineOutput::default());
                        return (Ok(chunk), Some(self));
                    }
                }
                Some(ServerEvent::End { completion, .. }) => {
                    let chunk = self.end(completion.finish);
                    self.handle.close();
                    return (chunk, None);
                }
                Some(ServerEvent::Fault(error)) => return (Err(of_engine(&error)), None),
                None => return (Err(WorkerError::ShuttingDown.into()), None),
            }
        }
    }

    /// Whether the end of the request follows this token.
    fn is_last(&self, token: &Token) -> bool {
        let given = self.given as usize + self.pending.len() + 1;
        given >= self.lasts.most || self.lasts.ends.contains(&token.id)
    }

    /// The last chunk.
    fn end(&mut self, finish: Finish) -> Chunk {
        let chunk = match finish {
            Finish::Stop(cause) => {
                let stop_reason = match cause {
                    StopCause::StopToken(id) => Some(StopReason::Int(i64::from(id))),
                    _ => None,
                };
                LLMEngineOutput { stop_reason, ..LLMEngineOutput::stop() }
            }
            Finish::Length | Finish::Positions => LLMEngineOutput::length(),
            // The engine ended the request, not its client.
            Finish::Cancelled | Finish::Deadline => return Err(WorkerError::ShuttingDown.into()),
        };
        let chunk = self.fill(chunk);
        Ok(chunk.with_usage(usage(self.prompt, self.given)))
    }

    /// Adds the pending tokens to a chunk.
    fn fill(&mut self, mut chunk: LLMEngineOutput) -> LLMEngineOutput {
        let tokens = std::mem::take(&mut self.pending);
        self.given = self.given.saturating_add(u32::try_from(tokens.len()).unwrap_or(u32::MAX));
        let listed: Option<Vec<_>> = tokens.iter().map(|token| token.logprobs.as_ref()).collect();
        if let Some(listed) = listed.filter(|listed| !listed.is_empty()) {
            chunk.log_probs = Some(listed.iter().map(|logprobs| f64::from(logprobs.chosen)).collect());
            chunk.top_logprobs = Some(listed.iter().map(|logprobs| top(&logprobs.top)).collect());
        }
        chunk.token_ids = tokens.into_iter().map(|token| token.id).collect();
        chunk
    }
}

/// The likeliest tokens of a position; the frontend adds their texts.
fn top(likeliest: &[(u32, f32)]) -> Vec<TopLogprob> {
    let of = |(rank, &(token_id, logprob)): (u32, &(u32, f32))| TopLogprob {
        rank,
        token_id,
        token: None,
        logprob: f64::from(logprob),
        bytes: None,
    };
    (1..).zip(likeliest).map(of).collect()
}
