//! Transport of messages between ranks.
//!
//! The ranks use [`Transport`] only, which [`Tcp`] implements. Module `rows` sends rows from device
//! to device, separately from the words of a message.

use std::io::BufReader;
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Duration;

use thiserror::Error;

use super::frame::{Frame, FrameError};
use super::message::{Message, MessageError, MessageHead};

/// Why a message was not received or sent.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum LinkError {
    #[error("it has said nothing for {seconds} s")]
    Silent { seconds: f64 },
    #[error(transparent)]
    Message(#[from] MessageError),
}

impl From<FrameError> for LinkError {
    fn from(error: FrameError) -> LinkError {
        LinkError::Message(error.into())
    }
}

/// A way to one other rank and back. Threads share it: one receives, others send.
pub trait Transport: Send + Sync {
    /// Sends a message.
    ///
    /// # Errors
    /// If the other is gone, or takes nothing for as long as the patience is.
    fn send(&self, message: &Message) -> Result<(), LinkError>;

    /// Sends a heartbeat, unless a message is in flight, which serves as one.
    ///
    /// # Errors
    /// As [`Transport::send`].
    fn pulse(&self) -> Result<(), LinkError>;

    /// The next message.
    ///
    /// # Errors
    /// If the other rank is gone, is silent for the timeout, or sends an invalid message.
    fn receive(&self) -> Result<Message, LinkError>;

    /// Closes the connection: a `receive` that waits at either end returns an error.
    fn close(&self);
}

/// Messages as frames on a TCP connection.
pub struct Tcp {
    from: Mutex<BufReader<TcpStream>>,
    to: Mutex<TcpStream>,
    stream: TcpStream,
    patience: Duration,
}

impl Tcp {
    /// Wraps a connection; neither end waits for the other longer than `patience`.
    ///
    /// # Errors
    /// If the connection has failed already.
    ///
    /// ```
    /// use std::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    /// use tilewright::engine::pipeline::{MessageHead, Tcp, Transport};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let patience = Duration::from_secs(1);
    /// let here = Tcp::new(TcpStream::connect(listener.local_addr()?)?, patience)?;
    /// let there = Tcp::new(listener.accept()?.0, patience)?;
    /// here.send(&MessageHead::Ready.into())?;
    /// assert_eq!(there.receive()?.head, MessageHead::Ready);
    /// here.close();
    /// assert_eq!(there.receive().unwrap_err().to_string(), "it closed the connection");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(stream: TcpStream, patience: Duration) -> Result<Tcp, FrameError> {
        let patience = patience.max(Duration::from_millis(1));
        stream.set_nonblocking(false)?;
        // A step's message is waited for: no packet is held back.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let [from, to] = [stream.try_clone()?, stream.try_clone()?];
        Ok(Tcp { from: Mutex::new(BufReader::new(from)), to: Mutex::new(to), stream, patience })
    }

    /// Sets how long the next message is waited for.
    ///
    /// # Errors
    /// If the connection has failed.
    pub fn with_patience(self, patience: Duration) -> Result<Tcp, FrameError> {
        self.stream.set_read_timeout(Some(patience))?;
        self.stream.set_write_timeout(Some(patience))?;
        Ok(Tcp { patience, ..self })
    }

    /// The connection.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn judge(&self, error: FrameError) -> LinkError {
        if error.is_silence() {
            return LinkError::Silent { seconds: self.patience.as_secs_f64() };
        }
        if error.is_end() { FrameError::Closed.into() } else { error.into() }
    }
}

impl Transport for Tcp {
    fn send(&self, message: &Message) -> Result<(), LinkError> {
        let frame = message.frame()?;
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        frame.write(&mut *to).map_err(|error| self.judge(error))
    }

    fn pulse(&self) -> Result<(), LinkError> {
        let frame = Message::from(MessageHead::Alive).frame()?;
        match self.to.try_lock() {
            Ok(mut to) => frame.write(&mut *to).map_err(|error| self.judge(error)),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => Ok(()),
        }
    }

    fn receive(&self) -> Result<Message, LinkError> {
        let mut from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Message::of(Frame::read(&mut *from).map_err(|error| self.judge(error))?)?)
    }

    fn close(&self) {
        // It may be closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
