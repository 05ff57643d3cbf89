//! The exact judge of small programs: explores every interleaving of task starts and ends, and
//! follows each byte to the task and buffer that wrote it. It shares the vocabulary with the
//! validator (ops, footprints) and none of its theory: no happens-before, no graph, no order of
//! simulation.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::ops::Reduce;
use crate::ops::{Copy, Linear, LinearOutput};
use crate::program::{
    BufferId, BufferKind, Footprint, MAX_SIGNALS, MAX_WAITS, Operands, Program, Region, Source, Task,
};

use super::plain_ops::{Add, SiluMul};

/// Why a program is unsafe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unsafe {
    /// Not a program: the part that is wrong, or more than [`MOST_TASKS`] tasks.
    Malformed(&'static str),
    /// A state in which no task can start and some have not ended.
    Deadlock,
    /// A task starts while another one that touches the same bytes runs, and one of them writes.
    Race,
    /// A read finds bytes that no task wrote, or that were written through another buffer.
    Undefined,
    /// A read finds another producer in another interleaving.
    Varying,
    /// An output byte is not written, or its last writer varies.
    Output,
}

/// Byte addresses: arena bytes are shared, every other buffer has its own.
pub type Byte = (usize, u64);
const ARENA: usize = usize::MAX;

/// The most tasks of a program that is explored.
pub const MOST_TASKS: usize = 16;

/// The bytes of a region.
pub fn bytes(program: &Program, region: &Region) -> BTreeSet<Byte> {
    let buffer = &program.buffers[region.buffer.index()];
    let (space, base) = buffer.arena.map_or((region.buffer.index(), 0), |offset| (ARENA, offset));
    let mut elements = vec![0u64];
    for (span, &extent) in region.spans().iter().zip(&buffer.shape) {
        elements = elements.iter().flat_map(|e| span.iter().map(move |i| e * extent as u64 + i as u64)).collect();
    }
    let size = buffer.dtype.bytes() as u64;
    elements.iter().flat_map(|e| (0..size).map(move |b| (space, base + e * size + b))).collect()
}

/// The verdict, from every interleaving; its time grows exponentially with the tasks.
///
/// # Errors
/// The first way in which the program is unsafe.
pub fn judge(program: &Program) -> Result<(), Unsafe> {
    if program.tasks.len() > MOST_TASKS {
        return Err(Unsafe::Malformed("tasks"));
    }
    malformed(program).map_or(Ok(()), |what| Err(Unsafe::Malformed(what)))?;
    Explorer::new(program).explore()
}

fn malformed(p: &Program) -> Option<&'static str> {
    let dense = p.buffers.iter().enumerate().all(|(i, b)| b.id.index() == i)
        && p.counters.iter().enumerate().all(|(i, c)| c.id.index() == i)
        && p.tasks.iter().enumerate().all(|(i, t)| t.id.index() == i);
    let names: HashSet<&str> = p.buffers.iter().map(|b| b.name.as_str()).collect();
    let tables = names.len() == p.buffers.len() && p.counters.iter().all(|c| c.init == 0);
    let shapes = p.buffers.iter().all(|b| (1..=4).contains(&b.shape.len()) && !b.shape.contains(&0));
    let sources = p.buffers.iter().all(|b| match &b.source {
        None => b.kind != BufferKind::Weight,
        Some(
            Source::Tensor(_) | Source::Part { .. } | Source::Experts { .. } | Source::Heads { .. } | Source::Random(_),
        ) => b.kind == BufferKind::Weight,
        Some(Source::Values(v)) => b.kind == BufferKind::Weight && Some(v.len()) == b.elements(),
    });
    let arena = p.buffers.iter().all(|b| {
        b.arena.is_none_or(|o| b.kind == BufferKind::Activation && o % b.dtype.bytes() as u64 == 0 && o < 1 << 40)
    });
    let checks = [(dense, "ids"), (tables, "tables"), (shapes, "shapes"), (sources, "sources"), (arena, "arena")];
    let table = checks.into_iter().find(|(ok, _)| !ok).map(|(_, what)| what);
    table
        .or_else(|| devices(p))
        .or_else(|| placement(p))
        .or_else(|| (0..p.tasks.len()).find_map(|t| sync(p, t).or_else(|| footprint(p, t))))
}

/// Checks the devices of buffers and tasks: a task that writes to another device must use an op
/// that sends.
fn devices(p: &Program) -> Option<&'static str> {
    let several = p.devices > 1;
    let exists = |device: usize| device < p.devices;
    let buffers = p.buffers.iter().all(|b| {
        let somewhere = b.device.map_or(!(several && b.kind.is_writable()), |device| exists(device.index()));
        somewhere && !(several && b.arena.is_some())
    });
    let here = |task: &Task, buffer: BufferId| {
        let lies = p.buffers.get(buffer.index()).and_then(|b| b.device);
        lies.is_none_or(|device| device == task.device)
    };
    let reaches = |task: &Task| {
        // Where there is no footprint something else is wrong.
        let sent = task.op.footprint(&Operands::new(&p.buffers)).map(|footprint| footprint.sent).unwrap_or_default();
        task.reads.iter().all(|read| here(task, read.buffer))
            && task.writes.iter().all(|write| here(task, write.buffer) || sent.contains(&write.buffer))
    };
    let tasks = p.tasks.iter().all(|task| exists(task.device.index()) && reaches(task));
    let queued = p.queues.iter().flatten().enumerate().all(|(sm, queue)| {
        let tasks = queue.iter().filter_map(|id| p.tasks.get(id.index()));
        // With one device all queues are its own, whether there are as many as SMs or not.
        !several || tasks.into_iter().all(|task| task.device.index() == sm / p.target.sms.max(1))
    });
    (!((1..=64).contains(&p.devices) && buffers && tasks && queued)).then_some("devices")
}

