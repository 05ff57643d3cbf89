//! The rendezvous of a process group: the driver listens at an address, and workers join it and
//! connect to their neighbours.
//!
//! ```text
//! worker r                         driver                        worker r + 1
//!   Hello (rank, world, model) ──►  checks every Hello  ◄── Hello
//!                              ◄──  Welcome (layers, who is next)  ──►
//!   Neighbour ────────────────────────────────────────────────────►
//!   Ready ─────────────────────►                         ◄── Ready
//! ```

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::Span;

use super::cut::cut;
use super::error::{MOST_RANKS, PipelineError, Refusal, chain, plain};
use super::frame::FrameError;
use super::identity::Identity;
use super::message::{Message, MessageError, MessageHead};
use super::row_transport::Rows;
use super::transport::{LinkError, Tcp, Transport};
use super::world::World;

/// The time that a caller of the port has to send its first message.
const FIRST_WORDS: Duration = Duration::from_secs(2);
/// The polling interval while waiting for a connection.
const LOOK: Duration = Duration::from_millis(5);
/// The interval of the driver's heartbeats to workers that have joined.
const PULSE: Duration = Duration::from_millis(50);

/// The rendezvous address of a process group, on which the driver listens.
pub struct Meeting {
    listener: TcpListener,
    address: SocketAddr,
    world: usize,
    patience: Duration,
}

impl Meeting {
    /// Listens at `address` for a world of `world` processes, the driver among them. `patience`
    /// bounds how long they may take to join, and how long a rank may be silent.
    ///
    /// # Errors
    /// If the numbers are out of range, or the address cannot be bound.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tilewright::engine::Meeting;
    /// let meeting = Meeting::at("127.0.0.1:0", 2, Duration::from_secs(1))?;
    /// assert_ne!(meeting.address().port(), 0);
    /// assert!(Meeting::at("127.0.0.1:0", 1, Duration::from_secs(1)).is_err());
    /// # Ok::<(), tilewright::engine::PipelineError>(())
    /// ```
    pub fn at(address: &str, world: usize, patience: Duration) -> Result<Meeting, PipelineError> {
        check(world, patience)?;
        let address = resolve(address)?;
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        };
        let (address, listener) = listen().map_err(|source| PipelineError::Listen { address, source })?;
        Ok(Meeting { listener, address, world, patience })
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Processes of the world.
    pub fn world(&self) -> usize {
        self.world
    }

    /// The timeout.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Waits until all workers have joined; `ways` are the numbers of those from each rank's device
    /// to the next.
    pub(in crate::engine) fn join(
        self,
        model: &Identity,
        spec: &ModelSpec,
        ways: &[Vec<u8>],
    ) -> Result<World, PipelineError> {
        let stages = cut(spec, self.world)?;
        let mut joined: Vec<Option<Joined>> = (1..self.world).map(|_| None).collect();
        match self.gather(model, &stages, ways, &mut joined) {
            Ok(()) => {}
            Err(error) => {
                let report = Message::from(error.report());
                for other in joined.iter().flatten() {
                    // A rank that receives the report ends with the same error.
                    let _ = other.link.send(&report);
                }
                // Callers whose connections are still waiting get the report, too.
                while let Ok((stream, _)) = self.listener.accept() {
                    let Ok(link) = Tcp::new(stream, FIRST_WORDS.min(self.patience)) else { continue };
                    let _ = link.receive().and_then(|_| link.send(&report));
                }
                return Err(error);
            }
        }
        let links = joined.into_iter().flatten().map(|joined| Arc::new(joined.link) as Arc<dyn Transport>).collect();
        World::new(links, stages.first().copied().unwrap_or(Span::all(0)), self.patience)
    }

