//! A task's first stages in registers: taken while the consumer warps wait for activations,
//! since weights depend on nothing.

use tilewright_codegen::build::{Ptr, Shared, Val};
use tilewright_kernels::ring::{AnyStage, Stages};
use tilewright_kernels::weights::{PrefetchForm, PrefetchedStage, ReadStages, WeightStages};

use super::context::KernelContext;
use super::ring::RingReader;
use super::task::TaskView;
use crate::vm::device::record::PREFETCH_COUNT_BITS;

/// The ring's reader, after the prefetched stages.
pub(super) struct Prefetched<'r, 'k> {
    ring: &'r RingReader<'k>,
    stages: Vec<PrefetchedStage<'k>>,
}

impl<'r, 'k> Prefetched<'r, 'k> {
    /// Takes the prefetched stages of a task; by the consumer warps, before thread 0 waits for
    /// anything.
    ///
    /// The launch cannot end early here: thread 0 checks for that later, when these stages have
    /// arrived.
    pub fn take(context: KernelContext<'k, '_>, ring: &'r RingReader<'k>, task: TaskView<'k>) -> Prefetched<'r, 'k> {
        let k = context.k;
        let stage_bytes = context.shape.options.stage_bytes;
        let forms = context.shape.prefetched_form.unwrap_or_default();
        let stages: Vec<_> = (0..context.shape.prefetched_stages)
            .map(|_| PrefetchedStage::new(context.consumers, stage_bytes, forms))
            .collect();
        for (number, stage) in (0u32..).zip(&stages) {
            if forms == PrefetchForm::default() {
                k.when(task.prefetched().gt(number), || stage.take(ring, task.stage_bytes(), k.lit(0)));
                continue;
            }
            let prefetched = task.prefetched();
            k.when((prefetched & ((1 << PREFETCH_COUNT_BITS) - 1)).gt(number), || {
                stage.take(ring, task.stage_bytes(), prefetched >> PREFETCH_COUNT_BITS)
            });
        }
        Prefetched { ring, stages }
    }

    /// The weights of a task that prefetches at most `most` stages; `pair`: bytes of a strip, where
    /// two come as one stage.
    pub fn of(&self, most: u32, pair: Option<u32>) -> TaskWeights<'_, 'k> {
        TaskWeights { ring: self.ring, stages: &self.stages[..self.stages.len().min(most as usize)], pair }
    }
}

/// A task's weights: its first stages in registers, the rest from the ring.
pub(super) struct TaskWeights<'r, 'k> {
    ring: &'r RingReader<'k>,
    stages: &'r [PrefetchedStage<'k>],
    pair: Option<u32>,
}

impl<'k> Stages<'k> for TaskWeights<'_, 'k> {
    fn wait(&self) -> AnyStage<'k> {
        self.ring.wait()
    }
}

impl<'k> WeightStages<'k> for TaskWeights<'_, 'k> {
    fn stage_if(&self, reads: Val<'k, bool>, read: &dyn Fn(Ptr<'k, Shared, u32>)) {
        self.ring.stage_if(reads, read);
    }

    fn most(&self) -> u32 {
        self.ring.most() * if self.pair.is_some() { 2 } else { 1 }
    }

    fn several(&self, count: u32, read: ReadStages<'_, 'k>) {
        let Some(bytes) = self.pair else { return self.ring.several(count, read) };
        self.ring.several(count.div_ceil(2), &|stages| {
            let strips: Vec<_> = stages.iter().flat_map(|stage| [*stage, stage.at(bytes / 4)]).collect();
            read(&strips[..count as usize]);
        });
    }

    fn prefetched(&self) -> &[PrefetchedStage<'k>] {
        self.stages
    }
}
