//! The validator: a proof that a program computes one result under every timing.
//!
//! [`validate`] is total: any program gets a [`Report`], of any size and however malformed.
//! [`Checked`] and [`Placed`] are programs whose report has no errors; the back ends take nothing
//! else. This module depends only on [`crate::program`] and on the rows of [`crate::ops`].
//!
//! # What a program means
//! A task can start when all of its waits hold and its predecessor in its SM's queue is done. When
//! it is done, it adds 1 to each counter that it signals. Counters start at 0 and only grow. Before
//! queues are made, every task that can start may start.
//!
//! A program is valid if in every execution every task runs, every element that is read has one
//! producer, the same in all executions, and every output element is written. The verdict is exact
//! on well-formed programs: nothing unsafe is accepted and nothing safe is refused, but for the
//! limits [`Kind::BoxesTooFine`] and [`Kind::AliasTooFine`], which bound the time that a small file
//! can take. The modules `order` and `memory` say why. Waits for only some of a counter's producers
//! are judged by what they order.
//!
//! # Rules
//! One function each; the kind of violation, and what it asks for.
//!
//! | Tables (`tables`) | |
//! |---|---|
//! | [`TooMany`](Kind::TooMany) | buffers, counters and tasks are at most `u32::MAX` |
//! | [`WrongId`](Kind::WrongId) | an entry's id is its index |
//! | [`DuplicateName`](Kind::DuplicateName) | buffer names are unique |
//! | [`Rank`](Kind::Rank) | a buffer has rank 1 to 4 |
//! | [`ZeroExtent`](Kind::ZeroExtent) | no extent is 0 |
//! | [`TooLarge`](Kind::TooLarge) | a buffer's bytes fit in `isize::MAX` |
//! | [`NoSource`](Kind::NoSource) | a weight has a source |
//! | [`SourceForbidden`](Kind::SourceForbidden) | nothing else has one |
//! | [`ValuesLength`](Kind::ValuesLength) | a source of values gives one per element |
//! | [`ArenaForbidden`](Kind::ArenaForbidden) | only activations have an arena offset |
//! | [`ArenaEnd`](Kind::ArenaEnd) | the end of a buffer in the arena fits in `isize::MAX` |
//! | [`ArenaAlign`](Kind::ArenaAlign) | an arena offset is a multiple of the element's size |
//! | [`WeightOffset`](Kind::WeightOffset) | only weights of f32 that come from a tensor have an offset: finite |
//! | [`WeightMultiplier`](Kind::WeightMultiplier) | only weights of f32 that come from a tensor have a multiplier: finite, not 0 |
//! | [`PoolScale`](Kind::PoolScale) | only KV pools of e4m3 codes have a scale: finite, above 0, as its reciprocal |
//! | [`CounterInit`](Kind::CounterInit) | a counter starts at 0 |
//!
//! | Waits and signals (`sync`) | |
//! |---|---|
//! | [`WaitsOnMissing`](Kind::WaitsOnMissing) | a counter waited on exists |
//! | [`SignalsMissing`](Kind::SignalsMissing) | a counter signalled exists |
//! | [`TooManyWaits`](Kind::TooManyWaits) | a task has at most `MAX_WAITS` waits |
//! | [`TooManySignals`](Kind::TooManySignals) | a task has at most `MAX_SIGNALS` signals |
//! | [`DuplicateWait`](Kind::DuplicateWait) | a task waits once on a counter |
//! | [`DuplicateSignal`](Kind::DuplicateSignal) | a task signals a counter once |
//! | [`ZeroThreshold`](Kind::ZeroThreshold) | a threshold is at least 1 |
//! | [`NoProducer`](Kind::NoProducer) | a counter waited on has a producer |
//! | [`ThresholdTooHigh`](Kind::ThresholdTooHigh) | a threshold is at most the number of producers |
//! | [`SelfWait`](Kind::SelfWait) | a threshold can be reached without the waiting task's own signal |
//!
//! | Ops and regions (`regions`) | |
//! |---|---|
//! | [`MissingBuffer`](Kind::MissingBuffer) | the buffer of a region exists |
//! | [`Operand`](Kind::Operand) | an op's operands have the kinds, dtypes, ranks and extents that the op wants |
//! | [`Unregistered`](Kind::Unregistered) | an op is registered under its name |
//! | [`CellRole`](Kind::CellRole) | a cell is read as one thing: token ids, positions, page tables or requests |
//! | [`RegionsDiffer`](Kind::RegionsDiffer) | declared regions are the op's footprint, repetitions aside |
//! | [`WritesUndeclared`](Kind::WritesUndeclared) | a footprint of thousands of writes is declared before it is computed |
//! | [`RegionRank`](Kind::RegionRank) | a region has its buffer's rank |
//! | [`EmptyRegion`](Kind::EmptyRegion) | a region holds an element |
//! | [`OutOfBounds`](Kind::OutOfBounds) | a region stays inside its buffer |
//! | [`ReadOnly`](Kind::ReadOnly) | tasks write to activations, pools and outputs only |
//! | [`SelfOverlap`](Kind::SelfOverlap) | a task's accesses do not overlap each other, except where its op updates in place |
//!
//! | Placement (`placement`) | |
//! |---|---|
//! | [`NoSms`](Kind::NoSms) | the target has an SM |
//! | [`QueueCount`](Kind::QueueCount) | there is one queue per SM |
//! | [`QueuesMissing`](Kind::QueuesMissing) | queues name tasks that exist |
//! | [`QueuedTwice`](Kind::QueuedTwice) | no task is queued twice |
//! | [`Unqueued`](Kind::Unqueued) | every task of a placed program is queued |
//! | [`PinRange`](Kind::PinRange) | a pin names an SM of the target |
//! | [`PinBroken`](Kind::PinBroken) | a pinned task is queued where it is pinned |
//!
//! | Devices (`devices`, `regions`, `placement`) | |
//! |---|---|
//! | [`DeviceCount`](Kind::DeviceCount) | a program runs on 1 to `MAX_DEVICES` devices |
//! | [`NoDevice`](Kind::NoDevice) | the device of a buffer or task exists |
//! | [`DeviceNeeded`](Kind::DeviceNeeded) | of several devices one holds what tasks write |
//! | [`ArenaDevices`](Kind::ArenaDevices) | several devices share no arena |
//! | [`OtherDevice`](Kind::OtherDevice) | a task reaches its own device's buffers, and those that its op sends to |
//! | [`QueueDevice`](Kind::QueueDevice) | a task is queued on an SM of its device |
//!
//! | Order (`order`) | |
//! |---|---|
//! | [`Deadlock`](Kind::Deadlock) | every task runs: waits and queue order together have no circle |
//!
//! | Memory (`memory`) | |
//! |---|---|
//! | [`ReadAfterWrite`](Kind::ReadAfterWrite) | a reader is ordered after the writer whose data it finds |
//! | [`WriteAfterRead`](Kind::WriteAfterRead) | a writer is ordered after the readers of what it overwrites |
//! | [`WriteAfterWrite`](Kind::WriteAfterWrite) | two writers of an element are ordered |
//! | [`PartialJoin`](Kind::PartialJoin) | a wait for some of a counter's producers waits for those that matter |
//! | [`AliasRace`](Kind::AliasRace) | accesses to shared arena bytes through two buffers are ordered |
//! | [`Clobbered`](Kind::Clobbered) | bytes that are read were last written through the same buffer |
//! | [`UnwrittenRead`](Kind::UnwrittenRead) | what is read of an activation or output was written before |
//! | [`OutputGap`](Kind::OutputGap) | an output is written completely |
//! | [`BoxesTooFine`](Kind::BoxesTooFine) | irregular regions of all buffers are compared and cut 2^26 times at most |
//! | [`AliasTooFine`](Kind::AliasTooFine) | regions that share arena bytes have at most 2^22 byte runs together |
//!
//! Order is judged where the queues hold every task once, memory where every task runs; structural
//! rules are all judged always. Regions that another rule refuses are left out of the walk over
//! memory.

