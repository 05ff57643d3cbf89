//! What a kernel did wrong: kind, place, and the words a person reads.

use super::memory::Why;
use crate::ir::{Space, Src, StmtId};
use core::fmt;

/// A fault of the kernel under test. It is data; the machine that found it is well.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The kernel's name.
    pub kernel: String,
    /// The seed that shows it.
    pub seed: u64,
    /// What is wrong.
    pub kind: FaultKind,
    /// Where.
    pub at: Place,
    /// The other access of a race, or who stands in the way.
    pub with: Option<Other>,
}

/// A thread at an instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The statement.
    pub stmt: StmtId,
    /// Its text.
    pub inst: String,
    /// The author's line.
    pub src: Src,
    /// The block of the grid.
    pub block: [u32; 3],
    /// The warp of the block.
    pub warp: u32,
    /// The lane, where one is to blame.
    pub lane: Option<u32>,
}

/// The earlier of two accesses.
#[derive(Clone, Debug, PartialEq)]
pub struct Other {
    /// Who made it.
    pub place: Place,
    /// Whether it wrote.
    pub wrote: bool,
    /// Whether an asynchronous operation made it, issued there.
    pub asynchronous: bool,
}

/// A warp that does not come further.
#[derive(Clone, Debug, PartialEq)]
pub struct Stuck {
    /// Where it stands.
    pub place: Place,
    /// What it waits for.
    pub wait: String,
}

/// Bytes of memory, as a report names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The space.
    pub space: Space,
    /// The address.
    pub address: u64,
    /// How many.
    pub bytes: u32,
    /// The buffer or allocation and the offset in it, where there is one.
    pub name: Option<(String, u64)>,
}

/// What a kernel can do wrong.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FaultKind {
    /// Two accesses to the same bytes, one a write, that nothing orders.
    Race {
        /// The bytes of the later access.
        at: Bytes,
        /// Whether the later access writes.
        wrote: bool,
        /// Whether the later access is made by an asynchronous operation.
        asynchronous: bool,
        /// Why they are not ordered.
        why: Why,
    },
    /// A read of bytes that nobody wrote.
    Uninitialised(Bytes),
    /// A read of a register that this thread has not written.
    UninitialisedRegister {
        /// The register.
        register: String,
    },
    /// An address outside of every allocation.
    OutOfBounds(Bytes),
    /// An address that is not a multiple of what it must be.
    Misaligned {
        /// The access.
        at: Bytes,
        /// What its address must be a multiple of.
        align: u32,
    },
    /// A write to memory that is read-only: uploaded so, or read by `ld.nc`.
    ReadOnly(Bytes),
    /// A read by `ld.nc` of bytes that this kernel wrote.
    ReadOnlyPath(Bytes),
    /// Shared memory of a block of the cluster that has exited.
    BlockGone(Bytes),
    /// Lanes of a warp stand at different instructions, one of which needs them all.
    DivergentWarp {
        /// The lanes that came.
        came: u32,
        /// The lanes that it needs.
        needed: u32,
    },
    /// An instruction names lanes that have exited.
    ExitedLanes {
        /// The lanes that it names and that are gone.
        lanes: u32,
    },
    /// A lane executes a warp instruction whose mask does not name it.
    NotInMask {
        /// The mask.
        mask: u32,
    },
    /// A shuffle reads a lane outside its mask.
    ShuffleOutsideMask {
        /// The lane that is read.
        source: u32,
        /// The mask.
        mask: u32,
    },
    /// A barrier waits for threads that have exited.
    EarlyExit {
        /// The barrier.
        barrier: u32,
        /// Threads that it waits for.
        threads: u32,
        /// Threads of the block that are left.
        left: u32,
    },
    /// Participants of a barrier name different numbers of threads.
    BarrierCount {
        /// The barrier.
        barrier: u32,
        /// Threads that the first named.
        first: u32,
        /// Threads that this one names.
        now: u32,
    },
    /// Nobody comes further.
    Deadlock {
        /// Every warp that is left.
        stuck: Vec<Stuck>,
    },
    /// An asynchronous operation that nobody waited for.
    LeakedCopy {
        /// What should have been waited for.
        operation: &'static str,
    },
    /// A phase of an mbarrier that received bytes and was never waited for.
    LeakedPhase {
        /// The mbarrier.
        barrier: Bytes,
        /// The phase, counted from 0.
        phase: u32,
        /// Bytes still pending.
        pending: i64,
    },
    /// An mbarrier is initialised where a live one stands.
    DoubleInit {
        /// The mbarrier.
        barrier: Bytes,
    },
    /// An instruction on an mbarrier that was not initialised.
    NoBarrier {
        /// The place.
        barrier: Bytes,
    },
    /// More arrivals than the mbarrier's phase expects.
    TooManyArrivals {
        /// The mbarrier.
        barrier: Bytes,
        /// Arrivals that were pending.
        pending: u32,
        /// Arrivals that came.
        came: u32,
    },
    /// Pending bytes of an mbarrier beyond what it counts.
    TooManyBytes {
        /// The mbarrier.
        barrier: Bytes,
        /// Bytes pending.
        pending: i64,
    },
    /// An mbarrier that ceases while a thread waits for it or a copy is to complete on it.
    BarrierInUse {
        /// The mbarrier.
        barrier: Bytes,
    },
    /// A register that a `wgmma` in flight uses.
    WgmmaInFlight {
        /// The register.
        register: String,
    },
    /// A `wgmma` whose registers were touched since the last `wgmma.fence`.
    NoWgmmaFence {
        /// The register.
        register: String,
    },
    /// A matrix descriptor or tensor map that the hardware does not accept, or an operand outside its range.
    BadOperand {
        /// What is wrong with it.
        what: &'static str,
        /// The value found.
        found: u64,
        /// The bound it violates.
        limit: u64,
    },
    /// A division by zero.
    DivisionByZero,
    /// A cluster barrier used out of turn.
    ClusterBarrier {
        /// What happened.
        what: &'static str,
    },
    /// The kernel reached a trap.
    Trap,
}

