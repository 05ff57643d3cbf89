//! The validator: whether a program computes one thing, whatever the timing.
mod checked;
mod conflict;
mod cycle;
mod kind;
mod place;
mod placement;
mod regions;
mod report;
mod sync;
mod tables;
mod text;

pub use checked::{Checked, Placed, Rejected};
pub use conflict::{Clobber, Conflicts, Pair, PartialWait, UnwrittenRead, UnwrittenReads};
pub use cycle::{Cycle, Reason, Step};
pub use kind::{Access, Kind};
pub use place::Place;
pub use report::{Note, Report, Stats, Violation, Warning};
pub use text::{Hazard, SAMPLES, TaskName};

use crate::program::{BufferKind, Program};

/// Checks every rule on a program.
///
/// Total: any program gets a report, of any size and however malformed; nothing is skipped for size.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_megakernel::{program::Program, validate::validate};
/// let report = validate(&Program::new("nothing", Target::host(1)));
/// assert!(report.is_valid());
/// assert!(report.to_string().starts_with("[VALID] 0 tasks"));
/// ```
pub fn validate(program: &Program) -> Report {
    let mut report = Report { stats: stats(program), ..Report::default() };
    let sound = tables::check(program, &mut report);
    sync::check(program, &mut report);
    regions::check(program, sound, &mut report);
    let _ordered = placement::check(program, &mut report);
    if report.is_valid() {
        sync::warn(program, &mut report);
        regions::warn(program, &mut report);
    }
    report
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