mod checked;
mod conflict;
mod cycle;
mod devices;
mod kind;
mod memory;
mod order;
mod place;
mod placement;
mod regions;
mod report;
mod sync;
mod synchronisation;
mod tables;
mod text;

pub use checked::{Checked, Placed, Rejected};
pub use conflict::{Clobber, Conflicts, Pair, PartialWait, UnwrittenRead, UnwrittenReads};
pub use cycle::{Cycle, Reason, Step};
pub use kind::Kind;
pub use place::Location;
pub use report::{Note, Report, Stats, Violation, Warning};
pub(crate) use synchronisation::Synchronisation;
pub use text::{Hazard, SAMPLES, TaskName};

use crate::program::{BufferKind, Program, TaskId};
use order::{Execution, HappensBefore, OrderGraph};

/// Checks every rule on a program and reports all violations.
///
/// The function is total: any program gets a report, of any size and however malformed. [`Checked`]
/// and [`Placed`] are programs without violations, which back ends take.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::program::{BufferKind, Program, Region, Wait};
/// use tilewright_megakernel::ops::Copy;
/// use tilewright_megakernel::validate::validate;
///
/// let mut program = Program::new("two copies", Target::host(2));
/// let [x, y, z] = [("x", BufferKind::Input), ("y", BufferKind::Activation), ("z", BufferKind::Output)]
///     .map(|(name, kind)| program.add_buffer(name, kind, DType::F32, &[1, 8]));
/// let whole = |buffer| Region::whole(buffer, &[1, 8]);
/// let ready = program.add_counter("y is written");
/// program.add_task("first", Copy { src: whole(x), dst: whole(y) }, vec![], vec![ready])?;
/// let wait = Wait { counter: ready, threshold: 1 };
/// program.add_task("second", Copy { src: whole(y), dst: whole(z) }, vec![wait], vec![])?;
/// assert!(validate(&program).is_valid());
///
/// // Without the wait the second task may read before the first has written.
/// program.tasks[1].waits.clear();
/// assert!(validate(&program).has("ReadAfterWrite"));
/// # Ok::<(), tilewright_megakernel::ops::OperandError>(())
/// ```
pub fn validate(program: &Program) -> Report {
    let mut report = Report { stats: stats(program), ..Report::default() };
    let sound = tables::check(program, &mut report);
    devices::check(program, &mut report);
    sync::check(program, &mut report);
    regions::check(program, sound, &mut report);
    let queued = placement::check(program, &mut report);
    check_order(program, queued, &mut report);
    if report.is_valid() {
        sync::warn(program, &mut report);
        regions::warn(program, &mut report);
    }
    report
}

