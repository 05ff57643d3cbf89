//! The choices of a request while they are generated.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::app::{App, RequestId, blocking};
use super::error::ApiError;
use super::metrics::RequestTimes;
use super::parameters::{Choosing, MOST_CHOICES};
use crate::engine::{
    Completion, EngineError, Finish, GrammarError, Request, RequestHandle, ServerEvent, ServerRequest, StopCause,
    Submission, Token,
};

/// Most events that wait for a client to read them: a request with more is cancelled.
const WAITING_EVENTS: usize = 8192;

/// Most log probabilities of a request, over all tokens of its choices.
const MOST_LOGPROBS: usize = 4 << 20;

/// What a request asks for.
pub struct Job {
    /// The request.
    pub id: RequestId,
    /// Tokens of each prompt.
    pub prompts: Vec<Vec<u32>>,
    /// How tokens are chosen.
    pub choosing: Choosing,
    /// Most tokens of a choice; none: what the context has room for.
    pub max_tokens: Option<usize>,
    /// Likeliest tokens whose log probabilities are wanted; none: no log probabilities.
    pub logprobs: Option<usize>,
}

/// The choices of a request. Dropping them cancels what still runs.
pub struct Choices {
    app: Arc<App>,
    id: RequestId,
    /// The handle of each choice that has not ended.
    handles: Vec<Option<RequestHandle>>,
    events: mpsc::Receiver<(usize, ServerEvent)>,
    overrun: Arc<AtomicBool>,
    stop: Vec<String>,
    open: usize,
    /// Tokens of the request.
    pub usage: Usage,
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of its prompts.
    pub prompt: usize,
    /// Tokens that were generated.
    pub completion: usize,
}

/// What a choice has more.
pub struct Piece {
    /// The choice: prompt after prompt.
    pub choice: usize,
    /// Text, perhaps none.
    pub text: String,
    /// The token that it came with; none at the end.
    pub token: Option<Token>,
    /// Why the choice ended, if it did.
    pub end: Option<Ended>,
}

/// Why a choice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// At an end-of-sequence token of the model.
    Stop,
    /// At a stop text.
    StopText(String),
    /// At a stop token.
    StopToken(u32),
    /// It has the most tokens that it may have.
    Length,
}

impl Job {
    /// Submits the choices.
    ///
    /// # Errors
    /// More tokens than a sequence holds, or choices than a request has; the engine refuses one.
    pub async fn start(self, app: &Arc<App>) -> Result<Choices, ApiError> {
        let job = match self.choosing.grammar {
            None => self,
            Some(_) => blocking(app, |app| self.compiled(app)).await?,
        };
        let requests = job.requests(app)?;
        let Job { id, prompts, choosing, .. } = job;
        let (sender, events) = mpsc::channel(WAITING_EVENTS);
        let outlet = Outlet { app: Arc::clone(app), sender, overrun: Arc::default(), arrived: id.arrived };
        let mut choices = Choices {
            app: Arc::clone(app),
            id,
            handles: Vec::with_capacity(requests.len()),
            events,
            overrun: Arc::clone(&outlet.overrun),
            stop: choosing.text.stop,
            open: requests.len(),
            usage: Usage { prompt: prompts.iter().map(Vec::len).sum(), completion: 0 },
        };
        // All are submitted before the first answer, so that they begin in one step.
        let answers = requests.into_iter().enumerate().map(|(choice, request)| outlet.post(choice, request));
        for answer in answers.collect::<Vec<_>>() {
            choices.handles.push(Some(answer.await.unwrap_or(Err(EngineError::ServerEnded))?));
        }
        Ok(choices)
    }

    /// The job with its grammar compiled.
    fn compiled(mut self, app: &App) -> Result<Job, ApiError> {
        if let Some((param, grammar)) = self.choosing.grammar.take() {
            let compiled = app.grammars().and_then(|grammars| grammars.compile(&grammar));
            let refused = |error: GrammarError| ApiError::parameter(param, format!("is not accepted: {error}"));
            self.choosing.submission.processor = Some(compiled.map_err(refused)?);
        }
        Ok(self)
    }

    /// The requests of the choices, prompt after prompt.
    fn requests(&self, app: &App) -> Result<Vec<ServerRequest>, ApiError> {
        let Choosing { submission, text, choices, .. } = &self.choosing;
        let count = self.prompts.len().saturating_mul(*choices);
        if count > MOST_CHOICES {
            let reason = format!("gives {count} choices with these prompts; at most {MOST_CHOICES} are generated");
            return Err(ApiError::parameter("n", reason));
        }
        let mut requests = Vec::with_capacity(count);
        let mut listed = 0usize;
        for prompt in &self.prompts {
            let new = new_tokens(prompt.len(), self.max_tokens, app.context())?;
            listed = listed.saturating_add(self.listed(prompt.len(), new));
            if listed > MOST_LOGPROBS {
                let reason = format!("gives more than {MOST_LOGPROBS} log probabilities; lower `max_tokens`");
                return Err(ApiError::parameter("logprobs", reason));
            }
            for row in 0..u32::try_from(*choices).unwrap_or(u32::MAX) {
                let submission = Submission {
                    request: Request::new(prompt.clone(), new),
                    row,
                    logprobs: self.logprobs,
                    deadline: Some(app.options.limits.request),
                    ..submission.clone()
                };
                let most_waiting = Some(app.options.limits.queue);
                requests.push(ServerRequest { submission, text: text.clone(), most_waiting });
            }
        }
        Ok(requests)
    }

