//! Connections: how many there are, how long their clients take, and how they end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep};

use super::app::App;
use super::options::ServeLimits;

/// Most bytes of the head of a request, and most headers in it.
const HEAD: (usize, usize) = (64 << 10, 64);
/// The pause after a connection could not be accepted, such as for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// When a server ends.
pub struct Until<S, C> {
    /// From then on it accepts no connection.
    pub stop: S,
    /// Then it waits for running requests no longer.
    pub cut: C,
}

/// Serves connections until told to stop, then waits for the running requests; whether all of them
/// ended in time.
pub async fn serve<S, C>(listener: TcpListener, app: &Arc<App>, router: &Router, until: Until<S, C>) -> bool
where
    S: Future<Output = ()>,
    C: Future<Output = ()>,
{
    let limits = app.options.limits;
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(limits.connections));
    let mut stop = std::pin::pin!(until.stop);
    loop {
        let next = async {
            let permit = Arc::clone(&room).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            next = next => next,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, _)) => {
                // A chunk is sent at once; without it some are only later.
                let _ = stream.set_nodelay(true);
                let connection = graceful.watch(connection(stream, router.clone(), &limits));
                let app = Arc::clone(app);
                tokio::spawn(async move {
                    let _permit = permit;
                    let _open = app.metrics.connected();
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, "a connection ended early");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => true,
        () = sleep(limits.drain) => false,
        () = until.cut => false,
    }
}

/// A connection of HTTP/1.1.
type Connection = http1::Connection<TokioIo<TimedWrites<TcpStream>>, TowerToHyperService<Router>>;

fn connection(stream: TcpStream, router: Router, limits: &ServeLimits) -> Connection {
    let (bytes, headers) = HEAD;
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.read).max_buf_size(bytes).max_headers(headers);
    let stream = TokioIo::new(TimedWrites::new(stream, limits.write));
    builder.serve_connection(stream, TowerToHyperService::new(router))
}

/// A stream of bytes whose writes fail if its reader takes none for a time.
struct TimedWrites<S> {
    stream: S,
    timeout: Duration,
    /// Runs while a write waits.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedWrites<S> {
    fn new(stream: S, timeout: Duration) -> TimedWrites<S> {
        TimedWrites { stream, timeout, waits: None }
    }

    /// The outcome of a write, or the timeout of one that waits.
    fn timed<T>(&mut self, outcome: Poll<io::Result<T>>, context: &mut Context) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.waits = None;
            return outcome;
        }
        let until = Instant::now() + self.timeout;
        let waits = self.waits.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(waits.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedWrites<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context, buffer: &mut ReadBuf) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedWrites<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(outcome, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(outcome, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.timed(outcome, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::runtime;

    use super::*;

    #[test]
    fn a_reader_that_takes_nothing_ends_a_write_and_one_that_is_slow_does_not() {
        let runtime = runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let (mut client, server) = duplex(64);
            let mut server = TimedWrites::new(server, Duration::from_millis(100));
            let write = tokio::spawn(async move {
                let slowly = server.write_all(&[7; 1000]).await;
                (slowly, server.write_all(&[7; 1000]).await)
            });
            for _ in 0..20 {
                sleep(Duration::from_millis(10)).await;
                client.read_exact(&mut [0; 50]).await.expect("bytes");
            }
            let (slowly, never) = write.await.expect("it ends");
            assert!(slowly.is_ok(), "{slowly:?}");
            assert_eq!(never.expect_err("it waits too long").kind(), io::ErrorKind::TimedOut);
        });
    }
}
