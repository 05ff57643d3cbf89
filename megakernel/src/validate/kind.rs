//! The kinds of violations: one variant per rule, with all facts about the case.
//!
//! The text of a kind says noun, value, bound, remedy. Where it happens is a
//! [`Location`](super::Location), kept apart.

use thiserror::Error;

use super::conflict::{Clobber, Conflicts, PartialWait, UnwrittenReads};
use super::cycle::Cycle;
use super::text::{Few, Hazard};
use crate::ops::{OperandError, Role};
use crate::program::{AccessKind, BufferId, BufferKind, CounterId, DeviceId, Region, SmId, TaskId};

macro_rules! kinds {
    ($($(#[$attr:meta])* $name:ident $fields:tt,)*) => {
        /// A violation of one rule, without its location.
        #[derive(Clone, Debug, PartialEq, Error)]
        #[allow(missing_docs, reason = "the message names every field")]
        #[non_exhaustive]
        pub enum Kind { $($(#[$attr])* $name $fields,)* }

        impl Kind {
            /// The names of all kinds: one per rule.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The variant's name, for tables and for `--json`.
            pub fn name(&self) -> &'static str {
                match self { $(Kind::$name { .. } => stringify!($name),)* }
            }
        }
    };
}

kinds! {
    // The tables.
    #[error("{found} {noun}, an index holds at most {limit}; split the program")]
    TooMany { noun: &'static str, found: usize, limit: usize },
    #[error("id {found}, an id is the index of its entry, {expected}; renumber the table")]
    WrongId { found: u32, expected: usize },
    #[error("the name is also that of b{first}, names are unique; rename one of them")]
    DuplicateName { first: usize },
    #[error("rank {found}, supported are 1 to {limit}; merge or add dimensions")]
    Rank { found: usize, limit: usize },
    #[error("extent 0 in dimension {dim}, every extent is at least 1; drop the buffer")]
    ZeroExtent { dim: usize },
    #[error("shape {shape:?} of {bytes_per_element}-byte elements, the size must fit in {limit} bytes; use smaller extents")]
    TooLarge { shape: Vec<usize>, bytes_per_element: usize, limit: usize },
    #[error("no source, a weight has one; name its tensor or give its values")]
    NoSource {},
    #[error("a source on a buffer of kind {kind}, only weights have one; remove it or make the buffer a weight")]
    SourceForbidden { kind: BufferKind },
    #[error("{found} values for {expected} elements, the source gives one value per element; give exactly {expected}")]
    ValuesLength { found: usize, expected: usize },
    #[error("an arena offset on a buffer of kind {kind}, only activations live in the arena; remove the offset")]
    ArenaForbidden { kind: BufferKind },
    #[error("arena offset {offset} and {bytes} bytes, the end must be at most {limit}; choose a lower offset")]
    ArenaEnd { offset: u64, bytes: usize, limit: u64 },
    #[error("arena offset {offset}, it must be a multiple of the element's {align} bytes; align it")]
    ArenaAlign { offset: u64, align: usize },
    #[error("scale {found}, a KV pool of f8e4m3 has a finite one above 0 and no other buffer has one; mend or remove it")]
    PoolScale { found: f32 },
    #[error("offset {found}, weights of f32 that come from a tensor have a finite one and no other buffer has one; mend or remove it")]
    WeightOffset { found: f32 },
    #[error("multiplier {found}, weights of f32 that come from a tensor have a finite one other than 0 and no other buffer has one; mend or remove it")]
    WeightMultiplier { found: f32 },
    #[error("initial value {init}, every counter starts at 0; a head start would release a task before its producers")]
    CounterInit { init: u32 },

    // Waits and signals.
    #[error("a wait on missing counter {counter}, the program has {count} counters; add it or wait on another")]
    WaitsOnMissing { counter: CounterId, count: usize },
    #[error("a signal of missing counter {counter}, the program has {count} counters; add it or signal another")]
    SignalsMissing { counter: CounterId, count: usize },
    #[error("{found} waits, a task has at most {limit}; join producers in one counter")]
    TooManyWaits { found: usize, limit: usize },
    #[error("{found} signals, a task has at most {limit}; share counters between the waiters")]
    TooManySignals { found: usize, limit: usize },
    #[error("{found} waits on counter {counter}, a task waits once on a counter; keep the highest threshold")]
    DuplicateWait { counter: CounterId, found: usize },
    #[error("{found} signals of counter {counter}, a task signals a counter once; drop the repetition")]
    DuplicateSignal { counter: CounterId, found: usize },
    #[error("threshold 0 on counter {counter}, a wait has at least 1; drop the wait or raise the threshold")]
    ZeroThreshold { counter: CounterId },
    #[error("a wait on counter {counter} that no task signals, it can never be satisfied; add a producer or drop the wait")]
    NoProducer { counter: CounterId },
    #[error("threshold {threshold} on counter {counter}, which has {producers} producers; it can never be satisfied, lower it")]
    ThresholdTooHigh { counter: CounterId, threshold: u32, producers: u32 },
    #[error(
        "threshold {threshold} on counter {counter}, whose {producers} producers include the task itself; it can never be \
         satisfied, drop the wait or the signal"
    )]
    SelfWait { counter: CounterId, threshold: u32, producers: u32 },

    // Ops and regions.
    #[error("a {access} of missing buffer {buffer}, the program has {count} buffers; add it or name another")]
    MissingBuffer { access: AccessKind, buffer: BufferId, count: usize },
    #[error("op `{op}`: {error}")]
    Operand { op: &'static str, error: OperandError },
    #[error(
        "declared {access}s differ from the footprint of op `{op}`: {} missing, {} surplus; declare exactly the footprint",
        Few(missing), Few(surplus)
    )]
    RegionsDiffer { access: AccessKind, op: &'static str, missing: Vec<Region>, surplus: Vec<Region> },
    #[error("no op `{op}` of this kind is registered, an op is registered under its name; call `ops::register`")]
    Unregistered { op: &'static str },
    #[error(
        "{buffer} is read as {}, an earlier task reads it as {}; a cell has one role, use two cells", second.name(), first.name()
    )]
    CellRole { buffer: BufferId, first: Role, second: Role },
    #[error(
        "{declared} declared writes, op `{op}` has at least {needed}; declare exactly the footprint"
    )]
    WritesUndeclared { op: &'static str, declared: usize, needed: usize },
    #[error("the {access} {region} has rank {}, the buffer has rank {expected}; index every dimension", region.spans().len())]
    RegionRank { access: AccessKind, region: Region, expected: usize },
    #[error("the {access} {region} is empty in dimension {dim}, a region holds at least one element; drop it")]
    EmptyRegion { access: AccessKind, region: Region, dim: usize },
    #[error("the {access} {region} ends beyond extent {extent} of dimension {dim}; keep it inside the buffer")]
    OutOfBounds { access: AccessKind, region: Region, dim: usize, extent: usize },
    #[error("the write {region} goes to a buffer of kind {kind}, which tasks only read; write to an activation")]
    ReadOnly { region: Region, kind: BufferKind },
    #[error(
        "{} within one task, their order is not defined; use separate buffers{}",
        hazard.overlap(first, second),
        if matches!(hazard, Hazard::WriteAfterRead) { ", or exactly the region that the op may update in place" } else { "" }
    )]
    SelfOverlap { hazard: Hazard, first: Region, second: Region },

    // Placement.
    #[error("a target of 0 SMs, at least 1 is needed to run anything; set `target.sms`")]
    NoSms {},
    #[error("{found} queues for {sms} SMs, there is exactly one per SM; schedule the program again")]
    QueueCount { found: usize, sms: usize },
    #[error("missing task {task} at position {position}, the program has {count} tasks; schedule the program again")]
    QueuesMissing { task: TaskId, position: usize, count: usize },
    #[error("queued on {first} and again on {second}, a task runs once; keep one of them")]
    QueuedTwice { first: SmId, second: SmId },
    #[error("in no queue, every task of a placed program is in exactly one; schedule the program again")]
    Unqueued {},
    #[error("pinned to {sm}, the target has SMs 0 to {}; choose one of them", sms.saturating_sub(1))]
    PinRange { sm: SmId, sms: usize },
    #[error("pinned to {pinned} but queued on {queued}, a pin is binding; move the task or drop the pin")]
    PinBroken { pinned: SmId, queued: SmId },

    // Devices.
    #[error("runs on {found} devices, a program has from 1 to {most}; set `devices`")]
    DeviceCount { found: usize, most: usize },
    #[error("lies or runs on {device}, the program has dev0 to dev{}; name one of them", devices.saturating_sub(1))]
    NoDevice { device: DeviceId, devices: usize },
    #[error("a buffer of kind {kind} on every device, what tasks write lies on one of {devices}; name it")]
    DeviceNeeded { kind: BufferKind, devices: usize },
    #[error("an arena offset in a program of {devices} devices, which have no common arena; remove the offset")]
    ArenaDevices { devices: usize },
    #[error("the {access} of {buffer} on {lies} by a task on {runs}; {}", remedy(*access))]
    OtherDevice { access: AccessKind, buffer: BufferId, lies: DeviceId, runs: DeviceId },
    #[error("queued on {queued} and meant for {device}, which has other SMs; schedule the program again")]
    QueueDevice { queued: SmId, device: DeviceId },

    // Order.
    #[error("deadlock, {stuck} tasks never run: {cycle}; break the cycle")]
    Deadlock { stuck: usize, cycle: Cycle },

    // Memory.
    #[error("{0}; make the reader wait for the writer")]
    ReadAfterWrite (Conflicts),
    #[error("{0}; make the writer wait for the reader")]
    WriteAfterRead (Conflicts),
    #[error("{0}; make one writer wait for the other, or write disjoint regions")]
    WriteAfterWrite (Conflicts),
    #[error("{0}")]
    PartialJoin (PartialWait),
    #[error("{0}; order the tasks, or move the buffers apart in the arena")]
    AliasRace (Conflicts),
    #[error("{0}; read before that write, or move the buffers apart in the arena")]
    Clobbered (Clobber),
    #[error("{0}; write them in a task that the reader waits for")]
    UnwrittenRead (UnwrittenReads),
    #[error("{gap} is written by no task, an output is written completely; cover it")]
    OutputGap { gap: Region },
    #[error(
        "regions of this buffer cut each other into pieces too many to follow, at most {limit} are; use regions that begin \
         and end at common indexes"
    )]
    BoxesTooFine { limit: usize },
    #[error(
        "regions of {runs} or more separate byte runs share the arena with other buffers, at most {limit} are compared; give the \
         buffer arena bytes of its own"
    )]
    AliasTooFine { runs: usize, limit: usize },
}

/// What to do about an access of another device's memory.
fn remedy(access: AccessKind) -> &'static str {
    match access {
        AccessKind::Read => "read what its own device has, and let a task there send it",
        AccessKind::Write => "store with an op that sends",
    }
}
