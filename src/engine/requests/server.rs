//! A batcher on a thread of its own: takes requests from any thread, each with its own stream.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::super::Engine;
use super::super::error::EngineError;
use super::super::request::{Completion, Finish};
use super::super::text::{Text, TextRules};
use super::batcher::{BatchOptions, Batcher, CallBackFlag};
use super::kv_events::KvEvent;
use super::submission::{BatcherLoad, Event, Statistics, Submission, Ticket, Token};
use crate::checkpoint::{Checkpoint, Tokenizer};

/// A server that takes requests from any thread, and runs them batched on a separate thread.
///
/// Its thread ends when the server and all streams are gone. [`Engine::abort_handle`] ends the step
/// that runs, and with it the requests that are part of it; the others go on.
///
/// ```no_run
/// use std::path::Path;
/// use tilewright::engine::{BatchOptions, Device, Engine, Request, ServerEvent, Submission};
/// let engine = Engine::load(Path::new("models/tiny-llama"), Device::cpu())?;
/// let server = engine.server(&BatchOptions::for_context(256))?;
/// let prompt_ids = engine.tokenizer().encode("In the beginning")?;
/// let request = Submission::from(Request { prompt_ids, max_new_tokens: 48 });
/// for event in server.submit(request, &["\n\n".to_owned()])? {
///     if let ServerEvent::Token { text, .. } | ServerEvent::End { text, .. } = event {
///         print!("{text}");
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    post: Post,
    load: Arc<Mutex<BatcherLoad>>,
    page_tokens: usize,
    thread: JoinHandle<()>,
}

/// A request to a server that may refuse it for lack of room, and the rules of its text.
#[derive(Clone, Debug)]
pub struct ServerRequest {
    /// The request.
    pub submission: Submission,
    /// What ends its text, besides the end tokens of the submission.
    pub text: TextRules,
    /// Most requests that may wait for a seat: more are refused. None: any number.
    pub most_waiting: Option<usize>,
}

/// An event of a server's request. The last event is an end or a fault.
#[derive(Clone, Debug)]
pub enum ServerEvent {
    /// A new token, and the text that it makes certain, perhaps none.
    Token {
        /// The token.
        token: Token,
        /// Text.
        text: String,
    },
    /// The request has ended.
    End {
        /// All tokens, and why the request ended; [`Finish::Stop`] for a stop text, too.
        completion: Completion,
        /// The text that was held back.
        text: String,
    },
    /// A step that it was part of failed. Its tokens so far stay given.
    Fault(Arc<EngineError>),
}

/// The events of a request as they arrive. As an iterator it blocks until the next one;
/// [`Stream::try_next`] and [`Stream::recv_timeout`] do not. Dropping the stream cancels the
/// request.
pub struct Stream {
    handle: RequestHandle,
    events: Receiver<ServerEvent>,
}

/// A request that was taken. Dropping it cancels the request.
pub struct RequestHandle {
    ticket: Ticket,
    post: Post,
    has_ended: bool,
}

/// The callback for a request's events, on the server's thread; `Break` ends the request.
type Deliver = Box<dyn FnMut(ServerEvent) -> ControlFlow<()> + Send>;

/// The callback for the ticket of a request, on the server's thread.
type Answer = Box<dyn FnOnce(Result<Ticket, EngineError>) + Send>;

/// The callback for changes of the pages that requests can share, on the server's thread.
type OnKvEvents = Box<dyn FnMut(Vec<KvEvent>) + Send>;

/// The way to a server's thread.
#[derive(Clone)]
struct Post {
    commands: Sender<Command>,
    attention: CallBackFlag,
}

enum Command {
    Submit { request: Box<ServerRequest>, deliver: Deliver, answer: Answer },
    Cancel(Ticket),
}

