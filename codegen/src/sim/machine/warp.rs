//! A warp: its registers, its lanes by where they stand, what each lane knows.

use super::Home;
use crate::ir::attr::Scope;
use crate::sim::number::{LANES, LaneValues};
use crate::sim::order::{Released, ThreadView};
use std::collections::VecDeque;

/// A set of lanes.
pub(crate) type Mask = u32;

/// Every lane.
pub(crate) const FULL: Mask = u32::MAX;

/// The lanes of a mask, ascending.
pub(crate) fn lanes(mask: Mask) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    core::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        Some(lane)
    })
}

/// The state of a group of lanes: ready, or waiting for an event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GroupState {
    Ready,
    /// At the place where ways meet, for a while.
    Joined,
    /// At an instruction that needs other lanes too.
    Gather {
        needed: Mask,
    },
    /// At barrier `id`.
    Bar {
        id: u32,
    },
    /// For a phase of an mbarrier of the block, or until a time.
    Mbar {
        index: u32,
        parity: u32,
        until: u64,
    },
    /// For the cluster's barrier.
    Cluster,
    /// For the other warps of the warpgroup, at a `wgmma`.
    Warpgroup {
        pc: u32,
    },
    /// Asleep until a time.
    Sleep {
        until: u64,
    },
}

/// Lanes that stand at the same step.
#[derive(Clone, Debug)]
pub(crate) struct LaneGroup {
    pub mask: Mask,
    pub pc: u32,
    pub state: GroupState,
    /// Whether it already waited once at this step; the step is then completed.
    pub waited: bool,
    /// The last backward jump that was inspected: its place, its registers, and the time of the
    /// machine's last effect then.
    pub spin: Option<Spin>,
    /// The mbarrier that it last found not ready, the parity that it asked for, and the step that
    /// asked.
    pub polled: Option<(MbarrierAt, u32, u32)>,
}

/// A group at a jump back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spin {
    pub pc: u32,
    pub registers: u64,
    /// The time of the last effect, if the group came to the jump twice with the same registers and
    /// nothing but time has changed since.
    pub idle_since: Option<u64>,
}

/// An operation that a thread has issued: its flight, and the operations of shadow memory that read
/// and write for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub flight: u64,
    pub reads: u32,
    pub writes: u32,
    pub pc: u32,
    /// An mbarrier waits for it in the thread's place.
    pub entrusted: bool,
}

/// Groups of asynchronous operations that a thread has issued: open, and closed, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    pub open: Vec<Ticket>,
    pub closed: VecDeque<Vec<Ticket>>,
}

impl Queue {
    pub(crate) fn close(&mut self) {
        let group = core::mem::take(&mut self.open);
        self.closed.push_back(group);
    }

    /// Takes the oldest closed groups until at most `pending` are left.
    pub(crate) fn take(&mut self, pending: u32) -> Vec<Ticket> {
        let done = self.closed.len().saturating_sub(pending as usize);
        self.closed.drain(..done).flatten().collect()
    }

    /// An mbarrier waits for everything issued so far.
    pub(crate) fn entrust(&mut self) {
        for ticket in self.closed.iter_mut().flatten().chain(&mut self.open) {
            ticket.entrusted = true;
        }
    }

    /// Operations that were never waited for.
    pub(crate) fn left(&self) -> impl Iterator<Item = &Ticket> {
        self.closed.iter().flatten().chain(&self.open)
    }
}

/// The asynchronous side of one lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Issued {
    pub copies: Queue,
    pub bulk: Queue,
    /// Bulk groups whose sources were waited for, but whose writes were not, oldest first.
    pub half: VecDeque<Vec<Ticket>>,
}

/// The view that a lane released by a fence, and releases that it read without acquiring.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fences {
    pub released: Option<(Scope, ThreadView)>,
    pub heard: Released,
}

/// A load that was judged. While the shadow of what it read stays as it is, and the warp has
/// released nothing since, it may be made again without being judged: polling loops do.
#[derive(Clone)]
pub(crate) struct JudgedLoad {
    pub pc: u32,
    pub mask: Mask,
    pub time: u32,
    pub addresses: LaneValues,
    pub home: Home,
    /// The address of the first byte of its home.
    pub base: u64,
    /// The bytes that it read, of its home, and the changes of their shadow.
    pub bytes: core::ops::Range<usize>,
    pub changes: u64,
    /// Bank conflicts and sectors.
    pub cost: [u64; 2],
}

