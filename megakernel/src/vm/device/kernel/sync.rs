//! Counters, the end of a launch, reports.
//!
//! Counters only grow, over all launches: a task of step s waits for `s · period + threshold`.
//! After the program's counters lie three of the machine: blocks that finished a step, steps that
//! may begin, and whether to stop.
//!
//! With several devices, each has all counters in its own memory. A task signals the counters of
//! the devices on which tasks wait. The blocks of all devices finish on the first device, whose
//! block 0 opens the next step on each. A block that stops the launch stops all devices. Data that
//! another device writes or reads has scope `.sys`, all other data that of the device.

mod leave;

use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val, Var};
use tilewright_codegen::ir::attr::{AtomOp, AtomOrder, RedOrder, Scope};

pub(super) use self::leave::ProducerWatch;
use super::peers::Peers;
use super::task::TaskView;
use crate::vm::device::record::{SIGNAL_ACROSS, SIGNAL_COUNTERS, SIGNAL_DEVICE};
use crate::vm::device::shape::KernelShape;
use crate::vm::device::status;

/// Counters of the machine's own, after the program's.
pub(in crate::vm::device) const OWN_COUNTERS: u32 = 3;
/// The counter of blocks that finished a step.
const FINISHED: u32 = 0;
/// Steps that may begin.
pub(in crate::vm::device) const BEGUN: u32 = 1;
/// The flag that stops the launch.
pub(in crate::vm::device) const HALT: u32 = 2;
/// Words between counters: a line of L2 each, so that polls of one do not delay signals of another.
pub(in crate::vm::device) const PITCH: u32 = 32;
/// Polls between two loads of the halt word.
const LISTEN: u32 = 64;

/// Synchronisation among the threads of a block, and among blocks.
#[derive(Clone, Copy)]
pub(super) struct Sync<'k> {
    k: &'k Builder,
    counters: Ptr<'k, Global, u32>,
    status: Ptr<'k, Global, u32>,
    /// The stop flag: not 0 if the consumer warps must stop.
    stop: Ptr<'k, Shared, u32>,
    /// The flag that ends polling for flagged words: not 0 if they may not arrive. For programs
    /// with tasks that poll for such words.
    left: Option<Ptr<'k, Shared, u32>>,
    epoch: Val<'k, u32>,
    own: u32,
    polls: u32,
    blocks: u32,
    devices: u32,
    peers: Option<Peers<'k>>,
}

