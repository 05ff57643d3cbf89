//! Programs of a few tasks on one queue, and what is wrong with some of them.

use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_kernels::gemv::activations::{Packing, ScaledForm};
use tilewright_kernels::tile::Float;
use tilewright_kernels::weights::Strip;
use tilewright_layout::DType;

use super::flow::Flow;
use super::partial::{are_apart, merges};
use super::*;
use crate::lower::{LowerOptions, lower};
use crate::ops::{Access, AccessRole, Copy, Op, Partial, SplitAccess, SplitRead, Written};
use crate::program::{BufferId, BufferKind, DeviceId, Program, Region, Span, Task, TaskId, Wait};
use crate::schedule::schedule;

/// A program whose tasks run one after the other, with their accesses.
struct Steps {
    program: Program,
    accesses: Vec<Vec<Access>>,
}

/// A buffer of a program.
#[derive(Clone, Copy)]
struct NewBuffer {
    kind: BufferKind,
    dtype: DType,
    shape: &'static [usize],
}

fn activations(shape: &'static [usize]) -> NewBuffer {
    NewBuffer { kind: BufferKind::Activation, dtype: DType::F32, shape }
}

impl Steps {
    fn new(buffers: &[NewBuffer]) -> Steps {
        let mut program = Program::new("steps", Target::host(1));
        for (at, &NewBuffer { kind, dtype, shape }) in buffers.iter().enumerate() {
            program.add_buffer(format!("buffer {at}"), kind, dtype, shape);
        }
        program.queues = Some(vec![Vec::new()]);
        Steps { program, accesses: Vec::new() }
    }

    /// Activations x, y, z of 4 rows and 256 columns.
    fn of_rows() -> Steps {
        Steps::new(&[activations(&[4, 256]); 3])
    }

    /// Adds a task that reads and writes these regions.
    fn task(&mut self, reads: &[Region], writes: &[Region], accesses: Vec<Access>) -> TaskId {
        let id = TaskId::from(self.program.tasks.len());
        let nothing = Region::whole(BufferId(0), &[0, 0]);
        let task = Task {
            id,
            label: String::new(),
            op: Op::from(Copy { src: nothing, dst: nothing }),
            reads: reads.to_vec(),
            writes: writes.to_vec(),
            waits: Vec::new(),
            signals: Vec::new(),
            sm: None,
            device: DeviceId(0),
        };
        self.program.tasks.push(task);
        self.program.queues.iter_mut().flatten().for_each(|queue| queue.push(id));
        self.accesses.push(accesses);
        id
    }

    /// Adds a writer of columns by flagged words, which can store terms.
    fn writes(&mut self, buffer: u32, columns: [usize; 2]) {
        let access = Access::output(BufferId(buffer)).flagged().splitting_if(true);
        self.task(&[], &[columns_of(buffer, columns)], vec![access]);
    }

    /// Adds a reader of a whole buffer by an access.
    fn reads(&mut self, access: Access) -> TaskId {
        self.task(&[columns_of(access.buffer.0, [0, 256])], &[], vec![access])
    }

