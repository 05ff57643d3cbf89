//! A small valid program, and the ways to break it: every invalid case is a change of the same
//! twin.

use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::ops::{Copy, Linear, LinearInput, LinearOutput};
use tilewright_megakernel::program::{
    BufferId, BufferKind, CounterId, Op, Program, Region, Source, Span, TaskId, Wait,
};
use tilewright_megakernel::testing::{Add, register_plain_ops};
use tilewright_megakernel::validate::{Report, validate};

/// The buffers of [`valid`].
pub const X: BufferId = BufferId(0);
pub const W: BufferId = BufferId(1);
pub const H: BufferId = BufferId(2);
pub const Y: BufferId = BufferId(3);
pub const OUT: BufferId = BufferId(4);
pub const CELL: BufferId = BufferId(5);

/// Columns `lo..hi` of a buffer of one row.
pub fn cols(buffer: BufferId, lo: usize, hi: usize) -> Region {
    Region::new(buffer, &[Span::all(1), Span::new(lo, hi)])
}

pub fn copy(src: Region, dst: Region) -> Op {
    Op::from(Copy { src, dst })
}

pub fn add(a: Region, b: Region, out: Region) -> Op {
    register_plain_ops().expect("no other op has the name of a plain one");
    Op::from(Add { a, b, out })
}

pub fn linear(lo: usize, hi: usize) -> Op {
    let input = LinearInput::Plain { x: X };
    let output = LinearOutput::Store { out: H, sent: vec![] };
    Op::from(Linear { input, weight: W, bias: None, rows: Span::all(1), cols: Span::new(lo, hi), output })
}

pub fn wait(counter: u32, threshold: u32) -> Wait {
    Wait { counter: CounterId(counter), threshold }
}

pub fn signals(counters: &[u32]) -> Vec<CounterId> {
    counters.iter().copied().map(CounterId).collect()
}

/// A program of these buffers without tasks.
pub fn buffers() -> Program {
    let mut p = Program::new("twin", Target::host(2));
    p.add_buffer("x", BufferKind::Input, DType::BF16, &[1, 8]);
    p.add_buffer("w", BufferKind::Weight, DType::BF16, &[8, 8]);
    p.add_buffer("h", BufferKind::Activation, DType::F32, &[1, 8]);
    p.add_buffer("y", BufferKind::Activation, DType::BF16, &[1, 8]);
    p.add_buffer("out", BufferKind::Output, DType::F32, &[1, 8]);
    p.add_buffer("cell", BufferKind::Cell, DType::BF16, &[1, 8]);
    p.buffers[W.index()].source = Some(Source::Tensor("w".into()));
    (p.buffers[H.index()].arena, p.buffers[Y.index()].arena) = (Some(0), Some(32));
    p
}

/// Two tiles of a linear layer, a sum of them all, and the result to the output; on two SMs.
///
/// ```text
/// sm0: left  ─┐  sum ─┐
/// sm1: right ─┴───┘   └─ store
/// ```
pub fn valid() -> Program {
    let mut p = buffers();
    p.add_counter("tiles");
    p.add_counter("sum");
    p.add_task("left", linear(0, 4), vec![], signals(&[0])).unwrap();
    p.add_task("right", linear(4, 8), vec![], signals(&[0])).unwrap();
    p.add_task("sum", add(cols(H, 0, 8), cols(X, 0, 8), cols(Y, 0, 8)), vec![wait(0, 2)], signals(&[1])).unwrap();
    p.add_task("store", copy(cols(Y, 0, 8), cols(OUT, 0, 8)), vec![wait(1, 1)], vec![]).unwrap();
    p.queues = Some(vec![vec![TaskId(0), TaskId(2)], vec![TaskId(1), TaskId(3)]]);
    p
}

/// Replaces a task's op and declares its footprint.
pub fn set_op(p: &mut Program, task: usize, op: Op) {
    let old = p.tasks[task].clone();
    let new = p.add_task(old.label.clone(), op, old.waits, old.signals).expect("operands of a twin");
    let mut task_now = p.tasks.pop().expect("the task just added");
    assert_eq!(task_now.id, new);
    (task_now.id, task_now.sm) = (old.id, old.sm);
    p.tasks[task] = task_now;
}

/// The report on the valid twin after a change; the twin itself is valid.
pub fn changed<T>(change: impl FnOnce(&mut Program) -> T) -> Report {
    let mut program = valid();
    assert!(validate(&program).is_valid(), "{}", validate(&program));
    change(&mut program);
    validate(&program)
}

/// The text of the violations after a change, all of which are of one kind.
#[track_caller]
pub fn only<T>(kind: &str, change: impl FnOnce(&mut Program) -> T) -> String {
    let report = changed(change);
    assert!(report.errors.iter().all(|e| e.kind.name() == kind), "{report}");
    text(&report, kind)
}

/// The text of the violations of one kind, among others that the same change causes.
#[track_caller]
pub fn among<T>(kind: &str, change: impl FnOnce(&mut Program) -> T) -> String {
    text(&changed(change), kind)
}

#[track_caller]
pub fn text(report: &Report, kind: &str) -> String {
    assert!(report.has(kind), "{report}");
    let of_kind = report.errors.iter().filter(|e| e.kind.name() == kind);
    of_kind.map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[track_caller]
pub fn assert_valid(program: &Program) {
    let report = validate(program);
    assert!(report.is_valid(), "{report}");
}
