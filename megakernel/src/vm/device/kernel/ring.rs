//! The ring of stages in shared memory: one producer thread, or a warp of them, and all warps of
//! the consumer warps as readers.

use std::cell::RefCell;

use tilewright_codegen::build::{Builder, Ptr, Shared, Val};
use tilewright_codegen::ir::attr::Scope;
use tilewright_kernels::ring::{self, ByPieces, Consumers, Counted, Shape, StageTile, Unready};
use tilewright_layout::Layout;

use crate::vm::device::shape::KernelShape;

/// Names the ring.
pub(super) enum RingStages {}

/// A stage: weights, or keys and values, as each task has them.
type StageOperands = (StageTile<u32, Layout>,);

/// The end that fills stages in order, a bounded number of them in flight.
pub(super) type RingProducer<'k> = Counted<'k, RingStages, StageOperands>;

/// The end that reads them, for whole warps.
pub(super) type RingReader<'k> = RefCell<ring::Consumer<'k, RingStages, StageOperands>>;

/// The ring of a shape.
pub(super) fn ring<'k>(
    k: &'k Builder,
    shape: &KernelShape,
) -> Unready<ring::Ring<'k, RingStages, StageOperands, ByPieces>> {
    let words = Layout::constant(Layout::leaf(i64::from(shape.slot_bytes / 4), 1));
    let shape = Shape::stages(shape.options.thresholds.stages).consumers(Consumers::Warps(shape.options.warps));
    ring::Ring::pieces(k, (StageTile::new(words),), shape)
}

/// The progress of the consumer warps. More stages may be in flight for the current task than for
/// later tasks.
#[derive(Clone, Copy)]
pub(super) struct Progress<'k> {
    /// The task, counted over the launch from 1. If the producer watches, it is 0 between two
    /// tasks, and [`Progress::OVER`] after the last.
    task: Ptr<'k, Shared, u32>,
    /// Whether the producer watches the consumers.
    is_watched: bool,
    /// Most stages in flight for later tasks, and for the current task.
    most: [u32; 2],
    /// The limit for stages of at most that number of bytes, where there are small ones.
    small: Option<(u32, [u32; 2])>,
}

impl<'k> Progress<'k> {
    /// The task number after the last task of a launch.
    pub const OVER: u32 = u32::MAX;

    pub fn new(k: &'k Builder, shape: &KernelShape) -> Progress<'k> {
        // The producer's view of what arrived must stay within one round of the ring: parities
        // repeat after two.
        let within = |times: u32| {
            let all = [shape.in_flight(), shape.options.burst].map(|most| most.saturating_mul(times));
            all.map(|most| most.clamp(1, shape.options.thresholds.stages - 1))
        };
        let small = shape.has_small_stages.then(|| (shape.small_bytes, within(2)));
        Progress { task: k.shared("current", 1), is_watched: shape.leaves, most: within(1), small }
    }

    /// Initialises it; by one thread, before any other thread uses it.
    pub fn start(self) {
        self.task.store(0u32);
    }

    /// Announces the task that the consumer warps begin; by one thread.
    pub fn comes_to(self, task: Val<'k, u32>) {
        self.task.store_relaxed(task, Scope::Cta);
    }

    /// Publishes that the consumers have finished a task, if the producer watches; by one thread.
    pub fn is_between(self) {
        if self.is_watched {
            self.task.store_relaxed(0u32, Scope::Cta);
        }
    }

    /// Publishes that the consumers have finished the launch, if the producer watches; by one
    /// thread.
    pub fn ends(self) {
        if self.is_watched {
            self.task.store_relaxed(Progress::OVER, Scope::Cta);
        }
    }

    /// The current task of the consumer warps, counted over the launch from 1; 0 between two tasks
    /// if the producer watches.
    pub fn task(self) -> Val<'k, u32> {
        self.task.load_relaxed(Scope::Cta)
    }

    /// Most stages in flight, for a stage of `bytes` bytes of a task. Of small ones twice as many,
    /// so that the bytes in flight are as many.
    pub fn most(self, task: Val<'k, u32>, bytes: Val<'k, u32>) -> Val<'k, u32> {
        let [most, burst] = self.most;
        let now = self.task.load_relaxed(Scope::Cta).eq(task);
        match self.small {
            None => now.select(burst, most),
            Some((small, [twice, twice_burst])) => {
                let is_small = bytes.le(small);
                now.select(
                    is_small.select(bytes.builder().lit(twice_burst), burst),
                    is_small.select(bytes.builder().lit(twice), most),
                )
            }
        }
    }
}
