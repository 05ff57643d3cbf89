//! Mutations: edits of a program that look plausible. Most break something; some do not, and the
//! oracle says which.

use tilewright_megakernel::ops::{Argmax, Copy, Linear, Sample};
use tilewright_megakernel::program::{
    BufferId, BufferKind, CounterId, Footprint, Op, Operands, Program, Region, SmId, Span, TaskId, Wait,
};
use tilewright_megakernel::testing::draw::overlay;
use tilewright_megakernel::testing::{Add, RmsNorm, Rng, SiluMul};

/// A mutation; `None` if the program offers no place for it.
pub type Mutation = fn(&mut Program, &mut Rng) -> Option<()>;

/// Every class of mutants.
pub const CLASSES: [(&str, Mutation); 30] = [
    ("drop_wait", drop_wait),
    ("lower_threshold", lower_threshold),
    ("raise_threshold", raise_threshold),
    ("zero_threshold", zero_threshold),
    ("swap_queue_order", swap_queue_order),
    ("move_to_queue", move_to_queue),
    ("forget_in_queue", forget_in_queue),
    ("unplace", unplace),
    ("pin_elsewhere", pin_elsewhere),
    ("lose_an_sm", lose_an_sm),
    ("shrink_region", |p, r| reshape(p, r, Change::Shrink)),
    ("grow_region", |p, r| reshape(p, r, Change::Grow)),
    ("shift_region", |p, r| reshape(p, r, Change::Shift)),
    ("declare_wrongly", declare_wrongly),
    ("alias_in_arena", |p, r| overlay(p, r).then_some(())),
    ("misalign_arena", misalign_arena),
    ("retime_signal", retime_signal),
    ("drop_signal", drop_signal),
    ("write_read_only", write_read_only),
    ("read_elsewhere", read_elsewhere),
    ("write_elsewhere", write_elsewhere),
    ("gap_in_output", gap_in_output),
    ("duplicate_task", duplicate_task),
    ("drop_task", drop_task),
    ("self_wait", self_wait),
    ("cross_wait", cross_wait),
    ("counter_init", counter_init),
    ("wrong_id", wrong_id),
    ("merge_counters", merge_counters),
    ("swap_ops", swap_ops),
];

/// A random place that is good.
pub fn any(rng: &mut Rng, count: usize, good: impl Fn(usize) -> bool) -> Option<usize> {
    rng.pick(&(0..count).filter(|&at| good(at)).collect::<Vec<_>>()).copied()
}

/// A random wait: task and place.
fn a_wait(p: &Program, rng: &mut Rng, good: impl Fn(&Wait) -> bool) -> Option<(usize, usize)> {
    let all: Vec<(usize, usize)> = p
        .tasks
        .iter()
        .enumerate()
        .flat_map(|(t, task)| {
            let good = &good;
            task.waits.iter().enumerate().filter(move |(_, wait)| good(wait)).map(move |(at, _)| (t, at))
        })
        .collect();
    rng.pick(&all).copied()
}

fn a_signal(p: &Program, rng: &mut Rng) -> Option<(usize, usize)> {
    let all: Vec<(usize, usize)> =
        p.tasks.iter().enumerate().flat_map(|(t, task)| (0..task.signals.len()).map(move |at| (t, at))).collect();
    rng.pick(&all).copied()
}

fn drop_wait(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let (task, at) = a_wait(p, rng, |_| true)?;
    p.tasks[task].waits.remove(at);
    Some(())
}

fn lower_threshold(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let (task, at) = a_wait(p, rng, |wait| wait.threshold > 1)?;
    let wait = &mut p.tasks[task].waits[at];
    wait.threshold = rng.within(1, wait.threshold as usize - 1) as u32;
    Some(())
}

fn raise_threshold(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let (task, at) = a_wait(p, rng, |_| true)?;
    p.tasks[task].waits[at].threshold += rng.within(1, 2) as u32;
    Some(())
}

fn zero_threshold(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let (task, at) = a_wait(p, rng, |_| true)?;
    p.tasks[task].waits[at].threshold = 0;
    Some(())
}

fn swap_queue_order(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let queues = p.queues.as_mut()?;
    let sm = any(rng, queues.len(), |sm| queues[sm].len() > 1)?;
    let at = rng.below(queues[sm].len() - 1);
    queues[sm].swap(at, at + 1);
    Some(())
}

fn move_to_queue(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let queues = p.queues.as_mut()?;
    let from = any(rng, queues.len(), |sm| !queues[sm].is_empty())?;
    let at = rng.below(queues[from].len());
    let task = queues[from].remove(at);
    let to = rng.below(queues.len());
    let at = rng.below(queues[to].len() + 1);
    queues[to].insert(at, task);
    p.tasks.get_mut(task.index())?.sm = None;
    Some(())
}

