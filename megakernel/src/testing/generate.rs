//! Random programs: a computation, queues, and waits built from what its tasks touch.

use crate::program::{CounterId, MAX_SIGNALS, MAX_WAITS, Program, TaskId, Wait};
use tilewright_codegen::target::Target;

use super::clashes::Touched;
use super::rng::Rng;
use super::{draw, sharded};

/// A program that orders whatever has to be ordered, in one of several ways each.
pub fn valid(rng: &mut Rng) -> Program {
    loop {
        let mut program = draw::computation(rng, 0);
        if place(&mut program, rng) && synchronise(&mut program, rng, 0) {
            renumber(&mut program, rng);
            return program;
        }
    }
}

/// A valid program of two or three devices.
pub fn sharded(rng: &mut Rng) -> Program {
    loop {
        let mut program = sharded::computation(rng);
        if place(&mut program, rng) && synchronise(&mut program, rng, 0) {
            renumber(&mut program, rng);
            return program;
        }
    }
}

/// A program near the border: now and then a wait is missing, a read is careless, a buffer is moved
/// over another.
pub fn borderline(rng: &mut Rng) -> Program {
    loop {
        let careless = if rng.chance(20) { 25 } else { 0 };
        let mut program = draw::computation(rng, careless);
        let dropped = [0, 10, 25, 50][rng.below(4)];
        if place(&mut program, rng) && synchronise(&mut program, rng, dropped) {
            if rng.chance(35) {
                loosen(&mut program, rng);
            }
            renumber(&mut program, rng);
            return program;
        }
    }
}

/// Lowers or raises a random threshold.
fn loosen(program: &mut Program, rng: &mut Rng) {
    let at = rng.below(program.tasks.len());
    let wait = rng.below(MAX_WAITS);
    if let Some(wait) = program.tasks[at].waits.get_mut(wait) {
        wait.threshold = rng.within(1, wait.threshold as usize + 1) as u32;
    }
}

/// Puts the tasks in queues, in their order; or leaves them without.
fn place(program: &mut Program, rng: &mut Rng) -> bool {
    let devices = program.devices;
    let sms = rng.within(1, if devices == 1 { 4 } else { 2 });
    program.target = Target::host(sms);
    if rng.chance(70) {
        let mut queues = vec![Vec::new(); sms * devices];
        for task in &mut program.tasks {
            let sm = task.device.index() * sms + rng.below(sms);
            queues[sm].push(task.id);
            task.sm = rng.chance(20).then_some(sm.into());
        }
        program.queues = Some(queues);
    }
    true
}

struct Weaver<'a> {
    program: &'a mut Program,
    rng: &'a mut Rng,
    /// `before[a][b]`: a is ordered before b already.
    before: Vec<Vec<bool>>,
    /// Counters that all tasks of a queue signal, by queue.
    progress: Vec<Option<CounterId>>,
    /// Counters of one producer, by task.
    own: Vec<Option<CounterId>>,
    joins: Vec<(Vec<usize>, CounterId)>,
}

/// Adds waits for all clashes, less `dropped` percent of them. False if a task would need too many.
fn synchronise(program: &mut Program, rng: &mut Rng, dropped: usize) -> bool {
    let n = program.tasks.len();
    let touched = Touched::of(program);
    let queues = program.queues.clone().unwrap_or_default();
    let mut weaver = Weaver {
        before: vec![vec![false; n]; n],
        progress: vec![None; queues.len()],
        own: vec![None; n],
        joins: Vec::new(),
        program,
        rng,
    };
    for task in 0..n {
        if let Some(queue) = queues.iter().find(|queue| queue.contains(&TaskId::from(task)))
            && let Some(at) = queue.iter().position(|t| t.index() == task).filter(|at| *at > 0)
        {
            weaver.order(queue[at - 1].index(), task);
        }
        let mut needed: Vec<usize> = (0..task).filter(|&other| touched.clash(other, task)).collect();
        needed.retain(|_| !weaver.rng.chance(dropped));
        if weaver.rng.chance(80) {
            needed.retain(|&other| !weaver.before[other][task]);
        }
        if weaver.rng.chance(20) && task > 0 {
            needed.push(weaver.rng.below(task));
        }
        needed.sort_unstable();
        needed.dedup();
        weaver.wait(task, needed, &queues);
    }
    program.tasks.iter().all(|task| task.waits.len() <= MAX_WAITS && task.signals.len() <= MAX_SIGNALS)
}

