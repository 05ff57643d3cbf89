//! The rendezvous of a process group: rank 0 hands out the ids of NCCL links.
//!
//! A rank sends its rank, the secret and the identity of its model; rank 0 replies with two link
//! ids and that of the sums, or a refusal. Both messages have a fixed size. Each caller has a thread
//! of its own and a deadline for its whole message; the number of threads is bounded. A caller
//! without the secret changes nothing. The connection of a rank that joined stays as its
//! [`Control`].

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use bytemuck::{Pod, Zeroable, bytes_of, bytes_of_mut};

use super::control::{Control, read_by, write_by};
use super::error::{PipelineError, Refusal, chain, plain};
use super::group::{ProcessGroup, SECRET_BYTES};
use super::identity::Identity;
use super::transport::{GroupIds, LINK_ID_BYTES, LinkId, RingLinks};

/// What both messages begin with; another version of them has another number.
const MAGIC: [u8; 8] = *b"twgroup2";
/// The time that a caller has for its whole message, and rank 0 for a reply.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// Most callers that are read at a time: one more ends the oldest. A rank sends its message at once.
const MOST_CALLERS: usize = 256;
/// The pause between polls for callers.
const PAUSE: Duration = Duration::from_millis(5);

/// What a rank sends, byte for byte. Numbers are little-endian.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Hello {
    magic: [u8; 8],
    rank: [u8; 4],
    size: [u8; 4],
    tensor_parallel: [u8; 4],
    secret: [u8; SECRET_BYTES],
    identity: Identity,
}

/// The reply of rank 0: ids of the link from the previous rank, of that to the next and of the
/// sums, or the text of a refusal.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Reply {
    magic: [u8; 8],
    is_refusal: [u8; 8],
    body: [LinkId; 3],
}

/// Waits until all other ranks have joined. Ranks that joined are told of a failure.
pub(super) fn gather(group: &ProcessGroup, own: &Identity, ids: &GroupIds) -> Result<Vec<Control>, PipelineError> {
    let (host, port) = group.address();
    let named = if host == "localhost" { Some(IpAddr::from([127, 0, 0, 1])) } else { host.parse().ok() };
    // An address that is not this host's, such as a name that resolves to the loopback: all.
    let mut ips = named.into_iter().chain([IpAddr::from([0; 16]), IpAddr::from([0; 4])]);
    let listener = ips.find_map(|ip| TcpListener::bind((ip, port)).ok());
    let listener = listener.ok_or_else(|| PipelineError::Listen { address: group.address_text() })?;
    listener.set_nonblocking(true).map_err(PipelineError::Socket)?;
    let mut joined: Vec<Option<Control>> = (1..group.size()).map(|_| None).collect();
    let result = admit(&listener, group, own, ids, &mut joined);
    if let Err(error) = &result {
        // A rank that is gone needs no report.
        joined.iter().flatten().for_each(|control| drop(control.send(&error.report())));
    }
    result.map(|()| joined.into_iter().flatten().collect())
}

fn admit(
    listener: &TcpListener,
    group: &ProcessGroup,
    own: &Identity,
    ids: &GroupIds,
    joined: &mut [Option<Control>],
) -> Result<(), PipelineError> {
    let (sender, callers) = channel();
    let mut reading: VecDeque<(TcpStream, Weak<()>)> = VecDeque::new();
    let (begun, mut beat) = (Instant::now(), Instant::now());
    while joined.iter().any(Option::is_none) {
        match listener.accept() {
            Ok((stream, _)) => {
                reading.retain(|(_, thread)| thread.strong_count() > 0);
                if reading.len() >= MOST_CALLERS
                    && let Some((oldest, _)) = reading.pop_front()
                {
                    let _ = oldest.shutdown(Shutdown::Both);
                }
                reading.extend(read(stream, group, sender.clone()));
            }
            // None calls, a caller is gone again, or too many files are open.
            Err(_) => sleep(PAUSE),
        }
        for (stream, hello) in callers.try_iter() {
            let numbers = [hello.rank, hello.size, hello.tensor_parallel];
            let [rank, size, found] = numbers.map(|number| u32::from_le_bytes(number) as usize);
            let expected = group.tensor_parallel();
            let verdict = match rank.checked_sub(1).and_then(|at| joined.get(at)) {
                _ if size != group.size() => Err(Refusal::Size { found: size, expected: group.size() }),
                None => Err(Refusal::Rank { size }),
                Some(Some(_)) => Err(Refusal::Twice),
                Some(None) if found != expected => Err(Refusal::Shards { found, expected }),
                Some(None) => own.check(&hello.identity).map_err(Refusal::from),
            };
            if let Err(why) = verdict {
                let _ = reply(&stream, Err(&chain(&why)));
                return Err(PipelineError::Refusal { who: format!("rank {rank}"), why });
            }
            let replied = reply(&stream, Ok(&ids.of(rank)));
            // A rank that is gone again calls again.
            joined[rank - 1] = replied.and_then(|()| Control::new(stream, group.silence())).ok();
        }
        if begun.elapsed() > group.timeout() {
            let absent = (1..group.size()).filter(|rank| joined[rank - 1].is_none());
            return Err(PipelineError::absent(absent, group.timeout()));
        }
        if beat.elapsed() > group.silence() / 10 {
            beat = Instant::now();
            for (at, control) in joined.iter().enumerate().filter_map(|(at, joined)| Some((at, joined.as_ref()?))) {
                control.heartbeat().map_err(|source| PipelineError::lost(at + 1, source))?;
            }
        }
    }
    Ok(())
}

