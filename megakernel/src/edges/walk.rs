//! The walk over a program's data flow: generations, producers and consumers of every buffer.

use std::collections::HashSet;

use crate::program::{BufferId, Program, Region, TaskId};
use crate::validate::execution_order;

/// One generation of a buffer: written by some tasks and read by others before the next write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// Generations are counted from 1 in each step; 0 is what a step finds.
    pub generation: u32,
    /// The tasks that write it, in the order of the walk.
    pub producers: Vec<TaskId>,
    /// The tasks that read it, in the order of the walk.
    pub consumers: Vec<TaskId>,
    /// Whether every element is written exactly once, and all of them before any is read.
    pub is_whole: bool,
}

/// The edges of a program.
///
/// Generations are counted along one order of execution. The validator has proved that conflicting
/// accesses have the same order in every other.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::edges::Edges;
/// use tilewright_megakernel::ops::{Copy, OperandError};
/// use tilewright_megakernel::program::{BufferKind, Program, Region, TaskId};
/// let mut program = Program::new("copy", Target::host(1));
/// let x = program.add_buffer("x", BufferKind::Input, DType::F32, &[1, 8]);
/// let y = program.add_buffer("y", BufferKind::Output, DType::F32, &[1, 8]);
/// let [src, dst] = [x, y].map(|buffer| Region::whole(buffer, &[1, 8]));
/// program.add_task("copy", Copy { src, dst }, vec![], vec![])?;
/// let edges = Edges::of(&program);
/// assert!(edges.of_buffer(y)[1].is_whole && edges.of_buffer(y)[1].producers == [TaskId(0)]);
/// assert_eq!((edges.read(TaskId(0), x), edges.written(TaskId(0), y)), (0, 1));
/// # Ok::<(), OperandError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// The edges, by buffer, then by generation.
    edges: Vec<Vec<Edge>>,
    /// The generations that each task reads.
    reads: Vec<Vec<Generation>>,
    /// The generations that each task writes.
    writes: Vec<Vec<Generation>>,
    /// The number of tasks that signal each counter.
    signals: Vec<u32>,
}

/// A generation of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Generation {
    buffer: BufferId,
    generation: u32,
}

impl Edges {
    /// Finds the edges of a program whose waits let every task run.
    pub fn of(program: &Program) -> Edges {
        let mut buffers: Vec<BufferWalk> =
            program.buffers.iter().map(|buffer| BufferWalk::new(buffer.elements().unwrap_or(usize::MAX))).collect();
        let none = vec![Vec::new(); program.tasks.len()];
        let mut edges = Edges { reads: none.clone(), writes: none, ..Edges::default() };
        for id in execution_order(program) {
            let task = &program.tasks[id.index()];
            for region in &task.reads {
                let generation = buffers[region.buffer.index()].read(id);
                note(&mut edges.reads[id.index()], Generation { buffer: region.buffer, generation });
            }
            for region in &task.writes {
                let generation = buffers[region.buffer.index()].write(id, region);
                note(&mut edges.writes[id.index()], Generation { buffer: region.buffer, generation });
            }
        }
        edges.signals = vec![0; program.counters.len()];
        for counter in program.tasks.iter().flat_map(|task| &task.signals) {
            edges.signals[counter.index()] += 1;
        }
        edges.edges = buffers.into_iter().map(BufferWalk::end).collect();
        edges
    }

    /// The edges of a buffer by generation; the first is what a step finds.
    pub fn of_buffer(&self, buffer: BufferId) -> &[Edge] {
        self.edges.get(buffer.index()).map_or(&[], Vec::as_slice)
    }

    /// Whether every generation of a buffer is written whole before it is read, and nothing reads
    /// what an earlier step left.
    pub fn is_whole(&self, buffer: BufferId) -> bool {
        match self.of_buffer(buffer) {
            [found, written @ ..] => {
                found.consumers.is_empty() && !written.is_empty() && written.iter().all(|edge| edge.is_whole)
            }
            [] => false,
        }
    }

    /// Generations of a buffer that a step writes.
    pub fn period(&self, buffer: BufferId) -> u32 {
        self.of_buffer(buffer).last().map_or(0, |edge| edge.generation)
    }

    /// The generation of a buffer that a task reads; 0 if it reads none.
    pub fn read(&self, task: TaskId, buffer: BufferId) -> u32 {
        generation(&self.reads, task, buffer)
    }

    /// The generation of a buffer that a task writes; 0 if it writes none.
    pub fn written(&self, task: TaskId, buffer: BufferId) -> u32 {
        generation(&self.writes, task, buffer)
    }