impl<'k> Sync<'k> {
    pub fn new(
        k: &'k Builder,
        shape: &KernelShape,
        counters: Ptr<'k, Global, u32>,
        status: Ptr<'k, Global, u32>,
        peers: Option<Peers<'k>>,
        epoch: Val<'k, u32>,
    ) -> Sync<'k> {
        let stop = k.shared::<u32>("stop", 1);
        let left = shape.leaves.then(|| k.shared::<u32>("left", 1));
        let KernelShape { blocks, devices, counters: own, options, .. } = *shape;
        // The next step is opened when every block has ended this launch's first, and so has read it.
        let so_far = || counters.at((own + BEGUN) * PITCH).load_relaxed(Scope::Gpu);
        let epoch = if options.queued { so_far() } else { epoch };
        Sync { k, counters, status, stop, left, epoch, own, polls: options.polls, blocks, devices, peers }
    }

    /// The threads that use the machine's own counters.
    fn scope(self) -> Scope {
        if self.peers.is_some() { Scope::Sys } else { Scope::Gpu }
    }

    /// The addresses of one of the machine's own counters, on every device.
    fn everywhere(self, index: u32) -> Vec<Ptr<'k, Global, u32>> {
        let own = |counters: Ptr<'k, Global, u32>| counters.at((self.own + index) * PITCH);
        self.peers.map_or_else(|| vec![self.own(index)], |peers| peers.counters().map(own).collect())
    }

    /// Whether this block advances the steps: the first block of the first device.
    pub fn is_first(self) -> Val<'k, bool> {
        let first = self.k.block_id().eq(0);
        self.peers.map_or(first, |peers| first & peers.rank.eq(0))
    }

    /// Initialises the block's word; by one thread, before any other thread uses it.
    pub fn start(self) {
        self.stop.store_relaxed(0u32, Scope::Cta);
        self.left.into_iter().for_each(|left| left.store_relaxed(0u32, Scope::Cta));
    }

    fn own(self, index: u32) -> Ptr<'k, Global, u32> {
        self.counters.at((self.own + index) * PITCH)
    }

    fn finished(self) -> Ptr<'k, Global, u32> {
        self.own(FINISHED)
    }

    fn begun(self) -> Ptr<'k, Global, u32> {
        self.own(BEGUN)
    }

    fn halt(self) -> Ptr<'k, Global, u32> {
        self.own(HALT)
    }

    /// Whether the consumer warps stop, for a thread that looks while others may write.
    pub fn stopped(self) -> Val<'k, bool> {
        self.stop.load_relaxed(Scope::Cta).ne(0)
    }

    /// The word that is not 0 once the consumer warps stop.
    pub fn stop_word(self) -> Ptr<'k, Shared, u32> {
        self.stop
    }

    /// Whether the consumer warps stop, between two of their barriers: the same for all of them.
    pub fn consumers_stopped(self) -> Val<'k, bool> {
        self.stop.load().ne(0)
    }

    /// Reports a task whose opcode is unknown to the kernel; by one thread.
    pub fn check(self, task: TaskView<'k>, classes: u32) {
        let opcode = task.opcode();
        self.k.when(opcode.ge(classes), || {
            let none = self.k.lit(0u32);
            self.report(status::OPCODE, task.task(), opcode, none, none);
        });
    }

    /// Reports tables that are not those that were loaded; by one thread.
    pub fn check_tables(self, found: Val<'k, u32>, expected: Val<'k, u32>) {
        self.k.when(found.ne(expected), || {
            let none = self.k.lit(u32::MAX);
            self.report(status::TABLES, none, none, expected, found);
        });
    }

    /// Stops this block's consumer warps at their next barrier.
    pub fn stop_block(self) {
        self.stop.store_relaxed(1u32, Scope::Cta);
    }

    /// Stops every block of every device.
    pub fn stop_all(self) {
        self.halt_all();
        self.stop_block();
    }

    /// Tells every block of every device, this one included, to stop at its next poll.
    fn halt_all(self) {
        self.everywhere(HALT).into_iter().for_each(|halt| halt.store_relaxed(1u32, self.scope()));
    }

    /// Reports an error, unless one was reported before, and stops every block.
    pub fn report(self, code: u32, task: Val<'k, u32>, what: Val<'k, u32>, wanted: Val<'k, u32>, seen: Val<'k, u32>) {
        self.say(code, task, [what, wanted, seen]);
        self.stop_all();
    }

    /// Stores an error in the status words, unless one was stored before.
    fn say(self, code: u32, task: Val<'k, u32>, [what, wanted, seen]: [Val<'k, u32>; 3]) {
        let word = |at: u32| self.status.at(at);
        let first = word(status::CODE).compare_swap(0u32, code, AtomOrder::Relaxed(Scope::Sys)).eq(0);
        self.k.when(first, || {
            let details = [
                (status::BLOCK, self.block()),
                (status::TASK, task),
                (status::WHAT, what),
                (status::WANTED, wanted),
                (status::SEEN, seen),
            ];
            // The host reads them when the launch is over.
            details.into_iter().for_each(|(at, value)| word(at).store(value));
        });
    }

    /// The block's number among those of all devices.
    fn block(self) -> Val<'k, u32> {
        let block = self.k.block_id();
        self.peers.map_or(block, |peers| peers.rank * self.blocks + block)
    }

    /// Waits until a counter has reached a value, counted over all steps; by one thread. Gives up
    /// when told to stop, and when it has polled too often, which it reports. `across`: whether
    /// other devices signal it, where that is not known.
    fn reach(
        self,
        counter: Ptr<'k, Global, u32>,
        across: Option<Val<'k, bool>>,
        wanted: Val<'k, u32>,
        task: Val<'k, u32>,
        what: Val<'k, u32>,
    ) {
        let k = self.k;
        let polls: Var<u32> = k.var(0u32);
        k.loop_(|| {
            let seen = self.look(counter, across);
            k.break_if((seen - wanted).cast::<i32>().ge(0));
            polls.set(polls.get() + 1);
            k.when((polls.get() % LISTEN).eq(0), || {
                self.listen(task);
                let late = polls.get().ge(self.polls) & !self.stopped();
                k.when(late, || self.report(status::STUCK, task, what, wanted, seen));
            });
            k.break_if(self.stopped());
        });
    }

    /// A counter, as all that was signalled is visible; `across`: whether other devices signal it,
    /// where that is not known.
    fn look(self, counter: Ptr<'k, Global, u32>, across: Option<Val<'k, bool>>) -> Val<'k, u32> {
        let k = self.k;
        match across {
            None => counter.load_acquire(self.scope()),
            Some(across) => {
                let seen = k.var(0u32);
                let by = |scope| move || seen.set(counter.load_acquire(scope));
                k.if_else(across, by(Scope::Sys), by(Scope::Gpu));
                seen.get()
            }
        }
    }

    /// Waits until a word of the block's has reached a value, or the consumers stop; looks for
    /// something else meanwhile.
    pub fn until(self, word: Ptr<'k, Shared, u32>, wanted: Val<'k, u32>, looks: impl FnOnce()) {
        let k = self.k;
        k.moving().loop_(|| {
            k.break_if(word.load_acquire(Scope::Cta).ge(wanted));
            k.break_if(self.stopped());
            looks();
        });
    }

    /// Checks whether the host or another block requests the end; by one thread.
    pub fn listen(self, task: Val<'k, u32>) {
        let k = self.k;
        k.when(self.halt().load_relaxed(self.scope()).ne(0), || self.stop_block());
        let asked = k.block_id().eq(0);
        k.when(asked, || {
            let abort = self.status.at(status::ABORT).load_relaxed(Scope::Sys).ne(0) & !self.stopped();
            k.when(abort, || {
                let none = k.lit(0u32);
                self.report(status::ABORTED, task, none, none, none);
            });
        });
    }

    /// Waits for the counters of a task; by one thread.
    pub fn wait(self, task: TaskView<'k>, step: Val<'k, u32>) {
        let k = self.k;
        k.for_(0u32, task.wait_count(), |at| {
            let ([counter, threshold, period], across) = task.wait(at, self.peers.is_some());
            let wanted = (self.epoch + step) * period + threshold;
            self.reach(self.counters.at(counter * PITCH), across, wanted, task.task(), counter);
        });
    }

    /// Waits until the host has set a word to a value; by one thread.
    pub fn wait_for_host(self, word: Ptr<'k, Global, u32>, wanted: Val<'k, u32>, task: TaskView<'k>) {
        let host = self.k.lit(status::HOST);
        self.reach(word, Some(self.k.lit(true)), wanted, task.task(), host);
    }

    /// Publishes that a task is done; by one thread, after a barrier of the consumers. Where
    /// everything that it wrote is packets, nothing is released.
    pub fn signal(self, task: TaskView<'k>) {
        let k = self.k;
        k.for_(0u32, task.signal_count(), |at| {
            self.count(task.signal(at), &|counter, scope| {
                k.if_else(
                    task.releases().ne(0),
                    || counter.red(AtomOp::Add, 1u32, RedOrder::Release(scope)),
                    || counter.red(AtomOp::Add, 1u32, RedOrder::Relaxed(scope)),
                );
            });
        });
    }

    /// Adds to the counter of a signal, which may be another device's.
    fn count(self, signal: Val<'k, u32>, add: &dyn Fn(Ptr<'k, Global, u32>, Scope)) {
        let Some(peers) = self.peers else { return add(self.counters.at(signal * PITCH), Scope::Gpu) };
        let k = self.k;
        let counter = signal % SIGNAL_COUNTERS;
        let device = (signal % SIGNAL_ACROSS) / SIGNAL_COUNTERS;
        debug_assert_eq!(SIGNAL_COUNTERS, 1 << SIGNAL_DEVICE);
        k.if_else(
            signal.lt(SIGNAL_ACROSS),
            || add(self.counters.at(counter * PITCH), Scope::Gpu),
            || {
                for (number, counters) in (0u32..).zip(peers.counters()) {
                    k.when(device.eq(number), || add(counters.at(counter * PITCH), Scope::Sys));
                }
            },
        );
    }

    /// Signals that all later results of a task are flagged words; by one thread.
    pub fn signal_early(self, task: TaskView<'k>) {
        self.k.for_(0u32, task.signal_count(), |at| {
            self.count(task.signal(at), &|counter, scope| {
                counter.red(AtomOp::Add, 1u32, RedOrder::Relaxed(scope));
            });
        });
    }

    /// Steps so far, this one not counted.
    pub fn now(self, step: Val<'k, u32>) -> Val<'k, u32> {
        self.epoch + step
    }

    /// Waits until a step may begin; by one thread.
    pub fn begin(self, step: Val<'k, u32>) {
        let none = self.k.lit(u32::MAX);
        self.reach(self.begun(), None, self.epoch + step, none, none);
    }

    /// Signals that this block finished a step; by one thread, after a barrier of the consumer
    /// warps.
    fn finished_step(self) {
        let first = self.everywhere(FINISHED)[0];
        first.red(AtomOp::Add, 1u32, RedOrder::Release(self.scope()));
    }

    /// Waits until every block finished a step; by one thread of the first device.
    pub fn all_finished(self, step: Val<'k, u32>) {
        let none = self.k.lit(u32::MAX);
        let blocks = match self.devices {
            1 => self.k.blocks(),
            devices => self.k.lit(devices * self.blocks),
        };
        self.reach(self.finished(), None, (self.epoch + step + 1) * blocks, none, none);
    }

    /// Lets the next step begin; by one thread.
    pub fn open(self) {
        let begun = self.everywhere(BEGUN);
        begun.into_iter().for_each(|begun| begun.red(AtomOp::Add, 1u32, RedOrder::Release(self.scope())));
    }

    /// Ends the launch after a step that every block has finished; by one thread. No block has
    /// begun another, so counters stand as at the end of any step.
    pub fn end(self) {
        self.status.at(status::CODE).compare_swap(0u32, status::ENDED, AtomOrder::Relaxed(Scope::Sys));
        self.stop_all();
    }

    /// A word that the host sees.
    pub fn status(self, at: u32) -> Ptr<'k, Global, u32> {
        self.status.at(at)
    }
}