fn forget_in_queue(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let queues = p.queues.as_mut()?;
    let from = any(rng, queues.len(), |sm| !queues[sm].is_empty())?;
    let at = rng.below(queues[from].len());
    let task = queues[from].remove(at);
    match rng.below(3) {
        0 => {}
        1 => queues[from].push(TaskId(99)),
        _ => queues[from].extend([task, task]),
    }
    Some(())
}

fn unplace(p: &mut Program, _: &mut Rng) -> Option<()> {
    p.queues.take().map(drop)
}

fn pin_elsewhere(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let at = rng.below(p.tasks.len());
    p.tasks[at].sm = Some(SmId::from(rng.below(p.target.sms + 1)));
    Some(())
}

fn lose_an_sm(p: &mut Program, rng: &mut Rng) -> Option<()> {
    p.target.sms = rng.below(p.target.sms);
    Some(())
}

/// Changes the tile of a random task, in its op and in what it declares.
fn reshape(p: &mut Program, rng: &mut Rng, change: Change) -> Option<()> {
    let at = rng.below(p.tasks.len());
    let extents = |region: &Region| p.buffers[region.buffer.index()].shape.clone();
    let dim = rng.below(2);
    let mut op = p.tasks[at].op.clone();
    let alone = rng.chance(50);
    if let Some(copy) = op.get_mut::<Copy>() {
        boxes(&mut [&mut copy.src, &mut copy.dst], dim, alone, rng, change, extents)?;
    } else if let Some(add) = op.get_mut::<Add>() {
        boxes(&mut [&mut add.a, &mut add.b, &mut add.out], dim, alone, rng, change, extents)?;
    } else if let Some(silu) = op.get_mut::<SiluMul>() {
        boxes(&mut [&mut silu.gate, &mut silu.up, &mut silu.out], dim, alone, rng, change, extents)?;
    } else if let Some(norm) = op.get_mut::<RmsNorm>() {
        change.apply(&mut norm.rows, p.buffers[norm.x.index()].shape[0], rng)?;
    } else if let Some(linear) = op.get_mut::<Linear>() {
        let [n, _] = p.buffers[linear.weight.index()].shape[..] else { return None };
        change.apply(&mut linear.cols, n, rng)?;
    } else if let Some(argmax) = op.get_mut::<Argmax>() {
        change.apply(&mut argmax.rows, p.buffers[argmax.out.index()].shape[0], rng)?;
    } else if let Some(sample) = op.get_mut::<Sample>() {
        change.apply(&mut sample.rows, p.buffers[sample.out.index()].shape[0], rng)?;
    } else {
        return None;
    }
    replace(p, at, op)
}

/// Changes all boxes alike, so that their extents still agree; a shift may be of one box alone.
fn boxes(
    regions: &mut [&mut Region],
    dim: usize,
    alone: bool,
    rng: &mut Rng,
    change: Change,
    extents: impl Fn(&Region) -> Vec<usize>,
) -> Option<()> {
    let one = rng.below(regions.len());
    let mut drawn = rng.clone();
    for (at, region) in regions.iter_mut().enumerate() {
        if change == Change::Shift && alone && at != one {
            continue;
        }
        let mut same = rng.clone();
        let mut spans = region.spans().to_vec();
        let extent = extents(region)[dim];
        change.apply(spans.get_mut(dim)?, extent, &mut same)?;
        **region = Region::new(region.buffer, &spans);
        drawn = same;
    }
    *rng = drawn;
    Some(())
}

/// A change of one interval of a tile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Shrink,
    Grow,
    Shift,
}

impl Change {
    /// Changes a span; now and then beyond the extent.
    fn apply(self, span: &mut Span, extent: usize, rng: &mut Rng) -> Option<()> {
        let first = rng.chance(50);
        let beyond = rng.chance(5);
        let can_rise = span.hi < extent || beyond;
        let Span { lo, hi } = *span;
        *span = match self {
            Change::Shrink if span.len() < 2 => return None,
            Change::Shrink if first => Span::new(lo + 1, hi),
            Change::Shrink => Span::new(lo, hi - 1),
            Change::Grow if lo > 0 && first => Span::new(lo - 1, hi),
            Change::Grow if can_rise => Span::new(lo, hi + 1),
            Change::Shift if lo > 0 && first => Span::new(lo - 1, hi - 1),
            Change::Shift if can_rise => Span::new(lo + 1, hi + 1),
            Change::Grow | Change::Shift => return None,
        };
        Some(())
    }
}