    /// The wait of a task after which what it reads of a buffer is there: every task that writes some
    /// of it signals that counter, and all of the counter's signals are waited for. `None` where no
    /// single wait says so.
    pub fn wait_for(&self, program: &Program, reader: TaskId, buffer: BufferId) -> Option<usize> {
        let generation = self.read(reader, buffer);
        let edge = self.of_buffer(buffer).iter().find(|edge| edge.generation == generation)?;
        let reader = &program.tasks[reader.index()];
        reader.waits.iter().position(|wait| {
            let all = self.signals.get(wait.counter.index());
            let signals = |writer: &TaskId| program.tasks[writer.index()].signals.contains(&wait.counter);
            all.is_some_and(|&all| wait.threshold >= all) && edge.producers.iter().all(signals)
        })
    }

    /// Whether what a task reads of a buffer does not change before the task ends: every task that
    /// writes some of it waits for all signals of a counter that the reader signals. A task that
    /// writes what it reads does not.
    pub fn is_immutable(&self, program: &Program, reader: TaskId, buffer: BufferId) -> bool {
        let reader = &program.tasks[reader.index()];
        let waits = |writer: &TaskId| {
            let writer = &program.tasks[writer.index()];
            let of_buffer = || reader.reads.iter().filter(|read| read.buffer == buffer);
            let overlaps = writer.writes.iter().any(|write| of_buffer().any(|read| read.overlaps(write)));
            let waits_for_reader = writer.waits.iter().any(|wait| {
                let all = self.signals.get(wait.counter.index());
                reader.signals.contains(&wait.counter) && all.is_some_and(|&all| wait.threshold >= all)
            });
            !overlaps || waits_for_reader
        };
        self.of_buffer(buffer).iter().flat_map(|edge| &edge.producers).all(waits)
    }
}

/// Adds a generation to those of a task.
fn note(known: &mut Vec<Generation>, new: Generation) {
    if !known.contains(&new) {
        known.push(new);
    }
}

fn generation(of: &[Vec<Generation>], task: TaskId, buffer: BufferId) -> u32 {
    let of_task = of.get(task.index()).map_or(&[][..], Vec::as_slice);
    of_task.iter().rfind(|known| known.buffer == buffer).map_or(0, |known| known.generation)
}

/// A buffer during the walk.
struct BufferWalk {
    edges: Vec<Edge>,
    elements: usize,
    /// Elements of the last generation that are written.
    written: usize,
    /// The regions that they are.
    tiling: Vec<Region>,
    /// Regions of earlier generations that do not overlap.
    tilings: HashSet<Vec<Region>>,
}

impl BufferWalk {
    fn new(elements: usize) -> BufferWalk {
        let edges = vec![Edge::default()];
        BufferWalk { edges, elements, written: elements, tiling: Vec::new(), tilings: HashSet::new() }
    }

    fn is_complete(&self) -> bool {
        self.written >= self.elements
    }

    fn last(&mut self) -> &mut Edge {
        self.edges.last_mut().expect("the generation that a step finds comes first")
    }

    /// A read; of which generation.
    fn read(&mut self, task: TaskId) -> u32 {
        let is_complete = self.is_complete();
        let edge = self.last();
        edge.is_whole &= is_complete;
        if edge.consumers.last() != Some(&task) {
            edge.consumers.push(task);
        }
        edge.generation
    }

    /// A write; of which generation.
    fn write(&mut self, task: TaskId, region: &Region) -> u32 {
        if self.is_complete() {
            let generation = self.last().generation + 1;
            self.edges.push(Edge { generation, is_whole: true, ..Edge::default() });
            self.written = 0;
            self.tiling.clear();
        }
        self.written = self.written.saturating_add(region.elements());
        self.tiling.push(*region);
        let is_exact = !self.is_complete() || (self.written == self.elements && self.is_disjoint());
        let edge = self.last();
        edge.is_whole &= is_exact;
        if edge.producers.last() != Some(&task) {
            edge.producers.push(task);
        }
        edge.generation
    }

    /// Whether no element of a complete generation is written twice. Layers repeat their tilings,
    /// each of which is compared once.
    fn is_disjoint(&mut self) -> bool {
        self.tiling.sort_unstable();
        let apart = |(at, region): (usize, &Region)| !self.tiling[..at].iter().any(|other| other.overlaps(region));
        let known = self.tilings.contains(&self.tiling) || self.tiling.iter().enumerate().all(apart);
        known && (self.tilings.contains(&self.tiling) || self.tilings.insert(self.tiling.clone()))
    }

    /// The edges, the last of which may not be complete.
    fn end(mut self) -> Vec<Edge> {
        let is_complete = self.is_complete();
        self.last().is_whole &= is_complete;
        self.edges
    }
}