fn placement(p: &Program) -> Option<&'static str> {
    let sms = p.all_sms();
    if sms == 0 || p.tasks.iter().any(|t| t.sm.is_some_and(|sm| sm.index() >= sms)) {
        return Some("pins");
    }
    let queues = p.queues.as_ref()?;
    let mut all: Vec<usize> = queues.iter().flatten().map(|t| t.index()).collect();
    all.sort_unstable();
    let once = all.into_iter().eq(0..p.tasks.len());
    let pinned = once
        && queues
            .iter()
            .enumerate()
            .all(|(sm, queue)| queue.iter().all(|t| p.tasks[t.index()].sm.is_none_or(|pin| pin.index() == sm)));
    (!once || !pinned || queues.len() != sms).then_some("queues")
}

fn sync(p: &Program, task: usize) -> Option<&'static str> {
    let task = &p.tasks[task];
    let waited: HashSet<_> = task.waits.iter().map(|w| w.counter).collect();
    let signalled: HashSet<_> = task.signals.iter().collect();
    let producers = |c| p.tasks.iter().filter(|t| t.signals.contains(&c)).count() as u32;
    let exist = waited.iter().chain(signalled.iter().copied()).all(|c| c.index() < p.counters.len());
    let counts = task.waits.len() <= MAX_WAITS && task.signals.len() <= MAX_SIGNALS;
    let distinct = waited.len() == task.waits.len() && signalled.len() == task.signals.len();
    // A threshold that is out of reach is a deadlock, which the exploration finds by itself.
    let positive = task.waits.iter().all(|w| w.threshold >= 1 && producers(w.counter) >= 1);
    (!(exist && counts && distinct && positive)).then_some("sync")
}

/// The first defect of the regions that a task declares, if there is one.
pub fn footprint(p: &Program, task: usize) -> Option<&'static str> {
    let task = &p.tasks[task];
    let Ok(computed) = task.op.footprint(&Operands::new(&p.buffers)) else { return Some("operands") };
    let declared = Footprint::new(task.reads.clone(), task.writes.clone());
    if declared.canonical() != Footprint::new(computed.reads.clone(), computed.writes.clone()).canonical() {
        return Some("declaration");
    }
    if computed.writes.iter().any(|w| !p.buffers[w.buffer.index()].kind.is_writable()) {
        return Some("read-only");
    }
    let mut written = BTreeMap::new();
    for write in &computed.writes {
        for byte in bytes(p, write) {
            if written.insert(byte, *write).is_some() {
                return Some("own writes");
            }
        }
    }
    let residual = task.op.get::<Linear>().and_then(|linear| match linear.output {
        LinearOutput::Add { residual, out } if residual == out => Some(out),
        LinearOutput::Add { .. }
        | LinearOutput::Store { .. }
        | LinearOutput::Heads { .. }
        | LinearOutput::Gated { .. }
        | LinearOutput::Logits { .. } => None,
    });
    let summed = task.op.get::<Reduce>().and_then(|sum| sum.residual.filter(|&residual| residual == sum.out));
    let residual = residual.or(summed);
    let elementwise = task.op.is::<Copy>() || task.op.is::<Add>() || task.op.is::<SiluMul>();
    for (at, read) in computed.reads.iter().enumerate() {
        let met: HashSet<Region> = bytes(p, read).iter().filter_map(|b| written.get(b).copied()).collect();
        // The residual is the last operand that is read (see the op's footprint).
        let update = elementwise || residual == Some(read.buffer) && at + 1 == computed.reads.len();
        if met.iter().any(|write| write != read || !update) {
            return Some("own reads");
        }
    }
    None
}

/// Bytes that are touched in the same way by all tasks behave alike; one of each kind is followed.
struct AlikeBytes {
    /// Defined before the first task.
    defined: bool,
    /// Must be written in the end, through this buffer.
    output: Option<usize>,
    /// For each task, the buffers through which it reads, and through which it writes.
    reads: Vec<Vec<usize>>,
    writes: Vec<Option<usize>>,
}

struct Explorer<'p> {
    program: &'p Program,
    cells: Vec<AlikeBytes>,
    predecessor: Vec<Option<usize>>,
    /// The producer that each read of a cell finds, by (task, cell).
    seen: HashMap<(usize, usize), LastWriter>,
    last: HashMap<usize, LastWriter>,
}