    fn with<R>(&self, f: impl FnOnce(&Flow<'_>) -> R) -> R {
        f(&Flow { program: &self.program, edges: &Edges::of(&self.program), accesses: &self.accesses })
    }

    fn is_flagged(&self, which: FlaggedUse) -> Vec<bool> {
        self.with(|flow| flow.flagged(which))
    }
}

fn columns_of(buffer: u32, [lo, hi]: [usize; 2]) -> Region {
    Region::new(BufferId(buffer), &[Span::all(4), Span::new(lo, hi)])
}

const X: BufferId = BufferId(0);

#[test]
fn generations_are_whole_where_every_element_is_written_once_before_any_is_read() {
    let mut steps = Steps::of_rows();
    for _ in 0..3 {
        steps.writes(0, [128, 256]);
        steps.writes(0, [0, 128]);
        steps.reads(Access::input(X));
    }
    let edges = Edges::of(&steps.program);
    assert!(edges.is_whole(X) && edges.period(X) == 3);
    let generations = [3, 4, 5].map(|task| (edges.written(TaskId(task), X), edges.read(TaskId(task), X)));
    assert_eq!(generations, [(2, 0), (2, 0), (0, 2)]);
    let second = &edges.of_buffer(X)[2];
    assert_eq!((&second.producers[..], &second.consumers[..]), (&[TaskId(3), TaskId(4)][..], &[TaskId(5)][..]));
}

/// A fault, and the tasks that have it.
struct Fault {
    what: &'static str,
    plant: fn(&mut Steps),
}

#[test]
fn generations_with_a_fault_are_not_whole() {
    let faults = [
        Fault {
            what: "a read before all is written",
            plant: |steps| {
                steps.writes(0, [0, 128]);
                steps.reads(Access::input(X));
                steps.writes(0, [128, 256]);
            },
        },
        Fault { what: "an element that is never written", plant: |steps| steps.writes(0, [0, 128]) },
        Fault {
            what: "an element that is written twice, and another never",
            plant: |steps| {
                [[0, 128], [64, 128], [192, 256]].into_iter().for_each(|columns| steps.writes(0, columns));
            },
        },
        Fault {
            what: "more elements than there are",
            plant: |steps| {
                [[0, 128], [64, 256]].into_iter().for_each(|columns| steps.writes(0, columns));
            },
        },
        Fault {
            what: "a read of what an earlier step left",
            plant: |steps| {
                steps.reads(Access::input(X));
                steps.writes(0, [0, 256]);
            },
        },
    ];
    for Fault { what, plant } in faults {
        let mut steps = Steps::of_rows();
        plant(&mut steps);
        assert!(!Edges::of(&steps.program).is_whole(X), "{what}");
    }
}

#[test]
fn a_region_is_immutable_where_its_writers_wait_for_all_readers() {
    let mut program = Program::new("immutable", Target::host(1));
    let [pool, x, y] = [("pool", BufferKind::KvPool), ("x", BufferKind::Input), ("y", BufferKind::Output)]
        .map(|(name, kind)| program.add_buffer(name, kind, DType::F32, &[4, 8]));
    let row = |buffer, row| Region::new(buffer, &[Span::one(row), Span::all(8)]);
    let readers = program.add_counter("readers");
    let mut copy = |src, dst, waits, signals| {
        program.add_task("copy", Copy { src, dst }, waits, signals).expect("operands that fit")
    };
    let read = [0, 1, 2].map(|at| copy(row(pool, at), row(y, at), vec![], vec![readers]));
    let lone = copy(row(pool, 3), row(y, 3), vec![], vec![]);
    let after = |threshold| vec![Wait { counter: readers, threshold }];
    // After all readers; after some of them; after none.
    for (at, waits) in [after(3), after(2), vec![]].into_iter().enumerate() {
        copy(row(x, at), row(pool, at), waits, vec![]);
    }
    let edges = Edges::of(&program);
    let is_immutable = |task, buffer| edges.is_immutable(&program, task, buffer);
    assert_eq!(read.map(|task| is_immutable(task, pool)), [true, false, false]);
    // Buffers without a writer, and those that are written elsewhere.
    assert!(is_immutable(read[1], x) && is_immutable(lone, pool));
}

#[test]
fn buffers_are_flagged_where_every_access_supports_it() {
    let of = |last: Access| {
        let mut steps = Steps::of_rows();
        steps.writes(0, [0, 256]);
        steps.reads(Access::input(X).flagged());
        steps.reads(last);
        steps.is_flagged(FlaggedUse::All)[0]
    };
    assert!(of(Access::new(X, AccessRole::Residual).flagged()));
    assert!(!of(Access::input(X).relaxed()) && !of(Access::output(X).flagged()), "rows are read");
    let mut steps = Steps::of_rows();
    steps.writes(0, [0, 256]);
    steps.reads(Access::input(X).flagged());
    assert_eq!(steps.is_flagged(FlaggedUse::Parts), [false; 3], "it is no summand");
    assert_eq!(steps.is_flagged(FlaggedUse::None), [false; 3]);
}

#[test]
fn summands_are_flagged_together() {
    let of = |generations: usize| {
        let mut steps = Steps::of_rows();
        (0..generations).for_each(|_| steps.writes(0, [0, 256]));
        steps.writes(1, [0, 256]);
        let parts = [0, 1].map(|part| Access::new(BufferId(part), AccessRole::Part).flagged());
        let reads = [0, 1].map(|part| columns_of(part, [0, 256]));
        steps.task(&reads, &[], parts.to_vec());
        steps.is_flagged(FlaggedUse::Parts)
    };
    assert_eq!(of(1), [true, true, false]);
    assert_eq!(of(2), [false; 3], "a record has one generation for all parts");
}

/// The form of a product of 256 columns; none of one that reads its first half.
struct Forms;

impl SplitForms for Forms {
    fn form(&self, read: &SplitRead, of: Activations) -> Option<SplitActivations> {
        let form = ScaledForm::of(Strip::new(of.k, 4, 2048).ok()?, Packing::of(read.rows, Float::F32), of.rows)?;
        let form = if read.norm.is_some() { form } else { form.without_norm() };
        read.along.is_none().then_some(SplitActivations { form, weight: read.norm, order: None })
    }
}

#[test]
fn activations_are_split_where_all_consumers_of_a_generation_read_one_form() {
    let read = SplitRead { norm: Some(BufferId(1)), weights: vec![], along: None, rows: 4 };
    let split = |read: &SplitRead| Access::input(X).split(SplitAccess::Read(read.clone()));
    let of = |accesses: &[Access]| {
        let mut steps = Steps::of_rows();
        steps.writes(0, [0, 256]);
        for access in accesses {
            steps.reads(access.clone());
        }
        steps.with(|flow| flow.split(X, None, &Forms)).is_some_and(|split| split.len() == 1)
    };
    let plain = SplitRead { norm: None, ..read.clone() };
    let half = SplitRead { along: Some(Span::all(128)), ..plain.clone() };
    assert!(of(&[split(&read), split(&read)]) && of(&[split(&plain)]));
    assert!(of(&[split(&read), Access::input(X)]), "rows lie beside normalised terms");
    assert!(!of(&[split(&plain), Access::input(X)]), "no rows lie beside terms without a norm");
    assert!(!of(&[split(&read), split(&plain)]), "two forms");
    assert!(!of(&[split(&read), split(&half)]), "a reader without a form");
    // A writer that cannot store terms.
    let mut steps = Steps::of_rows();
    steps.task(&[], &[columns_of(0, [0, 256])], vec![Access::output(X).flagged()]);
    steps.reads(split(&read));
    assert!(steps.with(|flow| flow.split(X, None, &Forms)).is_none());
}

/// Attention of two rows, one kv head and two splits.
struct Attention(Steps);

impl Attention {
    fn new() -> Attention {
        let pool = NewBuffer { kind: BufferKind::KvPool, dtype: DType::BF16, shape: &[1, 8, 16, 64] };
        Attention(Steps::new(&[activations(&[2, 1, 2, 64]), activations(&[2, 1, 2, 2]), pool]))
    }