    fn gather(
        &self,
        model: &Identity,
        stages: &[Span],
        ways: &[Vec<u8>],
        joined: &mut [Option<Joined>],
    ) -> Result<(), PipelineError> {
        let deadline = Instant::now() + self.patience;
        let mut pulse = Instant::now();
        while joined.iter().any(Option::is_none) {
            match self.listener.accept() {
                Ok((stream, from)) => self.hear(model, stream, from, joined)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LOOK),
                Err(error) => return Err(PipelineError::Socket(error)),
            }
            if Instant::now() > deadline {
                let missing = joined.iter().enumerate().filter(|(_, joined)| joined.is_none());
                let ranks: Vec<String> = missing.map(|(at, _)| format!("rank {}", at + 1)).collect();
                return Err(PipelineError::Absent { who: ranks.join(", "), seconds: self.patience.as_secs_f64() });
            }
            if pulse.elapsed() > PULSE {
                pulse = Instant::now();
                for (rank, other) in (1..).zip(joined.iter()).filter_map(|(rank, other)| Some((rank, other.as_ref()?)))
                {
                    other.link.pulse().map_err(|source| PipelineError::lost(rank, source))?;
                }
            }
        }
        let token = RandomState::new().hash_one(self.address);
        let all: Vec<&Joined> = joined.iter().flatten().collect();
        for (rank, other) in (1..).zip(&all) {
            let next = all.get(rank).map(|next| SocketAddr::new(next.ip, next.port));
            let patience = self.patience.as_millis() as u64;
            let ways = ways.iter().skip(rank - 1).take(2).cloned().collect();
            let welcome = MessageHead::Welcome { layers: stages[rank], next, token, patience, ways };
            other.link.send(&welcome.into()).map_err(|source| PipelineError::lost(rank, source))?;
        }
        for (rank, other) in (1..).zip(&all) {
            match receive(&other.link).map_err(|source| PipelineError::lost(rank, source))? {
                Message { head: MessageHead::Ready, .. } => {}
                Message { head: MessageHead::Failed { rank, why }, .. } => {
                    return Err(PipelineError::failed(rank, &why));
                }
                other => return Err(PipelineError::lost(rank, other.out_of_turn())),
            }
        }
        Ok(())
    }

    /// Receives the first message of a caller. Ignores a caller that is not a worker; a worker
    /// that does not fit ends the meeting.
    fn hear(
        &self,
        model: &Identity,
        stream: TcpStream,
        from: SocketAddr,
        joined: &mut [Option<Joined>],
    ) -> Result<(), PipelineError> {
        let Ok(link) = Tcp::new(stream, FIRST_WORDS.min(self.patience)) else { return Ok(()) };
        let (who, why) = match link.receive() {
            Ok(Message { head: MessageHead::Hello { rank, world, model: found, port }, .. }) => {
                match self.check(model, joined, rank, world, &found) {
                    Ok(()) => {
                        let link = link.with_patience(self.patience);
                        let link = link.map_err(|source| PipelineError::lost(rank, source))?;
                        joined[rank - 1] = Some(Joined { link, ip: from.ip(), port });
                        return Ok(());
                    }
                    Err(why) => (format!("rank {rank}"), why),
                }
            }
            Ok(other) => (format!("the worker at {from}"), other.out_of_turn().into()),
            Err(LinkError::Silent { .. }) => return Ok(()),
            Err(LinkError::Message(MessageError::Frame(error))) if is_stranger(&error) => return Ok(()),
            Err(LinkError::Message(error)) => (format!("the worker at {from}"), error.into()),
        };
        // It may be gone already.
        let _ = link.send(&MessageHead::Refused { why: chain(&why) }.into());
        Err(PipelineError::Refusal { who, why })
    }

    fn check(
        &self,
        model: &Identity,
        joined: &[Option<Joined>],
        rank: usize,
        world: usize,
        found: &Identity,
    ) -> Result<(), Refusal> {
        if world != self.world {
            return Err(Refusal::World { found: world, expected: self.world });
        }
        match rank.checked_sub(1).and_then(|at| joined.get(at)) {
            None => Err(Refusal::Rank { world }),
            Some(Some(_)) => Err(Refusal::Twice),
            Some(None) => Ok(model.check(found)?),
        }
    }
}

/// A worker that has joined.
struct Joined {
    link: Tcp,
    /// The address at which its neighbour finds it.
    ip: IpAddr,
    port: u16,
}