    /// Most log probabilities of the choices of a prompt.
    fn listed(&self, prompt: usize, new: usize) -> usize {
        let of = |top: Option<usize>, tokens: usize| top.map_or(0, |top| (top + 1).saturating_mul(tokens));
        let each = of(self.logprobs, new).saturating_add(of(self.choosing.submission.prompt_logprobs, prompt));
        each.saturating_mul(self.choosing.choices)
    }
}

/// Most new tokens of a prompt of that many.
fn new_tokens(prompt: usize, asked: Option<usize>, context: usize) -> Result<usize, ApiError> {
    match (asked, context.checked_sub(prompt)) {
        (None, Some(room)) if room > 0 => Ok(room),
        (Some(new), Some(room)) if new <= room => Ok(new),
        (asked, _) => Err(ApiError::Context { prompt, new: asked.unwrap_or(1), context }),
    }
}

/// Where the events of a request go.
struct Outlet {
    app: Arc<App>,
    sender: mpsc::Sender<(usize, ServerEvent)>,
    overrun: Arc<AtomicBool>,
    arrived: Instant,
}

impl Outlet {
    /// Submits a choice; gives the answer of the server's thread.
    fn post(&self, choice: usize, request: ServerRequest) -> oneshot::Receiver<Result<RequestHandle, EngineError>> {
        let (answer, answered) = oneshot::channel();
        let (app, sender, overrun) = (Arc::clone(&self.app), self.sender.clone(), Arc::clone(&self.overrun));
        let mut times = RequestTimes::new(self.arrived);
        let prompt = request.submission.request.prompt_ids.len();
        let deliver = move |event: ServerEvent| {
            times.note(&event, &app.metrics);
            // What was left out once is not followed by more.
            let is_read = !overrun.load(Ordering::Relaxed) && sender.try_send((choice, event)).is_ok();
            if is_read {
                return ControlFlow::Continue(());
            }
            overrun.store(true, Ordering::Relaxed);
            ControlFlow::Break(())
        };
        let counted = Arc::clone(&self.app);
        self.app.server.post(request, deliver, move |handle| {
            match &handle {
                Ok(_) => counted.metrics.taken(prompt),
                Err(_) => counted.metrics.refused(),
            }
            // A client that has gone drops the handle, which cancels the request.
            let _ = answer.send(handle);
        });
        answered
    }
}

impl Choices {
    /// What comes next; none once all choices have ended. An error ends all of them.
    pub fn poll_next(&mut self, context: &mut Context) -> Poll<Option<Result<Piece, ApiError>>> {
        if self.open == 0 {
            return Poll::Ready(None);
        }
        let piece = match ready!(self.events.poll_recv(context)) {
            Some((choice, event)) => self.piece(choice, event),
            None => Err(self.cut()),
        };
        match &piece {
            Ok(Piece { choice, end: Some(_), .. }) => {
                self.open -= 1;
                if let Some(handle) = self.handles.get_mut(*choice).and_then(Option::take) {
                    handle.close();
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(request = &*self.id.name, %error, "failed");
                self.open = 0;
                self.handles.clear();
            }
        }
        Poll::Ready(Some(piece))
    }

    /// Waits for what comes next.
    pub async fn next(&mut self) -> Option<Result<Piece, ApiError>> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn piece(&mut self, choice: usize, event: ServerEvent) -> Result<Piece, ApiError> {
        match event {
            ServerEvent::Token { token, text } => {
                self.usage.completion += 1;
                Ok(Piece { choice, text, token: Some(token), end: None })
            }
            ServerEvent::End { completion, text } => {
                let end = Some(self.ended(&completion)?);
                Ok(Piece { choice, text, token: None, end })
            }
            ServerEvent::Fault(error) => Err(ApiError::Engine(error)),
        }
    }

    fn ended(&self, completion: &Completion) -> Result<Ended, ApiError> {
        match completion.finish {
            Finish::Stop(StopCause::EndToken(_)) => Ok(Ended::Stop),
            Finish::Stop(StopCause::StopToken(id)) => Ok(Ended::StopToken(id)),
            Finish::Stop(StopCause::StopText(at)) => {
                Ok(Ended::StopText(self.stop.get(at).cloned().unwrap_or_default()))
            }
            Finish::Length | Finish::Positions => Ok(Ended::Length),
            Finish::Deadline => Err(ApiError::Deadline { seconds: self.app.options.limits.request.as_secs() }),
            Finish::Cancelled => Err(self.cut()),
        }
    }

    /// Why there are no more events.
    fn cut(&self) -> ApiError {
        match self.overrun.load(Ordering::Relaxed) {
            true => ApiError::SlowReader,
            false => EngineError::ServerEnded.into(),
        }
    }
}

impl Drop for Choices {
    fn drop(&mut self) {
        let Usage { prompt, completion } = self.usage;
        let seconds = self.id.arrived.elapsed().as_secs_f64();
        let left = self.open;
        tracing::info!(request = &*self.id.name, prompt, completion, left, seconds, "ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_tokens_fit_the_context() {
        assert_eq!(new_tokens(10, None, 64).ok(), Some(54));
        assert_eq!(new_tokens(10, Some(54), 64).ok(), Some(54));
        for (prompt, asked) in [(10, Some(55)), (64, None), (65, None), (65, Some(0))] {
            assert!(new_tokens(prompt, asked, 64).is_err(), "{prompt} {asked:?}");
        }
    }
}