impl FaultKind {
    /// Every [`FaultKind::name`].
    pub const NAMES: &[&str] = &[
        "race",
        "race with an asynchronous operation",
        "race between proxies",
        "race of scopes",
        "uninitialised memory",
        "uninitialised register",
        "out of bounds",
        "misaligned",
        "write to read-only memory",
        "read-only path",
        "block gone",
        "divergent warp",
        "exited lanes",
        "lane not in mask",
        "shuffle outside mask",
        "early exit",
        "barrier count",
        "deadlock",
        "leaked copy",
        "leaked phase",
        "double init",
        "no mbarrier",
        "too many arrivals",
        "too many bytes",
        "mbarrier in use",
        "wgmma in flight",
        "no wgmma fence",
        "bad operand",
        "division by zero",
        "cluster barrier",
        "trap",
    ];

    /// One word for the kind, as tables of results print it.
    pub fn name(&self) -> &'static str {
        match self {
            FaultKind::Race { why: Why::Unordered, .. } => "race",
            FaultKind::Race { why: Why::InFlight, .. } => "race with an asynchronous operation",
            FaultKind::Race { why: Why::NoProxyFence | Why::InitNotFenced, .. } => "race between proxies",
            FaultKind::Race { why: Why::Scope, .. } => "race of scopes",
            FaultKind::Uninitialised(_) => "uninitialised memory",
            FaultKind::UninitialisedRegister { .. } => "uninitialised register",
            FaultKind::OutOfBounds(_) => "out of bounds",
            FaultKind::Misaligned { .. } => "misaligned",
            FaultKind::ReadOnly(_) => "write to read-only memory",
            FaultKind::ReadOnlyPath(_) => "read-only path",
            FaultKind::BlockGone(_) => "block gone",
            FaultKind::DivergentWarp { .. } => "divergent warp",
            FaultKind::ExitedLanes { .. } => "exited lanes",
            FaultKind::NotInMask { .. } => "lane not in mask",
            FaultKind::ShuffleOutsideMask { .. } => "shuffle outside mask",
            FaultKind::EarlyExit { .. } => "early exit",
            FaultKind::BarrierCount { .. } => "barrier count",
            FaultKind::Deadlock { .. } => "deadlock",
            FaultKind::LeakedCopy { .. } => "leaked copy",
            FaultKind::LeakedPhase { .. } => "leaked phase",
            FaultKind::DoubleInit { .. } => "double init",
            FaultKind::NoBarrier { .. } => "no mbarrier",
            FaultKind::TooManyArrivals { .. } => "too many arrivals",
            FaultKind::TooManyBytes { .. } => "too many bytes",
            FaultKind::BarrierInUse { .. } => "mbarrier in use",
            FaultKind::WgmmaInFlight { .. } => "wgmma in flight",
            FaultKind::NoWgmmaFence { .. } => "no wgmma fence",
            FaultKind::BadOperand { .. } => "bad operand",
            FaultKind::DivisionByZero => "division by zero",
            FaultKind::ClusterBarrier { .. } => "cluster barrier",
            FaultKind::Trap => "trap",
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {} memory at {:#x}", self.bytes, self.space, self.address)?;
        match &self.name {
            Some((name, 0)) => write!(f, " ({name})"),
            Some((name, offset)) => write!(f, " ({name} + {offset})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.block;
        write!(
            f,
            "{} `{}` ({}:{}), block ({x}, {y}, {z}) warp {}",
            self.stmt,
            self.inst,
            self.src.file(),
            self.src.line(),
            self.warp
        )?;
        match self.lane {
            Some(lane) => write!(f, " lane {lane}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::Race { at, wrote, why, .. } => race(f, at, *wrote, *why),
            FaultKind::Uninitialised(at) => write!(f, "reads {at}, which nobody wrote; write it before"),
            FaultKind::UninitialisedRegister { register } => {
                write!(f, "reads register {register}, which this thread has not written; set it before")
            }
            FaultKind::OutOfBounds(at) => write!(f, "accesses {at}, outside of every allocation; bound the index"),
            FaultKind::Misaligned { at, align } => write!(f, "accesses {at}, not a multiple of {align}; align it"),
            FaultKind::ReadOnly(at) => write!(f, "writes {at}, which is read-only; write to a buffer of its own"),
            FaultKind::ReadOnlyPath(at) => {
                write!(f, "reads {at} through the read-only path, but this kernel wrote it; load it without nc")
            }
            FaultKind::BlockGone(at) => {
                write!(f, "accesses {at}, of a block that has exited; keep it alive with a cluster barrier at the end")
            }
            FaultKind::Deadlock { stuck } => {
                write!(f, "nobody comes further; stuck:")?;
                stuck.iter().try_for_each(|warp| write!(f, "\n  {}: waits for {}", warp.place, warp.wait))
            }
            FaultKind::DivisionByZero => f.write_str("divides by zero; guard the divisor"),
            FaultKind::Trap => f.write_str("reached a trap, which the author put where nobody should come"),
            _ => self.explain(f),
        }
    }
}

/// An mbarrier, as a report names it.
struct Mbarrier<'a>(&'a Bytes);

impl fmt::Display for Mbarrier<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.name {
            Some((name, 0)) => write!(f, "mbarrier {name}"),
            Some((name, offset)) => write!(f, "mbarrier {name} + {offset}"),
            None => write!(f, "an mbarrier"),
        }?;
        write!(f, " at {:#x}", self.0.address)
    }
}

fn race(f: &mut fmt::Formatter<'_>, at: &Bytes, wrote: bool, why: Why) -> fmt::Result {
    write!(f, "{} {at}; ", if wrote { "writes" } else { "reads" })?;
    f.write_str(match why {
        Why::Unordered => {
            "nothing orders it after the access below; put a barrier, or a release and an acquire, between them"
        }
        Why::InFlight => "the asynchronous operation below uses them and was not waited for by this thread",
        Why::NoProxyFence => "the write below is of the other proxy; put fence.proxy.async between them",
        Why::InitNotFenced => {
            "the async proxy uses the mbarrier initialised below; put fence.mbarrier_init behind that"
        }
        Why::Scope => "both accesses are atomic, but one's scope does not include the other's thread; widen it",
    })
}

impl FaultKind {
    /// The text of kinds about barriers, warps and operands.
    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::DivergentWarp { came, needed } => {
                write!(f, "needs lanes {needed:#010x} together, only {came:#010x} came; let all of them reach it")
            }
            FaultKind::ExitedLanes { lanes } => {
                write!(f, "needs lanes {lanes:#010x}, which have exited; let them stay, or leave them out of the mask")
            }
            FaultKind::NotInMask { mask } => {
                write!(f, "is executed by a lane that its mask {mask:#010x} does not name; name it, or keep it out")
            }
            FaultKind::ShuffleOutsideMask { source, mask } => {
                write!(f, "reads lane {source}, which its mask {mask:#010x} does not name; name it, or read another")
            }
            FaultKind::EarlyExit { barrier, threads, left } => write!(
                f,
                "barrier {barrier} waits for {threads} threads, but only {left} of the block have not exited; let all reach it, or lower its count"
            ),
            FaultKind::BarrierCount { barrier, first, now } => {
                write!(
                    f,
                    "barrier {barrier} is used with {now} threads here and with {first} below; name the same number"
                )
            }
            FaultKind::LeakedCopy { operation } => {
                write!(f, "the block exited, but nobody waited for this {operation}; wait for it before the end")
            }
            FaultKind::LeakedPhase { barrier, phase, pending } => write!(
                f,
                "the block exited, but nobody waited for phase {phase} of {}, with {pending} bytes pending; wait for it before the end",
                Mbarrier(barrier)
            ),
            FaultKind::DoubleInit { barrier } => {
                write!(
                    f,
                    "initialises {}, which is live; initialise it once, or invalidate it first",
                    Mbarrier(barrier)
                )
            }
            FaultKind::NoBarrier { barrier } => {
                write!(
                    f,
                    "uses {}, which is not initialised; initialise it before, and let a barrier pass",
                    Mbarrier(barrier)
                )
            }
            FaultKind::TooManyArrivals { barrier, pending, came } => write!(
                f,
                "brings arrivals ({came}) to {}, whose phase expects {pending} more; initialise it with as many as come",
                Mbarrier(barrier)
            ),
            FaultKind::TooManyBytes { barrier, pending } => write!(
                f,
                "leaves {pending} bytes pending at {}, which counts to 1048575; spread them over phases",
                Mbarrier(barrier)
            ),
            FaultKind::BarrierInUse { barrier } => write!(
                f,
                "invalidates {}, for which a thread or a copy still waits; wait for its phase before",
                Mbarrier(barrier)
            ),
            FaultKind::WgmmaInFlight { register } => {
                write!(f, "touches register {register} of a wgmma in flight; wait for its group before")
            }
            FaultKind::NoWgmmaFence { register } => {
                write!(f, "register {register} was touched since the last wgmma.fence; put one before this wgmma")
            }
            FaultKind::BadOperand { what, found, limit } => {
                write!(f, "{what}: found {found:#x}, the limit is {limit:#x}; bring it within")
            }
            FaultKind::ClusterBarrier { what } => f.write_str(what),
            FaultKind::Race { .. }
            | FaultKind::Uninitialised(_)
            | FaultKind::UninitialisedRegister { .. }
            | FaultKind::OutOfBounds(_)
            | FaultKind::Misaligned { .. }
            | FaultKind::ReadOnly(_)
            | FaultKind::ReadOnlyPath(_)
            | FaultKind::BlockGone(_)
            | FaultKind::Deadlock { .. }
            | FaultKind::DivisionByZero
            | FaultKind::Trap => Ok(()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} in kernel {}, seed {}", self.kind.name(), self.kernel, self.seed)?;
        writeln!(f, "at {}", self.at)?;
        write!(f, "  {}", self.kind)?;
        if let Some(other) = &self.with {
            let what = match (&self.kind, other.wrote, other.asynchronous) {
                (FaultKind::BarrierCount { .. }, _, _) => "came first",
                (FaultKind::DoubleInit { .. }, _, _) => "initialised it",
                (_, true, false) => "writes",
                (_, false, false) => "reads",
                (_, true, true) => "issued a copy that writes",
                (_, false, true) => "issued an operation that reads",
            };
            write!(f, "\nand {}\n  {what}", other.place)?;
        }
        Ok(())
    }
}