/// Whether the caller does not use any version of the protocol.
fn is_stranger(error: &FrameError) -> bool {
    match error {
        FrameError::Closed | FrameError::Truncated | FrameError::Magic { .. } | FrameError::Io(_) => true,
        FrameError::Version { .. } | FrameError::TooLong { .. } | FrameError::Damaged => false,
    }
}

/// The next message that is more than a sign of life.
pub(super) fn receive(link: &dyn Transport) -> Result<Message, LinkError> {
    loop {
        let message = link.receive()?;
        if message.head != MessageHead::Alive {
            return Ok(message);
        }
    }
}

/// A worker's place in a world: its neighbours and its layers.
pub struct Seat {
    pub(super) rank: usize,
    pub(super) layers: Span,
    pub(super) driver: Arc<dyn Transport>,
    /// The previous rank, unless that is the driver.
    pub(super) previous: Option<Arc<dyn Transport>>,
    /// The next rank, unless that is the driver.
    pub(super) next: Option<Arc<dyn Transport>>,
    pub(super) patience: Duration,
    /// Numbers of the ways from the previous rank's device, and to the next rank's.
    pub(super) ways: Vec<Vec<u8>>,
}

impl Seat {
    /// Joins the world that meets at an address, as one of its ranks from 1 on.
    ///
    /// # Errors
    /// If the numbers are out of range, the driver does not answer within the patience, or it
    /// refuses this rank.
    pub fn join(
        address: &str,
        rank: usize,
        world: usize,
        model: &Identity,
        patience: Duration,
    ) -> Result<Seat, PipelineError> {
        check(world, patience)?;
        if !(1..world).contains(&rank) {
            return Err(PipelineError::Rank { rank, world });
        }
        let deadline = Instant::now() + patience;
        let driver = Tcp::new(call(address, deadline, patience)?, patience);
        let driver = driver.map_err(|source| PipelineError::lost(0, source))?;
        // Neighbours find this rank by the way that it reaches the driver.
        let listen = || {
            let listener = TcpListener::bind((driver.stream().local_addr()?.ip(), 0))?;
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?.port(), listener))
        };
        let (port, listener) = listen().map_err(PipelineError::Socket)?;
        let lost = |source: LinkError| PipelineError::lost(0, source);
        let hello = MessageHead::Hello { rank, world, model: model.clone(), port };
        driver.send(&hello.into()).map_err(|source| last_words(&driver, rank, lost(source)))?;
        let (layers, next, token, patience, ways) = match receive(&driver).map_err(lost)?.head {
            MessageHead::Welcome { layers, next, token, patience, ways } => {
                (layers, next, token, Duration::from_millis(patience.clamp(1, 3_600_000)), ways)
            }
            MessageHead::Refused { why } => return Err(PipelineError::Refused { rank, why: plain(&why) }),
            MessageHead::Failed { rank, why } => return Err(PipelineError::failed(rank, &why)),
            other => return Err(PipelineError::lost(0, Message::from(other).out_of_turn())),
        };
        let expected = match model.rows() {
            Rows::Tcp => 0,
            Rows::Nccl => 1 + usize::from(next.is_some()),
        };
        if ways.len() != expected {
            return Err(PipelineError::lost(0, MessageError::Ways { found: ways.len(), expected }));
        }
        let driver = driver.with_patience(patience).map_err(|source| PipelineError::lost(0, source))?;
        let neighbours = Neighbours { rank, token, patience }.meet(next, &listener, rank > 1);
        let (previous, next) = neighbours.map_err(|error| {
            // The driver may be what is lost. Until it has judged, neighbours find this rank where
            // they were told.
            let _ = driver.send(&error.report().into());
            let _ = driver.stream().set_read_timeout(Some(FIRST_WORDS.min(patience)));
            last_words(&driver, rank, error)
        })?;
        driver.send(&MessageHead::Ready.into()).map_err(|source| last_words(&driver, rank, lost(source)))?;
        Ok(Seat { rank, layers, driver: Arc::new(driver), previous, next, patience, ways })
    }

    /// Its layers of the model.
    pub fn layers(&self) -> Span {
        self.layers
    }
}