    fn access(&mut self, rows: std::ops::Range<usize>, split: Option<usize>) {
        let rows = Span::new(rows.start, rows.end);
        let written = split.map(|_| Written { pool: BufferId(2), cells: [3, 4].map(BufferId) });
        let partial = Partial { acc: BufferId(0), rows, written };
        let splits = split.map_or(Span::all(2), Span::one);
        let regions = [(0, 64), (1, 2)]
            .map(|(buffer, width)| Region::new(BufferId(buffer), &[rows, Span::all(1), splits, Span::all(width)]));
        let role = if split.is_some() { AccessRole::Output } else { AccessRole::Input };
        let accesses = [0, 1].map(|buffer| Access::new(BufferId(buffer), role).of_partial(partial)).to_vec();
        match split {
            Some(_) => self.0.task(&[], &regions, accesses),
            None => self.0.task(&regions, &[], accesses),
        };
    }

    fn merge(&self) -> Result<Merge, &'static str> {
        let found = self.0.with(merges).map_err(|error| error.found)?;
        assert_eq!(found.len(), 2, "sums and maxima");
        Ok(found[&BufferId(0)])
    }
}

#[test]
fn partial_results_are_merged_where_every_generation_is_read() {
    let mut steps = Attention::new();
    for generation in 1..=3 {
        [(0..1, 0), (0..2, 1), (1..2, 0)].into_iter().for_each(|(rows, split)| steps.access(rows, Some(split)));
        assert_eq!(steps.merge(), Err("are not read in the end"));
        steps.access(0..2, None);
        let merge = steps.merge().expect("it is read");
        assert_eq!((merge.generations, merge.rows, merge.float), (generation, 2, Float::F32));
        assert_eq!((merge.width, merge.splits, merge.kv_heads), (64, 2, 1));
    }
    let ids: Vec<TaskId> = (0..3).map(TaskId).collect();
    let apart = |queues: &[Vec<TaskId>]| steps.0.with(|flow| are_apart(flow, queues));
    assert!(apart(&[vec![ids[0]], vec![ids[1]], vec![ids[2]]]));
    assert!(!apart(&[vec![ids[0], ids[1]], vec![ids[2]]]), "one would wait for a split of its own block");
}