impl Weaver<'_> {
    fn order(&mut self, first: usize, second: usize) {
        for other in 0..self.before.len() {
            if other == first || self.before[other][first] {
                self.before[other][second] = true;
            }
        }
    }

    fn wait(&mut self, task: usize, mut needed: Vec<usize>, queues: &[Vec<TaskId>]) {
        while let Some(&first) = needed.first() {
            let (counter, threshold, ordered) = match self.rng.below(3) {
                0 => (self.own(first), 1, vec![first]),
                1 if !queues.is_empty() => match self.progress(first, task, queues) {
                    Some(progress) => progress,
                    None => (self.own(first), 1, vec![first]),
                },
                _ => {
                    let count = self.rng.within(1, needed.len());
                    let mut set = needed[..count].to_vec();
                    // Waiting for more than is needed is safe.
                    if self.rng.chance(20) {
                        set.push(self.rng.below(task));
                    }
                    set.sort_unstable();
                    set.dedup();
                    (self.join(&set), set.len() as u32, set)
                }
            };
            let waits = &mut self.program.tasks[task].waits;
            match waits.iter_mut().find(|wait| wait.counter == counter) {
                Some(wait) => wait.threshold = wait.threshold.max(threshold),
                None => waits.push(Wait { counter, threshold }),
            }
            ordered.iter().for_each(|&other| self.order(other, task));
            needed.retain(|other| !ordered.contains(other));
        }
    }

    fn signal(&mut self, task: usize, counter: CounterId) {
        self.program.tasks[task].signals.push(counter);
    }

    fn own(&mut self, task: usize) -> CounterId {
        if let Some(counter) = self.own[task] {
            return counter;
        }
        let counter = self.program.add_counter(format!("done.{task}"));
        self.own[task] = Some(counter);
        self.signal(task, counter);
        counter
    }

    fn join(&mut self, set: &[usize]) -> CounterId {
        if let Some((_, counter)) = self.joins.iter().find(|(other, _)| other == set) {
            return *counter;
        }
        let counter = self.program.add_counter(format!("join.{set:?}"));
        set.iter().for_each(|&task| self.signal(task, counter));
        self.joins.push((set.to_vec(), counter));
        counter
    }

    /// A wait for the first tasks of a queue, up to `first`: fewer than the producers, and exact
    /// all the same.
    fn progress(&mut self, first: usize, task: usize, queues: &[Vec<TaskId>]) -> Option<(CounterId, u32, Vec<usize>)> {
        let sm = queues.iter().position(|queue| queue.contains(&TaskId::from(first)))?;
        let at = queues[sm].iter().position(|t| t.index() == first)?;
        if queues[sm].contains(&TaskId::from(task)) {
            return None;
        }
        let counter = match self.progress[sm] {
            Some(counter) => counter,
            None => {
                let counter = self.program.add_counter(format!("progress.{sm}"));
                queues[sm].iter().for_each(|other| self.signal(other.index(), counter));
                self.progress[sm] = Some(counter);
                counter
            }
        };
        Some((counter, at as u32 + 1, queues[sm][..=at].iter().map(|t| t.index()).collect()))
    }
}

/// Numbers the tasks in another order now and then: no rule may depend on the table's order.
fn renumber(program: &mut Program, rng: &mut Rng) {
    if rng.chance(60) {
        return;
    }
    let mut order: Vec<usize> = (0..program.tasks.len()).collect();
    rng.shuffle(&mut order);
    let tasks: Vec<_> = order.iter().map(|&old| program.tasks[old].clone()).collect();
    program.tasks = tasks;
    for (at, task) in program.tasks.iter_mut().enumerate() {
        task.id = TaskId::from(at);
    }
    for task in program.queues.iter_mut().flatten().flatten() {
        *task = TaskId::from(order.iter().position(|&old| old == task.index()).unwrap());
    }
}