/// Task and buffer, or none.
type LastWriter = Option<(u8, u8)>;

#[derive(Clone, PartialEq, Eq, Hash)]
struct OracleState {
    started: u16,
    done: u16,
    producers: Vec<LastWriter>,
}

impl<'p> Explorer<'p> {
    fn new(program: &'p Program) -> Explorer<'p> {
        type Touch = (Option<usize>, bool, Vec<Vec<usize>>, Vec<Option<usize>>);
        let n = program.tasks.len();
        let mut touched: BTreeMap<Byte, Touch> = BTreeMap::new();
        let fresh = |output, defined| (output, defined, vec![Vec::new(); n], vec![None; n]);
        for (index, buffer) in program.buffers.iter().enumerate().filter(|(_, b)| b.kind == BufferKind::Output) {
            for byte in bytes(program, &Region::whole(buffer.id, &buffer.shape)) {
                touched.insert(byte, fresh(Some(index), false));
            }
        }
        for (at, task) in program.tasks.iter().enumerate() {
            for (region, write) in task.reads.iter().map(|r| (r, false)).chain(task.writes.iter().map(|r| (r, true))) {
                let defined = program.buffers[region.buffer.index()].kind.is_defined_at_start();
                for byte in bytes(program, region) {
                    let entry = touched.entry(byte).or_insert_with(|| fresh(None, defined));
                    if write {
                        entry.3[at] = Some(region.buffer.index());
                    } else if !entry.2[at].contains(&region.buffer.index()) {
                        entry.2[at].push(region.buffer.index());
                    }
                }
            }
        }
        let kinds: BTreeSet<Touch> = touched.into_values().collect();
        let cells =
            kinds.into_iter().map(|(output, defined, reads, writes)| AlikeBytes { defined, output, reads, writes });
        let mut predecessor = vec![None; n];
        for pair in program.queues.iter().flatten().flat_map(|queue| queue.windows(2)) {
            predecessor[pair[1].index()] = Some(pair[0].index());
        }
        Explorer { program, cells: cells.collect(), predecessor, seen: HashMap::new(), last: HashMap::new() }
    }

    fn explore(mut self) -> Result<(), Unsafe> {
        let n = self.program.tasks.len();
        let first = OracleState { started: 0, done: 0, producers: vec![None; self.cells.len()] };
        let mut visited = HashSet::from([first.clone()]);
        let mut open = vec![first];
        while let Some(state) = open.pop() {
            let mut stuck = true;
            for task in 0..n {
                let next = if state.started >> task & 1 == 0 {
                    if !self.can_start(&state, task) {
                        continue;
                    }
                    self.start(&state, task)?
                } else if state.done >> task & 1 == 0 {
                    OracleState { done: state.done | 1 << task, ..state.clone() }
                } else {
                    continue;
                };
                stuck = false;
                if visited.insert(next.clone()) {
                    open.push(next);
                }
            }
            if stuck {
                self.end(&state)?;
            }
        }
        Ok(())
    }

    fn can_start(&self, state: &OracleState, task: usize) -> bool {
        let done = |t: usize| state.done >> t & 1 == 1;
        let value =
            |c| self.program.tasks.iter().enumerate().filter(|(i, t)| done(*i) && t.signals.contains(&c)).count();
        self.predecessor[task].is_none_or(done)
            && self.program.tasks[task].waits.iter().all(|w| value(w.counter) as u64 >= u64::from(w.threshold))
    }

    fn start(&mut self, state: &OracleState, task: usize) -> Result<OracleState, Unsafe> {
        let running = state.started & !state.done;
        let mut next = state.clone();
        next.started |= 1 << task;
        for (at, cell) in self.cells.iter().enumerate() {
            let reads = !cell.reads[task].is_empty();
            let writes = cell.writes[task];
            let busy = (0..self.program.tasks.len()).filter(|&t| running >> t & 1 == 1).any(|t| {
                (writes.is_some() && !cell.reads[t].is_empty())
                    || ((reads || writes.is_some()) && cell.writes[t].is_some())
            });
            if busy {
                return Err(Unsafe::Race);
            }
            let found = state.producers[at];
            for &through in &cell.reads[task] {
                let good = found.map_or(cell.defined, |(_, buffer)| usize::from(buffer) == through);
                if !good {
                    return Err(Unsafe::Undefined);
                }
                if *self.seen.entry((task, at)).or_insert(found) != found {
                    return Err(Unsafe::Varying);
                }
            }
            if let Some(buffer) = writes {
                next.producers[at] = Some((task as u8, buffer as u8));
            }
        }
        Ok(next)
    }

    fn end(&mut self, state: &OracleState) -> Result<(), Unsafe> {
        if state.done.count_ones() as usize != self.program.tasks.len() {
            return Err(Unsafe::Deadlock);
        }
        for (at, _) in self.cells.iter().enumerate().filter(|(_, cell)| cell.output.is_some()) {
            let last = state.producers[at];
            if last.is_none() || *self.last.entry(at).or_insert(last) != last {
                return Err(Unsafe::Output);
            }
        }
        Ok(())
    }
}