/// Loads that a warp remembers, by step: more than a polling loop has.
pub(crate) const JUDGED_LOADS: usize = 16;

/// A warp of the grid.
pub(crate) struct Warp {
    pub block: u32,
    /// The index in the block.
    pub index: u32,
    /// Lanes that have not exited.
    pub live: Mask,
    /// Lanes that the kernel started with.
    pub started: Mask,
    pub groups: Vec<LaneGroup>,
    pub regs: Vec<LaneValues>,
    /// For each register of the kernel, the lanes that have written it.
    pub written: Vec<Mask>,
    /// For each row of registers and fragments: touched since the last `wgmma.fence`.
    pub touched: Vec<bool>,
    /// For each register: `wgmma`s in flight that use it.
    pub in_flight: Vec<u16>,
    pub flying: u32,
    pub wgmma: Queue,
    /// The registers that each `wgmma` in flight uses.
    pub uses: Vec<(u64, core::ops::Range<u32>)>,
    pub time: u32,
    pub clock: [u32; LANES],
    pub views: Vec<ThreadView>,
    pub issued: Vec<Issued>,
    pub fences: Vec<Fences>,
    /// The last loads, each at its step's number modulo [`JUDGED_LOADS`].
    pub judged: Vec<Option<JudgedLoad>>,
    pub queued: bool,
    /// Whether the warp has arrived at the cluster barrier and not yet waited.
    pub cluster_arrived: bool,
}

impl Warp {
    pub(crate) fn new(block: u32, index: u32) -> Warp {
        Warp {
            block,
            index,
            live: 0,
            started: 0,
            groups: Vec::new(),
            regs: Vec::new(),
            written: Vec::new(),
            touched: Vec::new(),
            in_flight: Vec::new(),
            flying: 0,
            wgmma: Queue::default(),
            uses: Vec::new(),
            time: 1,
            clock: [1; LANES],
            views: Vec::new(),
            issued: Vec::new(),
            fences: Vec::new(),
            judged: Vec::new(),
            queued: false,
            cluster_arrived: false,
        }
    }

    /// Begins at step 0 with these lanes.
    pub(crate) fn start(&mut self, mask: Mask, rows: u32, vars: usize) {
        self.live = mask;
        self.started = mask;
        self.groups =
            vec![LaneGroup { mask, pc: 0, state: GroupState::Ready, waited: false, spin: None, polled: None }];
        self.regs = vec![[0; LANES]; rows as usize];
        self.written = vec![0; vars];
        self.in_flight = vec![0; vars];
        self.touched = vec![false; rows as usize];
        self.views = vec![ThreadView::default(); LANES];
        self.issued = vec![Issued::default(); LANES];
        self.fences = vec![Fences::default(); LANES];
        self.judged = vec![None; JUDGED_LOADS];
    }

    /// Frees the resources that it needed to run.
    pub(crate) fn finish(&mut self) {
        self.regs = Vec::new();
        self.views = Vec::new();
        self.issued = Vec::new();
        self.fences = Vec::new();
        self.judged = Vec::new();
    }

    /// Writes a row in the lanes of a mask.
    pub(crate) fn put(&mut self, row: usize, mask: Mask, values: &LaneValues) {
        let target = &mut self.regs[row];
        if mask == FULL {
            *target = *values;
        } else {
            for lane in lanes(mask) {
                target[lane] = values[lane];
            }
        }
    }

    /// A digest of the registers.
    pub(crate) fn digest(&self) -> u64 {
        self.regs
            .iter()
            .flatten()
            .fold(0, |sum: u64, &value| (sum.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95))
    }

    /// Joins groups that stand at a step into one of them, and gives the lanes that are there now.
    pub(crate) fn absorb(&mut self, group: usize) -> Mask {
        let pc = self.groups[group].pc;
        let mut mask = self.groups[group].mask;
        for (index, other) in self.groups.iter_mut().enumerate() {
            if index != group && other.pc == pc && matches!(other.state, GroupState::Joined | GroupState::Gather { .. })
            {
                mask |= other.mask;
                other.mask = 0;
            }
        }
        self.groups[group].mask = mask;
        mask
    }
}

/// An mbarrier of the grid: its block and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MbarrierAt {
    pub block: u32,
    pub index: u32,
}