/// Checks what depends on the order of the tasks. Where queues are broken there is none to judge:
/// only the waits are. In a program that stops early, memory is not judged either.
fn check_order(program: &Program, queued: bool, report: &mut Report) {
    let graph = OrderGraph::new(program, queued);
    let execution = Execution::new(&graph);
    if !execution.is_complete() {
        let deadlock = order::witness(program, &graph, &execution);
        report.errors.extend(deadlock.map(|kind| Violation { at: Location::Program, kind }));
    } else if queued {
        report.stats.depth = Some(execution.depth);
        memory::check(program, &HappensBefore::new(&graph, &execution), report);
    }
}

/// The conflicts of a valid placed program that a back end leaves unordered.
pub(crate) fn unordered(program: &Program, by: &Synchronisation) -> Vec<Violation> {
    let graph = OrderGraph::new(program, true);
    let execution = Execution::new(&graph);
    let synchronised = graph.synchronised(by);
    let mut report = Report::default();
    // The program's own execution is one of the weaker order, too.
    memory::check(program, &HappensBefore::new(&synchronised, &execution), &mut report);
    let is_conflict = |kind: &Kind| {
        use Kind::{
            AliasRace, AliasTooFine, BoxesTooFine, PartialJoin, ReadAfterWrite, WriteAfterRead, WriteAfterWrite,
        };
        matches!(
            kind,
            ReadAfterWrite(_)
                | WriteAfterRead(_)
                | WriteAfterWrite(_)
                | PartialJoin(_)
                | AliasRace(_)
                | BoxesTooFine { .. }
                | AliasTooFine { .. }
        )
    };
    report.errors.retain(|error| is_conflict(&error.kind));
    report.errors
}

/// The tasks of a program in one order of execution, up to where nothing more can start.
pub(crate) fn execution_order(program: &Program) -> Vec<TaskId> {
    let execution = Execution::new(&OrderGraph::new(program, program.queues.is_some()));
    execution.sequence.into_iter().map(TaskId).collect()
}

fn stats(program: &Program) -> Stats {
    let weights = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::Weight);
    Stats {
        tasks: program.tasks.len(),
        buffers: program.buffers.len(),
        counters: program.counters.len(),
        regions: program.tasks.iter().map(|task| task.reads.len() + task.writes.len()).sum(),
        waits: program.tasks.iter().map(|task| task.waits.len()).sum(),
        weight_bytes: weights.fold(0, |sum, buffer| sum.saturating_add(buffer.bytes().unwrap_or(usize::MAX))),
        depth: None,
        queues: program.queues.as_ref().map(Vec::len),
    }
}