/// Reads a caller's message on a thread of its own, and passes it on if it has the secret. The
/// thread lives while the weak reference has a strong one.
fn read(
    stream: TcpStream,
    group: &ProcessGroup,
    sender: Sender<(TcpStream, Hello)>,
) -> io::Result<(TcpStream, Weak<()>)> {
    let (caller, alive) = (stream.try_clone()?, Arc::new(()));
    let thread = Arc::downgrade(&alive);
    let secret = group.secret().clone();
    let work = move || {
        let _alive = alive;
        let mut hello = Hello::zeroed();
        let deadline = Instant::now() + HELLO_TIME;
        let read = stream.set_nonblocking(false).and_then(|()| read_by(&stream, bytes_of_mut(&mut hello), deadline));
        // Neither a caller nor the rendezvous need be there any more.
        match read.is_ok() && hello.magic == MAGIC {
            true if secret.is(&hello.secret) => drop(sender.send((stream, hello))),
            true => drop(reply(&stream, Err("its secret is another one"))),
            false => {}
        }
    };
    Builder::new().name("rendezvous".to_owned()).spawn(work).map(|_| (caller, thread))
}

fn reply(stream: &TcpStream, verdict: Result<&RingLinks, &str>) -> io::Result<()> {
    let mut reply = Reply { magic: MAGIC, ..Reply::zeroed() };
    match verdict {
        Ok(links) => reply.body = [links.from, links.to, links.sums.unwrap_or([0; LINK_ID_BYTES])],
        Err(why) => {
            reply.is_refusal[0] = 1;
            reply.body.as_flattened_mut().iter_mut().zip(why.bytes()).for_each(|(to, byte)| *to = byte);
        }
    }
    write_by(stream, bytes_of(&reply), Instant::now() + HELLO_TIME)
}

/// Joins the group as one of the ranks from 1 on, and returns the ids of its links. Rank 0 may start
/// later.
pub(super) fn join(group: &ProcessGroup, own: &Identity) -> Result<(Control, RingLinks), PipelineError> {
    let numbers = [group.rank(), group.size(), group.tensor_parallel()];
    let [rank, size, tensor_parallel] = numbers.map(|number| (number as u32).to_le_bytes());
    let hello = Hello { magic: MAGIC, rank, size, tensor_parallel, secret: *group.secret().bytes(), identity: *own };
    let begun = Instant::now();
    loop {
        match call(group, &hello) {
            Ok((_, Reply { is_refusal: [1, ..], body, .. })) => {
                let why = String::from_utf8_lossy(body.as_flattened());
                let why = plain(why.trim_end_matches('\0'));
                return Err(PipelineError::Refused { rank: group.rank(), why });
            }
            Ok((stream, reply)) => {
                let control = Control::new(stream, group.silence()).map_err(PipelineError::Socket)?;
                let [from, to, sums] = reply.body;
                let sums = (group.tensor_parallel() > 1).then_some(sums);
                return Ok((control, RingLinks { rank: group.rank(), size: group.size(), from, to, sums }));
            }
            Err(source) if begun.elapsed() > group.timeout() => {
                let (address, seconds) = (group.address_text(), group.timeout().as_secs_f64());
                return Err(PipelineError::NoDriver { address, seconds, source });
            }
            Err(_) => sleep(10 * PAUSE),
        }
    }
}

fn call(group: &ProcessGroup, hello: &Hello) -> io::Result<(TcpStream, Reply)> {
    let time = (5 * HELLO_TIME).min(group.timeout());
    let mut addresses = group.address().to_socket_addrs()?;
    let stream = addresses.find_map(|address| TcpStream::connect_timeout(&address, time).ok());
    let stream = stream.ok_or_else(|| io::Error::new(io::ErrorKind::ConnectionRefused, "no address of it answers"))?;
    let mut reply = Reply::zeroed();
    write_by(&stream, bytes_of(hello), Instant::now() + time)?;
    read_by(&stream, bytes_of_mut(&mut reply), Instant::now() + time)?;
    if reply.magic == MAGIC { Ok((stream, reply)) } else { Err(io::ErrorKind::InvalidData.into()) }
}