impl Engine {
    /// A server for requests to this model.
    ///
    /// # Errors
    /// As [`Engine::batcher`]; no thread can be started.
    pub fn server(&self, options: &BatchOptions) -> Result<Server, EngineError> {
        self.server_of(options, None)
    }

    /// A server that also reports which KV pages later requests can share, so that a router can
    /// send a request to the server that has its prefix. `on_events` runs on the server's thread
    /// after each step that changed some, and must not block.
    ///
    /// # Errors
    /// As [`Engine::server`].
    pub fn server_with_kv_events(
        &self,
        options: &BatchOptions,
        on_events: impl FnMut(Vec<KvEvent>) + Send + 'static,
    ) -> Result<Server, EngineError> {
        self.server_of(options, Some(Box::new(on_events)))
    }

    fn server_of(&self, options: &BatchOptions, on_events: Option<OnKvEvents>) -> Result<Server, EngineError> {
        let mut batcher = self.batcher(options)?;
        if on_events.is_some() {
            batcher.record_kv_events();
        }
        let page_tokens = batcher.page_tokens();
        let (commands, received) = mpsc::channel();
        let post = Post { commands, attention: batcher.attention() };
        let checkpoint = Arc::clone(self.checkpoint());
        let attention = batcher.attention();
        let load = Arc::new(Mutex::new(batcher.load()));
        let published = Arc::clone(&load);
        let name = thread::Builder::new().name("tilewright-server".to_owned());
        let outlets = Outlets { attention, published, on_events };
        let run = move || serve(&checkpoint, batcher, &received, outlets);
        let thread = name.spawn(run).map_err(EngineError::Thread)?;
        Ok(Server { post, load, page_tokens, thread })
    }
}

impl Server {
    /// Submits a request, whose text ends before one of the texts of `stop`. Waits for the step
    /// that runs to end, not for the request.
    ///
    /// # Errors
    /// As [`Batcher::submit`]; an empty stop text.
    pub fn submit(&self, submission: Submission, stop: &[String]) -> Result<Stream, EngineError> {
        let ((events, heard), (answer, answered)) = (mpsc::channel(), mpsc::channel());
        let text = TextRules { stop: stop.to_vec(), ..TextRules::default() };
        let request = ServerRequest { submission, text, most_waiting: None };
        let deliver = move |event| match events.send(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        };
        // A caller that has gone drops the handle, which cancels the request.
        self.post(request, deliver, move |handle| _ = answer.send(handle));
        let handle = answered.recv().map_err(|_| EngineError::ServerEnded)??;
        Ok(Stream { handle, events: heard })
    }

    /// Submits a request without waiting: both callbacks run on the server's thread, and must not
    /// block. `answer` gets the handle of the request or why it is refused, before `deliver` gets
    /// its first event; `deliver` ends the request by `Break`. Neither runs if the thread has ended.
    ///
    /// Errors are those of [`Server::submit`], and [`EngineError::QueueFull`].
    pub fn post(
        &self,
        request: ServerRequest,
        deliver: impl FnMut(ServerEvent) -> ControlFlow<()> + Send + 'static,
        answer: impl FnOnce(Result<RequestHandle, EngineError>) + Send + 'static,
    ) {
        let post = self.post.clone();
        let answer = move |ticket: Result<Ticket, _>| {
            answer(ticket.map(|ticket| RequestHandle { ticket, post, has_ended: false }))
        };
        let (request, deliver) = (Box::new(request), Box::new(deliver));
        self.post.send(Command::Submit { request, deliver, answer: Box::new(answer) });
    }

    /// Whether its thread runs: it ends early only by a panic.
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends the server once all requests are gone, and waits for its thread for that time at most.
    /// Returns whether the thread has ended: its machines are gone then, which a process had better
    /// not leave to its exit.
    pub fn end(self, most: Duration) -> bool {
        let Server { post, thread, .. } = self;
        drop(post);
        let begun = Instant::now();
        while !thread.is_finished() && begun.elapsed() < most {
            thread::sleep(Duration::from_millis(1));
        }
        thread.is_finished()
    }