/// The failure that the driver reports before it ends; `failure` if it reports none.
fn last_words(driver: &Tcp, rank: usize, failure: PipelineError) -> PipelineError {
    loop {
        match receive(driver) {
            Ok(Message { head: MessageHead::Failed { rank, why }, .. }) => return PipelineError::failed(rank, &why),
            Ok(Message { head: MessageHead::Refused { why }, .. }) => {
                return PipelineError::Refused { rank, why: plain(&why) };
            }
            Ok(_) => {}
            Err(_) => return failure,
        }
    }
}

/// A way to a neighbour, if there is one.
type Way = Option<Arc<dyn Transport>>;

/// The data by which a worker connects to its neighbouring ranks.
struct Neighbours {
    rank: usize,
    token: u64,
    patience: Duration,
}

impl Neighbours {
    /// Calls the next rank, and waits for the previous one.
    fn meet(&self, next: Option<SocketAddr>, here: &TcpListener, waits: bool) -> Result<(Way, Way), PipelineError> {
        let deadline = Instant::now() + self.patience;
        let next = next.map(|next| self.call(next)).transpose()?;
        let previous = if waits { Some(self.wait(here, deadline)?) } else { None };
        Ok((previous, next))
    }

    fn call(&self, next: SocketAddr) -> Result<Arc<dyn Transport>, PipelineError> {
        let lost = |source: FrameError| PipelineError::lost(self.rank + 1, source);
        let stream = TcpStream::connect_timeout(&next, self.patience).map_err(|error| lost(error.into()))?;
        let link = Tcp::new(stream, self.patience).map_err(lost)?;
        let hello = MessageHead::Neighbour { rank: self.rank, token: self.token };
        link.send(&hello.into()).map_err(|source| PipelineError::lost(self.rank + 1, source))?;
        Ok(Arc::new(link))
    }

    /// Waits for the previous rank to connect. Ignores callers that do not send the expected token.
    fn wait(&self, here: &TcpListener, deadline: Instant) -> Result<Arc<dyn Transport>, PipelineError> {
        let expected = MessageHead::Neighbour { rank: self.rank - 1, token: self.token };
        while Instant::now() < deadline {
            let stream = match here.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(LOOK);
                    continue;
                }
                Err(error) => return Err(PipelineError::Socket(error)),
            };
            let Ok(link) = Tcp::new(stream, FIRST_WORDS.min(self.patience)) else { continue };
            if link.receive().is_ok_and(|message| message.head == expected) {
                let link = link.with_patience(self.patience);
                return Ok(Arc::new(link.map_err(|source| PipelineError::lost(self.rank - 1, source))?));
            }
        }
        Err(PipelineError::lost(self.rank - 1, LinkError::Silent { seconds: self.patience.as_secs_f64() }))
    }
}

/// Refuses an invalid process group.
fn check(world: usize, patience: Duration) -> Result<(), PipelineError> {
    if !(2..=MOST_RANKS).contains(&world) {
        return Err(PipelineError::World { found: world });
    }
    let seconds = patience.as_secs_f64();
    if (0.1..=3600.0).contains(&seconds) { Ok(()) } else { Err(PipelineError::Patience { found: seconds }) }
}

/// The first address of a name.
fn resolve(address: &str) -> Result<SocketAddr, PipelineError> {
    let of = |source| PipelineError::Address { found: address.to_owned(), source };
    let mut found = address.to_socket_addrs().map_err(of)?;
    found.next().ok_or_else(|| of(io::Error::new(io::ErrorKind::NotFound, "no address has this name")))
}

/// Calls the driver, which may be started later than its workers.
fn call(address: &str, deadline: Instant, patience: Duration) -> Result<TcpStream, PipelineError> {
    let to = resolve(address)?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match TcpStream::connect_timeout(&to, left.clamp(LOOK, FIRST_WORDS)) {
            Ok(stream) => return Ok(stream),
            Err(source) if left.is_zero() => {
                let address = address.to_owned();
                let seconds = patience.as_secs_f64();
                return Err(PipelineError::NoDriver { address, seconds, source });
            }
            Err(_) => std::thread::sleep(LOOK.max(PULSE)),
        }
    }
}
