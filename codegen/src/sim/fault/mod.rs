//! Faults of a kernel: kind and place. Module `text` has the words that a person reads.

mod text;

use super::memory::Why;
use crate::ir::{Space, Src, StmtId};

/// A fault of the kernel under test. It is data; the machine that found it is well.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The kernel's name.
    pub kernel: String,
    /// The seed that shows it.
    pub seed: u64,
    /// The kind of fault.
    pub kind: FaultKind,
    /// The thread and the instruction at which it was found.
    pub at: ThreadAt,
    /// The other access of a race, or the thread that blocks this one.
    pub with: Option<Other>,
}

/// A thread at an instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadAt {
    /// The statement.
    pub stmt: StmtId,
    /// Its text.
    pub inst: String,
    /// The line that recorded it.
    pub src: Src,
    /// The author's line, where a library recorded the statement inside a loop or branch of the
    /// library.
    pub caller: Option<Src>,
    /// The device, where several run the kernel.
    pub device: Option<u32>,
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
    /// The thread and instruction of the access.
    pub place: ThreadAt,
    /// Whether it wrote.
    pub wrote: bool,
    /// Whether an asynchronous operation made it, issued there.
    pub asynchronous: bool,
}

/// A warp that makes no progress.
#[derive(Clone, Debug, PartialEq)]
pub struct StuckWarp {
    /// The instruction at which it waits.
    pub place: ThreadAt,
    /// The event that it waits for.
    pub wait: String,
}

/// Bytes of memory, as a report names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The space.
    pub space: Space,
    /// The address.
    pub address: u64,
    /// The number of bytes.
    pub bytes: u32,
    /// The buffer or allocation and the offset in it, where there is one.
    pub name: Option<(String, u64)>,
}

/// The kinds of faults of a kernel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FaultKind {
    /// Two accesses to the same bytes, one a write, that nothing orders.
    Race {
        /// The bytes of the later access.
        at: ByteRange,
        /// Whether the later access writes.
        wrote: bool,
        /// Whether the later access is made by an asynchronous operation.
        asynchronous: bool,
        /// Why they are not ordered.
        why: Why,
    },
    /// A read of bytes that were never written.
    Uninitialised(ByteRange),
    /// A read of a register that this thread has not written.
    UninitialisedRegister {
        /// The register.
        register: String,
    },
    /// An address outside of every allocation.
    OutOfBounds(ByteRange),
    /// An access to an element that its tensor does not have.
    IndexOutOfBounds {
        /// The tensor.
        tensor: String,
        /// The mode of the tensor.
        mode: u32,
        /// The index.
        index: u32,
        /// The extent of the mode.
        extent: u32,
        /// The line that computed the address.
        src: Src,
    },
    /// An address that is not a multiple of what it must be.
    Misaligned {
        /// The access.
        at: ByteRange,
        /// The alignment that the access needs.
        align: u32,
    },
    /// A write to memory that is read-only: uploaded so, or read by `ld.nc`.
    ReadOnly(ByteRange),
    /// A read by `ld.nc` of bytes that this kernel wrote.
    ReadOnlyPath(ByteRange),
    /// Shared memory of a block of the cluster that has exited.
    BlockGone(ByteRange),
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
    /// No warp can make progress.
    Deadlock {
        /// The warps that have not ended.
        stuck: Vec<StuckWarp>,
    },
    /// An asynchronous operation that no thread waited for.
    LeakedCopy {
        /// The operation that should have been waited for.
        operation: &'static str,
    },
    /// A phase of an mbarrier that received bytes and was never waited for.
    LeakedPhase {
        /// The mbarrier.
        barrier: ByteRange,
        /// The phase, counted from 0.
        phase: u32,
        /// Bytes still pending.
        pending: i64,
    },
    /// An mbarrier is initialised where a live one stands.
    DoubleInit {
        /// The mbarrier.
        barrier: ByteRange,
    },
    /// An instruction on an mbarrier that was not initialised.
    NoBarrier {
        /// The place.
        barrier: ByteRange,
    },
    /// More arrivals than the mbarrier's phase expects.
    TooManyArrivals {
        /// The mbarrier.
        barrier: ByteRange,
        /// Arrivals that were pending.
        pending: u32,
        /// Arrivals that came.
        came: u32,
    },
    /// Pending bytes of an mbarrier beyond what it counts.
    TooManyBytes {
        /// The mbarrier.
        barrier: ByteRange,
        /// Bytes pending.
        pending: i64,
    },
    /// An mbarrier that ceases while a thread waits for it or a copy is to complete on it.
    BarrierInUse {
        /// The mbarrier.
        barrier: ByteRange,
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
    /// A matrix descriptor or tensor map that the hardware does not accept, or an operand outside
    /// its range.
    BadOperand {
        /// The defect.
        what: &'static str,
        /// The value found.
        found: u64,
        /// The bound it violates.
        limit: u64,
    },
    /// An operand of `wgmma` that begins past the first row of its swizzle's pattern, so that its
    /// rows are permuted by the numbers of others.
    SwizzleBase {
        /// Its start.
        at: ByteRange,
        /// Bytes past a multiple of the period.
        offset: u32,
        /// Bytes of a row.
        span: u32,
    },
    /// A division by zero.
    DivisionByZero,
    /// A cluster barrier used out of turn.
    ClusterBarrier {
        /// The event.
        what: &'static str,
    },
    /// Words that the host uses while the kernel runs ([`HostOrder`](super::HostOrder)).
    Host {
        /// The words.
        at: ByteRange,
        /// The defect in the kernel's use of them.
        why: HostWhy,
    },
    /// The kernel reached a trap.
    Trap,
    /// A condition that the kernel asserts is false.
    Assertion {
        /// What was asserted.
        text: String,
    },
}

/// A defect in the use of words that the host accesses while the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostWhy {
    /// The host may use them at the same moment, and the access is not atomic at `.sys` scope.
    NotAtomic,
    /// The host reads them once it saw what is stored, and their write is not ordered before that
    /// for the whole system.
    NotReleased,
    /// They are written although the host may read them already.
    Open,
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
        "index out of bounds",
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
        "misaligned swizzle",
        "division by zero",
        "cluster barrier",
        "order for the host",
        "trap",
    ];

    /// A short name of the kind, for tables of results.
    pub fn name(&self) -> &'static str {
        match self {
            FaultKind::Race { why: Why::Unordered, .. } => "race",
            FaultKind::Race { why: Why::InFlight, .. } => "race with an asynchronous operation",
            FaultKind::Race { why: Why::NoProxyFence | Why::ReadNotFenced | Why::InitNotFenced, .. } => {
                "race between proxies"
            }
            FaultKind::Race { why: Why::Scope, .. } => "race of scopes",
            FaultKind::Uninitialised(_) => "uninitialised memory",
            FaultKind::UninitialisedRegister { .. } => "uninitialised register",
            FaultKind::OutOfBounds(_) => "out of bounds",
            FaultKind::IndexOutOfBounds { .. } => "index out of bounds",
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
            FaultKind::SwizzleBase { .. } => "misaligned swizzle",
            FaultKind::DivisionByZero => "division by zero",
            FaultKind::ClusterBarrier { .. } => "cluster barrier",
            FaultKind::Host { .. } => "order for the host",
            FaultKind::Trap => "trap",
            FaultKind::Assertion { .. } => "assertion",
        }
    }
}
