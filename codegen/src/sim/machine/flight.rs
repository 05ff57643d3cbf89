//! Asynchronous work in flight: copies, arrivals and matrix multiplies.

use super::rng::Rng;
use super::{Address, Home};
use crate::ir::Ty;
use crate::ir::attr::AtomOp;
use crate::sim::TensorMapDescriptor;
use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};

/// An asynchronous operation in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    pub work: EngineWork,
    /// The issuer: warp of the grid, lane, step.
    pub warp: u32,
    pub lane: u32,
    pub pc: u32,
    /// The operation of shadow memory that stands for its reads.
    pub reads: u32,
    /// The data that it has read already.
    pub data: Option<Vec<u8>>,
}

/// The destination of bytes, and the mbarrier that counts them: block, its mbarrier, the operation
/// that writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BulkDestination {
    pub block: u32,
    pub offset: usize,
    pub mbarrier: (u32, u32),
    pub op: u32,
}

impl BulkDestination {
    /// The first byte that is written.
    pub(crate) fn address(&self) -> Address {
        Address { home: Home::Shared(self.block), offset: self.offset }
    }
}

/// The work of an operation.
#[derive(Debug)]
pub(crate) enum EngineWork {
    /// `cp.async`: some bytes from the source, zeros after them.
    Copy { to: Address, from: Address, bytes: u32, filled: u32 },
    /// Bytes to shared memory, counted on mbarriers.
    ToShared { targets: Vec<BulkDestination>, from: Address, bytes: u32, reduction: Option<Reduction> },
    /// Bytes to global memory.
    ToGlobal { to: Address, from: Address, bytes: u32, reduction: Option<Reduction> },
    /// A box to shared memory.
    LoadBox { targets: Vec<BulkDestination>, copy: Box<TensorCopy> },
    /// A box to global memory.
    StoreBox { from: Address, copy: Box<TensorCopy> },
    /// An arrival once earlier copies of a thread are complete.
    Arrive { block: u32, mbarrier: u32, copies: Vec<u64>, ops: Vec<u32> },
    /// A `wgmma` of a warpgroup.
    Multiply(Box<super::super::step::Multiply>),
}

/// The engines' queue.
#[derive(Debug)]
pub(crate) struct Engine {
    pub flights: BTreeMap<u64, Box<Flight>>,
    pub(super) due: BinaryHeap<Reverse<(u64, u64)>>,
    /// Arrivals that follow copies.
    pub(super) arrivals: BTreeSet<u64>,
    /// For each warpgroup (by its first warp), its `wgmma`s in flight: they complete in order.
    pub(super) multiplies: HashMap<u32, VecDeque<u64>>,
    pub(super) next: u64,
    /// The interval at which an operation has no random completion time and completes as late as
    /// possible.
    pub(super) late: usize,
    /// The longest time, in steps, until a random completion time.
    pub(super) span: u32,
}

impl Engine {
    pub(super) fn new(rng: &mut Rng) -> Engine {
        let late = [1, 1, 2, 4][rng.below(4)];
        let span = [6, 10, 14][rng.below(3)];
        Engine {
            flights: BTreeMap::new(),
            due: BinaryHeap::new(),
            arrivals: BTreeSet::new(),
            multiplies: HashMap::new(),
            next: 0,
            late,
            span,
        }
    }
}

impl Engine {
    /// Drops operations in flight for a lost device; they never arrive.
    pub(super) fn forget(&mut self, of: impl Fn(&Flight) -> bool) {
        self.flights.retain(|_, flight| !of(flight));
        self.arrivals.retain(|id| self.flights.contains_key(id));
    }

    /// A `wgmma` follows the earlier ones of its warpgroup.
    pub(crate) fn follow(&mut self, first_warp: u32, id: u64) {
        self.multiplies.entry(first_warp).or_default().push_back(id);
    }

    /// The `wgmma`s of its warpgroup before one, which is taken off the list with them.
    pub(super) fn before(&mut self, work: &EngineWork, id: u64) -> Vec<u64> {
        if let EngineWork::Arrive { ops, .. } = work {
            // An earlier arrival of the thread waits for no more copies than this one, and is the
            // one to vouch for them.
            let shares = |other: &u64| match self.flights.get(other).map(|flight| &flight.work) {
                Some(EngineWork::Arrive { ops: theirs, .. }) => theirs.iter().any(|op| ops.contains(op)),
                _ => false,
            };
            return self.arrivals.iter().copied().filter(|&other| other < id).filter(shares).collect();
        }
        let EngineWork::Multiply(multiply) = work else { return Vec::new() };
        let Some(queue) = self.multiplies.get_mut(&(multiply.warp as u32)) else { return Vec::new() };
        let Some(at) = queue.iter().position(|&other| other == id) else { return Vec::new() };
        queue.drain(..=at).take(at).collect()
    }
}

impl EngineWork {
    /// The mbarrier of an arrival, and the operations that it follows.
    pub(super) fn arrival(&self) -> Option<(u32, u32, Vec<u32>)> {
        match self {
            EngineWork::Arrive { block, mbarrier, ops, .. } => Some((*block, *mbarrier, ops.clone())),
            _ => None,
        }
    }
}

impl Flight {
    /// Whether it will touch the shared memory or an mbarrier of a block.
    pub(crate) fn touches(&self, block: u32) -> bool {
        let here = |home: Home| home == Home::Shared(block);
        let any = |targets: &[BulkDestination]| targets.iter().any(|t| t.block == block || t.mbarrier.0 == block);
        match &self.work {
            EngineWork::Copy { to, .. } => here(to.home),
            EngineWork::ToShared { targets, from, .. } => any(targets) || here(from.home),
            EngineWork::LoadBox { targets, .. } => any(targets),
            EngineWork::ToGlobal { from, .. } | EngineWork::StoreBox { from, .. } => {
                here(from.home) && self.data.is_none()
            }
            EngineWork::Arrive { block: other, .. } => *other == block,
            EngineWork::Multiply(multiply) => multiply.block == block,
        }
    }
}

/// The operation of an asynchronous reduction on each element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reduction {
    pub op: AtomOp,
    pub ty: Ty,
}

/// A box on its way.
#[derive(Debug)]
pub(crate) struct TensorCopy {
    pub map: TensorMapDescriptor,
    pub at: Vec<i64>,
    /// The reduction of the tensor's elements; `None`: they are overwritten.
    pub reduction: Option<Reduction>,
}

impl TensorCopy {
    pub(crate) fn bytes(&self) -> usize {
        self.map.box_bytes() as usize
    }
}
