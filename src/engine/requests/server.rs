//! A batcher on a thread of its own: takes requests from any thread, each with its own stream.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use super::super::Engine;
use super::super::error::EngineError;
use super::super::request::{Completion, Finish};
use super::super::text::Text;
use super::batcher::{BatchOptions, Batcher, CallBackFlag};
use super::submission::{Event, Statistics, Submission, Ticket, Token};
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
    ticket: Ticket,
    events: Receiver<ServerEvent>,
    post: Post,
}

/// The way to a server's thread.
#[derive(Clone)]
struct Post {
    commands: Sender<Command>,
    attention: CallBackFlag,
}

enum Command {
    Submit { submission: Box<Submission>, stop: Vec<String>, events: Sender<ServerEvent>, answer: Sender<Answered> },
    Cancel(Ticket),
    Statistics(Sender<Statistics>),
}

type Answered = Result<Ticket, EngineError>;

impl Engine {
    /// A server for requests to this model.
    ///
    /// # Errors
    /// As [`Engine::batcher`]; no thread can be started.
    pub fn server(&self, options: &BatchOptions) -> Result<Server, EngineError> {
        let batcher = self.batcher(options)?;
        let (commands, received) = mpsc::channel();
        let post = Post { commands, attention: batcher.attention() };
        let checkpoint = Arc::clone(self.checkpoint());
        let attention = batcher.attention();
        let name = thread::Builder::new().name("tilewright-server".to_owned());
        name.spawn(move || serve(&checkpoint, batcher, &received, &attention)).map_err(EngineError::Thread)?;
        Ok(Server { post })
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
        let submission = Box::new(submission);
        self.post.send(Command::Submit { submission, stop: stop.to_vec(), events, answer });
        let ticket = answered.recv().map_err(|_| EngineError::ServerEnded)??;
        Ok(Stream { ticket, events: heard, post: self.post.clone() })
    }

    /// Counters of the work done so far.
    ///
    /// # Errors
    /// If its thread has ended.
    pub fn statistics(&self) -> Result<Statistics, EngineError> {
        let (answer, answered) = mpsc::channel();
        self.post.send(Command::Statistics(answer));
        answered.recv().map_err(|_| EngineError::ServerEnded)
    }
}

impl Stream {
    /// The request's number.
    pub fn ticket(&self) -> Ticket {
        self.ticket
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
        self.post.send(Command::Cancel(self.ticket));
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

impl Drop for Stream {
    fn drop(&mut self) {
        self.post.send(Command::Cancel(self.ticket));
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
    events: Sender<ServerEvent>,
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
        let is_there = self.events.send(event).is_ok();
        let goes_on = is_there && self.text.as_ref().is_some_and(|text| !text.is_ended());
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// A text that cannot be decoded ends the request.
    fn fault(&mut self, error: EngineError) -> ControlFlow<()> {
        self.text = None;
        // A dropped stream needs no fault.
        let _ = self.events.send(ServerEvent::Fault(Arc::new(error)));
        ControlFlow::Break(())
    }
}

/// The thread: commands between steps.
fn serve(checkpoint: &Checkpoint, mut batcher: Batcher, commands: &Receiver<Command>, attention: &CallBackFlag) {
    let tokenizer = checkpoint.tokenizer();
    let mut clients = HashMap::new();
    loop {
        if batcher.is_idle() {
            match commands.recv() {
                Ok(command) => obey(command, tokenizer, &mut batcher, &mut clients),
                Err(_) => return,
            }
        }
        // Commands sent from here on call back from the next launch.
        attention.store(false, Ordering::Release);
        loop {
            match commands.try_recv() {
                Ok(command) => obey(command, tokenizer, &mut batcher, &mut clients),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        batcher.step(|ticket, event| {
            let is_last = !matches!(event, Event::Token(_));
            let answer = clients.get_mut(&ticket).map_or(ControlFlow::Break(()), |client| client.hear(event));
            if is_last {
                clients.remove(&ticket);
            }
            answer
        });
    }
}

fn obey<'t>(
    command: Command,
    tokenizer: &'t Tokenizer,
    batcher: &mut Batcher,
    clients: &mut HashMap<Ticket, Client<'t>>,
) {
    // The caller may have dropped its end meanwhile.
    match command {
        Command::Submit { submission, stop, events, answer } => {
            let text = Text::new(tokenizer, &stop).map_err(EngineError::from);
            let ticket = text.and_then(|text| {
                let ticket = batcher.submit(*submission)?;
                clients.insert(ticket, Client { text: Some(text), events });
                Ok(ticket)
            });
            let _ = answer.send(ticket);
        }
        Command::Cancel(ticket) => {
            let completion = batcher.cancel(ticket);
            if let (Some(mut client), Some(completion)) = (clients.remove(&ticket), completion) {
                // The caller may still read the end.
                let _ = client.hear(Event::End(completion));
            }
        }
        Command::Statistics(answer) => _ = answer.send(batcher.statistics()),
    }
}
