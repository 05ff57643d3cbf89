//! Channels in place of NCCL.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tilewright::engine::pipeline::{
    LINK_ID_BYTES, LinkError, LinkId, Network, RingEnds, RingLinks, Transport, WaitLimits,
};

/// A network of channels that hold one message each.
#[derive(Default)]
pub struct Channels {
    links: Mutex<BTreeMap<LinkId, Ends>>,
    /// Messages of each link, in the order of the ranks that send.
    sent: Mutex<BTreeMap<LinkId, Arc<AtomicU64>>>,
    /// The link whose receiver fails after that many messages.
    fault: Mutex<Option<(LinkId, u64)>>,
    /// The rank that cannot open its links.
    unopened: Mutex<Option<usize>>,
}

/// The ends that no rank has opened yet.
struct Ends(Option<SyncSender<Vec<u32>>>, Option<Receiver<Vec<u32>>>);

struct Sender {
    channel: SyncSender<Vec<u32>>,
    limits: WaitLimits,
    sent: Arc<AtomicU64>,
}

struct Receiving {
    channel: Mutex<Receiver<Vec<u32>>>,
    limits: WaitLimits,
    left: Option<AtomicU64>,
}

const PAUSE: Duration = Duration::from_millis(1);

/// The id of the link from a rank.
pub fn link_from(rank: usize) -> LinkId {
    let mut id = [0; LINK_ID_BYTES];
    id[0] = rank as u8;
    id
}

impl Channels {
    /// The messages that each rank sent to the next.
    pub fn sent(&self) -> Vec<u64> {
        self.sent.lock().unwrap().values().map(|sent| sent.load(Ordering::Relaxed)).collect()
    }

    /// Makes the link from a rank fail after that many messages.
    pub fn fail(&self, rank: usize, after: u64) {
        *self.fault.lock().unwrap() = Some((link_from(rank), after));
    }

    /// Makes a rank fail to open its links.
    pub fn fail_to_open(&self, rank: usize) {
        *self.unopened.lock().unwrap() = Some(rank);
    }
}

impl Network for Channels {
    fn id(&self) -> Result<LinkId, LinkError> {
        let mut links = self.links.lock().unwrap();
        let id = link_from(links.len());
        let (sender, receiver) = sync_channel(1);
        links.insert(id, Ends(Some(sender), Some(receiver)));
        self.sent.lock().unwrap().insert(id, Arc::default());
        Ok(id)
    }

    fn open(&self, ring: &RingLinks, limits: &WaitLimits) -> Result<RingEnds, LinkError> {
        if *self.unopened.lock().unwrap() == Some(ring.rank) {
            return Err(LinkError::Closed);
        }
        let mut links = self.links.lock().unwrap();
        let channel = links.get_mut(&ring.from).and_then(|ends| ends.1.take()).expect("one rank receives");
        let fault = self.fault.lock().unwrap().filter(|(id, _)| *id == ring.from);
        let left = fault.map(|(_, after)| AtomicU64::new(after));
        let from = Receiving { channel: Mutex::new(channel), limits: limits.clone(), left };
        let channel = links.get_mut(&ring.to).and_then(|ends| ends.0.take()).expect("one rank sends");
        let sent = Arc::clone(&self.sent.lock().unwrap()[&ring.to]);
        let to = Sender { channel, limits: limits.clone(), sent };
        Ok(RingEnds { from: Arc::new(from), to: Arc::new(to), collective: None })
    }
}

impl Transport for Sender {
    fn send(&self, words: &[u32]) -> Result<(), LinkError> {
        let begun = Instant::now();
        let mut words = words.to_vec();
        loop {
            self.limits.check(begun)?;
            match self.channel.try_send(words) {
                Ok(()) => break,
                Err(TrySendError::Full(left)) => words = left,
                Err(TrySendError::Disconnected(_)) => return Err(LinkError::Closed),
            }
            sleep(PAUSE);
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn receive(&self, _: usize) -> Result<Vec<u32>, LinkError> {
        panic!("this end sends")
    }
}

impl Transport for Receiving {
    fn send(&self, _: &[u32]) -> Result<(), LinkError> {
        panic!("this end receives")
    }

    fn receive(&self, count: usize) -> Result<Vec<u32>, LinkError> {
        if let Some(left) = &self.left
            && left.fetch_sub(1, Ordering::Relaxed) == 0
        {
            return Err(LinkError::Closed);
        }
        let begun = Instant::now();
        let channel = self.channel.lock().unwrap();
        loop {
            self.limits.check(begun)?;
            match channel.recv_timeout(PAUSE) {
                Ok(words) => {
                    assert_eq!(words.len(), count, "both ends agree on the number of words");
                    return Ok(words);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(LinkError::Closed),
            }
        }
    }
}