    /// Tokens of a page of the KV pools.
    pub fn page_tokens(&self) -> usize {
        self.page_tokens
    }

    /// Requests, pages and counters as of the last step.
    pub fn load(&self) -> BatcherLoad {
        *self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters of the work done so far, as of the last step.
    pub fn statistics(&self) -> Statistics {
        self.load().statistics
    }
}

impl RequestHandle {
    /// The request's number.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Drops the handle of a request whose last event was received: there is nothing to cancel, and
    /// the server's thread is not called back from a launch.
    pub fn close(mut self) {
        self.has_ended = true;
    }

    /// Ends the request. Its last event is an end with [`Finish::Cancelled`] and the tokens so far,
    /// unless the request has ended already.
    pub fn cancel(&self) {
        self.post.send(Command::Cancel(self.ticket));
    }
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        if !self.has_ended {
            self.cancel();
        }
    }
}

impl Stream {
    /// The request's number.
    pub fn ticket(&self) -> Ticket {
        self.handle.ticket()
    }

    /// Takes the next event if there is one now: `Ready(None)` after the last event, `Pending`
    /// while the model computes.
    pub fn try_next(&mut self) -> Poll<Option<ServerEvent>> {
        match self.events.try_recv() {
            Ok(event) => Poll::Ready(Some(event)),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
        }
    }

    /// Waits for the next event for at most `timeout`: `Ready(None)` after the last event,
    /// `Pending` if none came.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Poll<Option<ServerEvent>> {
        match self.events.recv_timeout(timeout) {
            Ok(event) => Poll::Ready(Some(event)),
            Err(RecvTimeoutError::Timeout) => Poll::Pending,
            Err(RecvTimeoutError::Disconnected) => Poll::Ready(None),
        }
    }

    /// Ends the request. Events that were sent before stay readable; the last one is an end with
    /// [`Finish::Cancelled`] and the tokens so far, unless the request has ended already.
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// Waits for the end; gives what there is, and the text of the events that were not taken yet.
    ///
    /// # Errors
    /// The fault that ended it.
    pub fn wait(mut self) -> Result<(Completion, String), Arc<EngineError>> {
        let mut whole = String::new();
        for event in &mut self {
            match event {
                ServerEvent::Token { text, .. } => whole += &text,
                ServerEvent::End { completion, text } => return Ok((completion, whole + &text)),
                ServerEvent::Fault(error) => return Err(error),
            }
        }
        Err(Arc::new(EngineError::ServerEnded))
    }
}

impl Iterator for Stream {
    type Item = ServerEvent;

    fn next(&mut self) -> Option<ServerEvent> {
        self.events.recv().ok()
    }
}

impl Post {
    /// Sends a command, and calls the batcher back from its launch. A thread that has ended does
    /// not receive it.
    fn send(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            self.attention.store(true, Ordering::Release);
        }
    }
}

/// The receiver of a request's events.
struct Client<'t> {
    text: Option<Text<'t>>,
    deliver: Deliver,
}

impl Client<'_> {
    /// Handles an event; returns whether the request goes on.
    fn hear(&mut self, event: Event) -> ControlFlow<()> {
        let event = match event {
            Event::Token(token) => match self.text.as_mut().map(|text| text.push(token.id)) {
                Some(Ok(text)) => ServerEvent::Token { token, text },
                Some(Err(error)) => return self.fault(error.into()),
                None => return ControlFlow::Break(()),
            },
            Event::End(mut completion) => match self.text.take() {
                Some(text) => {
                    if let Some(cause) = text.cause() {
                        completion.finish = Finish::Stop(cause);
                    }
                    match text.finish() {
                        Ok(text) => ServerEvent::End { completion, text },
                        Err(error) => return self.fault(error.into()),
                    }
                }
                None => return ControlFlow::Break(()),
            },
            Event::Fault(error) => ServerEvent::Fault(error),
        };
        let is_there = (self.deliver)(event).is_continue();
        let goes_on = is_there && self.text.as_ref().is_some_and(|text| !text.is_ended());
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// A text that cannot be decoded ends the request.
    fn fault(&mut self, error: EngineError) -> ControlFlow<()> {
        self.text = None;
        // A dropped stream needs no fault.
        let _ = (self.deliver)(ServerEvent::Fault(Arc::new(error)));
        ControlFlow::Break(())
    }
}