#[test]
fn partial_results_with_a_fault_are_refused() {
    let refused = |accesses: &[(std::ops::Range<usize>, Option<usize>)]| {
        let mut steps = Attention::new();
        accesses.iter().for_each(|(rows, split)| steps.access(rows.clone(), *split));
        steps.merge().err()
    };
    let [first, second, read] = [(0..2, Some(0)), (0..2, Some(1)), (0..2, None)];
    let all = |accesses: &[&(std::ops::Range<usize>, Option<usize>)]| {
        refused(&accesses.iter().map(|&access| access.clone()).collect::<Vec<_>>())
    };
    assert_eq!(all(&[&first, &second, &read]), None);
    assert_eq!(all(&[&first, &read, &second]), Some("are read before every split is written"));
    assert_eq!(all(&[&first, &second, &first, &second, &read]), Some("are written again before they are read"));
    assert_eq!(all(&[&first, &second, &(0..1, None)]), Some("are not read in the end"));
    assert_eq!(all(&[&read]), Some("are of no attention"));
    let mut steps = Attention::new();
    [&first, &second, &read].into_iter().for_each(|(rows, split)| steps.access(rows.clone(), *split));
    steps.0.accesses[2].clear();
    assert_eq!(steps.merge(), Err("are read or written as they are"));
}

/// With one row almost everything is flagged words; the choice of tokens is released.
#[test]
fn edges_of_a_lowered_program_have_the_transports_of_their_rows() {
    let spec = Llama::named("llama-3.2-1b").expect("a known model").layers(2);
    let target = || Target::named("h100").expect("a known target");
    let chosen = |rows: usize, rule: &EdgeRule<'_>| {
        let options = LowerOptions { rows, kv: DType::BF16, activation: DType::BF16, ..LowerOptions::for_context(64) };
        let program = lower(&spec, &|_| DType::BF16, target(), &options).expect("it is lowered");
        let placed = schedule(program, 64).expect("it is placed");
        let chosen = ChosenEdges::choose(&placed, rule).expect("its splits are merged");
        let of = |id: usize| chosen.of_buffer(id.into()).iter().skip(1).map(|edge| edge.transport);
        let written = |at: &usize| placed.buffers[*at].kind == BufferKind::Activation;
        let mut found: Vec<Transport> = (0..placed.buffers.len()).filter(written).flat_map(of).collect();
        found.sort_unstable();
        found.dedup();
        (found, chosen.token_period())
    };
    let words = EdgeRule { flagged: FlaggedUse::All, flagged_splits: true, token: true, split: None };
    let flagged = Transport::Flagged { semaphore: true };
    assert_eq!(chosen(1, &words), (vec![Transport::Semaphore, flagged, Transport::Counted { flagged: true }], 2));
    let rows = EdgeRule { flagged: FlaggedUse::Parts, flagged_splits: true, token: false, split: None };
    assert_eq!(chosen(4, &rows), (vec![Transport::Semaphore, Transport::Counted { flagged: false }], 0));
}