/// Gives a task another op, and declares its footprint.
pub fn replace(p: &mut Program, at: usize, op: Op) -> Option<()> {
    if let Ok(Footprint { reads, writes, .. }) = op.footprint(&Operands::new(&p.buffers)) {
        (p.tasks[at].reads, p.tasks[at].writes) = (reads, writes);
    }
    p.tasks[at].op = op;
    Some(())
}

fn declare_wrongly(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let at = rng.below(p.tasks.len());
    let task = &mut p.tasks[at];
    let list = if rng.chance(50) { &mut task.reads } else { &mut task.writes };
    let at = any(rng, list.len(), |_| true)?;
    if rng.chance(30) {
        list.remove(at);
        return Some(());
    }
    let mut spans = list[at].spans().to_vec();
    let dim = rng.below(spans.len());
    Change::Shrink.apply(&mut spans[dim], 0, rng)?;
    list[at] = Region::new(list[at].buffer, &spans);
    Some(())
}

/// Off by a byte; or a pool in the arena.
fn misalign_arena(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let at = any(rng, p.buffers.len(), |b| p.buffers[b].arena.is_some() || p.buffers[b].kind == BufferKind::KvPool)?;
    p.buffers[at].arena = Some(p.buffers[at].arena.unwrap_or(0) + 1);
    Some(())
}

fn retime_signal(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let (from, at) = a_signal(p, rng)?;
    let counter = p.tasks[from].signals.remove(at);
    let to = any(rng, p.tasks.len(), |t| t != from && !p.tasks[t].signals.contains(&counter))?;
    p.tasks[to].signals.push(counter);
    Some(())
}

fn drop_signal(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let (task, at) = a_signal(p, rng)?;
    let counter = p.tasks[task].signals.remove(at);
    // Often with the thresholds lowered to match, so that nothing hangs.
    if rng.chance(60) {
        let waits = p.tasks.iter_mut().flat_map(|t| &mut t.waits);
        waits.filter(|w| w.counter == counter && w.threshold > 1).for_each(|w| w.threshold -= 1);
    }
    Some(())
}

fn destination(op: &mut Op) -> Option<&mut Region> {
    if op.is::<Copy>() {
        return op.get_mut::<Copy>().map(|copy| &mut copy.dst);
    }
    if op.is::<Add>() {
        return op.get_mut::<Add>().map(|add| &mut add.out);
    }
    op.get_mut::<SiluMul>().map(|silu| &mut silu.out)
}

fn retarget(
    p: &mut Program,
    rng: &mut Rng,
    operand: fn(&mut Op) -> Option<&mut Region>,
    good: impl Fn(BufferKind) -> bool,
) -> Option<()> {
    let at = any(rng, p.tasks.len(), |t| operand(&mut p.tasks[t].op.clone()).is_some())?;
    let mut op = p.tasks[at].op.clone();
    let region = operand(&mut op)?;
    let rank = region.spans().len();
    let old = region.buffer.index();
    let to = any(rng, p.buffers.len(), |b| {
        let buffer = &p.buffers[b];
        b != old && good(buffer.kind) && buffer.shape.len() == rank && region.spans()[1].hi <= buffer.shape[1]
    })?;
    *region = Region::new(BufferId::from(to), region.spans());
    replace(p, at, op)
}

fn write_read_only(p: &mut Program, rng: &mut Rng) -> Option<()> {
    retarget(p, rng, destination, |kind| !kind.is_writable())
}

fn write_elsewhere(p: &mut Program, rng: &mut Rng) -> Option<()> {
    retarget(p, rng, destination, BufferKind::is_writable)
}

fn read_elsewhere(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let at = any(rng, p.tasks.len(), |t| p.tasks[t].op.is::<Copy>())?;
    let mut copy = p.tasks[at].op.get::<Copy>().cloned()?;
    let to = any(rng, p.buffers.len(), |b| {
        p.buffers[b].shape.len() == 2 && copy.src.spans()[1].hi <= p.buffers[b].shape[1]
    })?;
    copy.src = Region::new(BufferId::from(to), copy.src.spans());
    replace(p, at, Op::from(copy))
}

fn gap_in_output(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let output = |r: &Region| p.buffers[r.buffer.index()].kind == BufferKind::Output;
    let at = any(rng, p.tasks.len(), |t| p.tasks[t].writes.iter().any(output))?;
    let mut copy = p.tasks[at].op.get::<Copy>().cloned()?;
    for region in [&mut copy.src, &mut copy.dst] {
        let mut spans = region.spans().to_vec();
        let dim = if spans[1].len() > 1 { 1 } else { 0 };
        if spans[dim].len() < 2 {
            return None;
        }
        spans[dim].hi -= 1;
        *region = Region::new(region.buffer, &spans);
    }
    replace(p, at, Op::from(copy))
}