/// What the thread shares with its callers.
struct Outlets {
    attention: CallBackFlag,
    published: Arc<Mutex<BatcherLoad>>,
    on_events: Option<OnKvEvents>,
}

impl Outlets {
    fn publish(&self, batcher: &Batcher) {
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = batcher.load();
    }

    fn publish_events(&mut self, batcher: &mut Batcher) {
        let events = batcher.take_kv_events();
        if let Some(on_events) = &mut self.on_events
            && !events.is_empty()
        {
            on_events(events);
        }
    }
}

/// The thread: commands between steps.
fn serve(checkpoint: &Checkpoint, mut batcher: Batcher, commands: &Receiver<Command>, mut outlets: Outlets) {
    let tokenizer = checkpoint.tokenizer();
    let mut clients = HashMap::new();
    loop {
        outlets.publish(&batcher);
        if batcher.is_idle() {
            match commands.recv() {
                Ok(command) => obey(command, tokenizer, &mut batcher, &mut clients),
                Err(_) => return,
            }
        }
        // Commands sent from here on call back from the next launch.
        outlets.attention.store(false, Ordering::Release);
        loop {
            match commands.try_recv() {
                Ok(command) => obey(command, tokenizer, &mut batcher, &mut clients),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        outlets.publish(&batcher);
        batcher.step(|ticket, event| {
            let is_last = !matches!(event, Event::Token(_));
            let answer = clients.get_mut(&ticket).map_or(ControlFlow::Break(()), |client| client.hear(event));
            if is_last {
                clients.remove(&ticket);
            }
            answer
        });
        outlets.publish_events(&mut batcher);
    }
}

fn obey<'t>(
    command: Command,
    tokenizer: &'t Tokenizer,
    batcher: &mut Batcher,
    clients: &mut HashMap<Ticket, Client<'t>>,
) {
    match command {
        Command::Submit { request, deliver, answer } => match admit(*request, tokenizer, batcher) {
            Ok((ticket, text)) => {
                clients.insert(ticket, Client { text: Some(text), deliver });
                answer(Ok(ticket));
            }
            Err(error) => answer(Err(error)),
        },
        Command::Cancel(ticket) => {
            let completion = batcher.cancel(ticket);
            if let (Some(mut client), Some(completion)) = (clients.remove(&ticket), completion) {
                // The caller may still read the end.
                let _ = client.hear(Event::End(completion));
            }
        }
    }
}

/// Submits a request to the batcher, unless too many wait.
fn admit<'t>(
    request: ServerRequest,
    tokenizer: &'t Tokenizer,
    batcher: &mut Batcher,
) -> Result<(Ticket, Text<'t>), EngineError> {
    let ServerRequest { submission, mut text, most_waiting } = request;
    let BatcherLoad { running, waiting, seats, .. } = batcher.load();
    // Requests that came since the last step wait, though there may be seats for them.
    if most_waiting.is_some_and(|most| running + waiting >= seats.saturating_add(most)) {
        return Err(EngineError::QueueFull { waiting: (running + waiting).saturating_sub(seats) });
    }
    text.end_tokens.extend(&submission.ends.tokens);
    text.min_tokens = text.min_tokens.max(submission.ends.min_new_tokens);
    let text = Text::with(tokenizer, &text)?;
    Ok((batcher.submit(submission)?, text))
}
