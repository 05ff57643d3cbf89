//! The control connection between rank 0 and another rank: records of a fixed size, and signs of
//! life.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::message::{Message, RECORD_BYTES};
use super::transport::LinkError;

/// Fills a buffer from a stream. The deadline is that of the whole buffer: a peer that sends a byte
/// at a time gains none.
pub(super) fn read_by(mut stream: &TcpStream, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if is_retried(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes a buffer to a stream by a deadline for all of it.
pub(super) fn write_by(mut stream: &TcpStream, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(&bytes[written..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(error) if is_retried(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn is_retried(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A control connection. Threads share it: one receives, others send.
pub(super) struct Control {
    stream: TcpStream,
    sending: Mutex<()>,
    silence: Duration,
}

impl Control {
    /// Wraps a connection whose ends are never silent for that long.
    pub fn new(stream: TcpStream, silence: Duration) -> io::Result<Control> {
        stream.set_nonblocking(false)?;
        // Another rank waits for each record: no packet is held back.
        stream.set_nodelay(true)?;
        Ok(Control { stream, sending: Mutex::new(()), silence })
    }

    /// The interval of heartbeats.
    pub fn interval(&self) -> Duration {
        (self.silence / 5).min(Duration::from_secs(1))
    }

    /// Sends a message.
    pub fn send(&self, message: &Message) -> Result<(), LinkError> {
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(message)
    }

    /// Sends a heartbeat, unless a message is being sent, which is one.
    pub fn heartbeat(&self) -> Result<(), LinkError> {
        match self.sending.try_lock() {
            Ok(_sending) => self.write(&Message::Alive),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => Ok(()),
        }
    }

    fn write(&self, message: &Message) -> Result<(), LinkError> {
        let written = write_by(&self.stream, &message.record(), Instant::now() + self.silence);
        written.map_err(|error| self.lost(error))
    }

    /// Receives the next message.
    pub fn receive(&self) -> Result<Message, LinkError> {
        let mut record = [0; RECORD_BYTES];
        let read = read_by(&self.stream, &mut record, Instant::now() + self.silence);
        read.map_err(|error| self.lost(error))?;
        Ok(Message::of(&record)?)
    }

    /// Closes the connection: a `receive` that waits at either end returns an error.
    pub fn close(&self) {
        // It may be closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn lost(&self, error: io::Error) -> LinkError {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
        match error.kind() {
            ErrorKind::TimedOut => LinkError::Silent { seconds: self.silence.as_secs_f64() },
            BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof => LinkError::Closed,
            _ => LinkError::Io(error),
        }
    }
}