fn duplicate_task(p: &mut Program, rng: &mut Rng) -> Option<()> {
    if p.tasks.len() > 7 {
        return None;
    }
    let at = rng.below(p.tasks.len());
    let mut twin = p.tasks[at].clone();
    twin.id = TaskId::from(p.tasks.len());
    let silent = rng.chance(50);
    if silent {
        twin.signals.clear();
    } else if rng.chance(50) {
        let waits = p.tasks.iter_mut().flat_map(|t| &mut t.waits).chain(&mut twin.waits);
        waits.filter(|w| twin.signals.contains(&w.counter)).for_each(|w| w.threshold += 1);
    }
    if let Some(queues) = &mut p.queues {
        let sm = twin.sm.map_or_else(|| rng.below(queues.len()), SmId::index);
        let queue = queues.get_mut(sm)?;
        queue.insert(rng.below(queue.len() + 1), twin.id);
    }
    p.tasks.push(twin);
    Some(())
}

fn drop_task(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let at = rng.below(p.tasks.len());
    let gone = p.tasks.remove(at);
    for (at, task) in p.tasks.iter_mut().enumerate() {
        task.id = TaskId::from(at);
    }
    for queue in p.queues.iter_mut().flatten() {
        queue.retain(|t| *t != gone.id);
        queue.iter_mut().filter(|t| **t > gone.id).for_each(|t| t.0 -= 1);
    }
    if rng.chance(70) {
        for counter in gone.signals {
            let waits = p.tasks.iter_mut().flat_map(|t| &mut t.waits);
            waits.filter(|w| w.counter == counter && w.threshold > 1).for_each(|w| w.threshold -= 1);
        }
    }
    Some(())
}

fn self_wait(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let (task, at) = a_signal(p, rng)?;
    let counter = p.tasks[task].signals[at];
    if p.tasks[task].waits.iter().any(|wait| wait.counter == counter) {
        return None;
    }
    let threshold = rng.within(1, 2) as u32;
    p.tasks[task].waits.push(Wait { counter, threshold });
    Some(())
}

fn cross_wait(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let from = rng.below(p.tasks.len());
    let to = rng.below(p.tasks.len());
    let counter = if rng.chance(70) || p.counters.is_empty() {
        let counter = p.add_counter("extra");
        p.tasks[from].signals.push(counter);
        counter
    } else {
        CounterId::from(rng.below(p.counters.len()))
    };
    if p.tasks[to].waits.iter().any(|wait| wait.counter == counter) {
        return None;
    }
    p.tasks[to].waits.push(Wait { counter, threshold: 1 });
    Some(())
}

fn counter_init(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let at = any(rng, p.counters.len(), |_| true)?;
    p.counters[at].init = 1;
    Some(())
}

fn wrong_id(p: &mut Program, rng: &mut Rng) -> Option<()> {
    match rng.below(6) {
        0 => p.tasks.last_mut()?.id.0 += 4,
        1 => p.buffers.last_mut()?.id.0 += 4,
        2 => p.counters.last_mut()?.id.0 += 4,
        3 => p.tasks.first_mut()?.signals.push(CounterId(99)),
        4 => p.tasks.first_mut()?.waits.push(Wait { counter: CounterId(99), threshold: 1 }),
        _ => p.tasks.first_mut()?.reads.push(Region::new(BufferId(99), &[Span::all(1)])),
    }
    Some(())
}

fn merge_counters(p: &mut Program, rng: &mut Rng) -> Option<()> {
    if p.counters.len() < 2 {
        return None;
    }
    let kept = rng.below(p.counters.len());
    let gone = rng.below(p.counters.len());
    let kept = CounterId::from(kept);
    let gone = CounterId::from(gone);
    let join = rng.chance(50);
    for task in &mut p.tasks {
        task.signals.iter_mut().filter(|c| **c == gone).for_each(|c| *c = kept);
        task.signals.dedup();
        task.waits.iter_mut().filter(|w| w.counter == gone).for_each(|w| w.counter = kept);
        task.waits.dedup_by_key(|w| w.counter);
    }
    let producers = p.tasks.iter().filter(|t| t.signals.contains(&kept)).count() as u32;
    if join {
        let waits = p.tasks.iter_mut().flat_map(|t| &mut t.waits);
        waits.filter(|w| w.counter == kept).for_each(|w| w.threshold = producers);
    }
    (kept != gone).then_some(())
}

fn swap_ops(p: &mut Program, rng: &mut Rng) -> Option<()> {
    let a = rng.below(p.tasks.len());
    let b = rng.below(p.tasks.len());
    let op_a = p.tasks[a].op.clone();
    let op_b = p.tasks[b].op.clone();
    replace(p, a, op_b)?;
    replace(p, b, op_a)?;
    (a != b).then_some(())
}
