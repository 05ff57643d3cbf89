//! Times of tasks, for timelines: of the last step of a launch, in nanoseconds of the device's
//! clock.

use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val};

use crate::vm::device::shape::KernelShape;

/// Times of a task: begun, waited, loaded (0 where a task loads no activations of its own),
/// computed, published; and how long the producer found no room for its weights.
pub(in crate::vm::device) const TIMES: u32 = 6;

/// The destination of trace timestamps, u64 `[blocks, tasks, 6]`.
#[derive(Clone, Copy)]
pub(super) struct Trace<'k> {
    k: &'k Builder,
    at: Ptr<'k, Global, u64>,
    loaded: Option<Ptr<'k, Shared, u64>>,
}

impl<'k> Trace<'k> {
    pub fn new(k: &'k Builder, shape: &KernelShape, loaded: Option<Ptr<'k, Shared, u64>>) -> Trace<'k> {
        let trace = k.global::<u64>("trace");
        Trace { k, at: trace.at(k.block_id() * (shape.longest_queue * TIMES)), loaded }
    }

    /// Records a time of a task; by one thread.
    pub fn note(self, task: Val<'k, u32>, which: u32) {
        self.at.at(task * TIMES + which).store(self.k.globaltimer());
    }

    /// Records how long the producer found no free stage for a task's weights; by the producer.
    pub fn note_full(self, task: Val<'k, u32>, full: Val<'k, u64>) {
        self.at.at(task * TIMES + 5).store(full);
    }

    /// The current time, in nanoseconds.
    pub fn now(self) -> Val<'k, u64> {
        self.k.globaltimer()
    }

    /// Resets the time at which activations were loaded; by one thread.
    pub fn forget(self) {
        if let Some(loaded) = self.loaded {
            loaded.store(0u64);
        }
    }

    /// Records the time at which activations were loaded; by the thread that saw it.
    pub fn note_loaded(self, task: Val<'k, u32>) {
        if let Some(loaded) = self.loaded {
            self.at.at(task * TIMES + 2).store(loaded.load());
        }
    }
}
