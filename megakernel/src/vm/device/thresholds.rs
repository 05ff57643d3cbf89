//! Limits by which the planner chooses, which are not options.

use std::ops::Deref;

/// Limits by which the planner of the device machine chooses storage and code.
///
/// They are not options: each has one value, for the reason that stands at its field. Tests change
/// them by `DeviceOptions::with_thresholds`, which the feature `testing` enables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Most stages of the ring; fewer where shared memory ends, as on an H100 or H200. Of a
    /// [`Plan`](super::Plan) the stages of its ring.
    pub stages: u32,
    /// Most tokens of a row whose attention is one split: nothing is merged then.
    pub single_tokens: u32,
    /// Fewest bytes of shared memory for sums of products; the ops of a program may need more.
    pub sums_bytes: u32,
    /// Stages to prefetch where weights are quantised, with their scales: 2 at most. They make room
    /// for one more stage in flight, after which activations queue: a token of a 1B model of 4 bits
    /// takes 473 µs on an H100 where one stage is prefetched, 458 with none, of 8B 1802 and 1770.
    pub prefetch_code_stages: u32,
    /// Most registers of a thread that hold activations while bf16 stages are prefetched; half as
    /// many if a strip has more than two stages, except for partial sums. 8 rows of a 1B model take
    /// 703 µs on an H200, and 718 µs with half as many.
    pub registers_beside_prefetch: u32,
    /// Fewest rows of a task whose activations are held in registers; of fewer rows they are copied
    /// to shared memory. Where there is no room they come by K chunks, or are reloaded.
    pub activation_rows: u32,
    /// Most registers of a thread that hold the activations of a part, where sums are cut because
    /// all of them do not fit ([`Program::with_cut_sums`](crate::program::Program::with_cut_sums));
    /// more where a stage has more. 0: no sum is cut.
    pub part_registers: u32,
    /// Most rows whose activations, held in registers, are multiplied by the codes of two strips at
    /// a time, and whose strips may share a stage in pairs.
    pub paired_rows: u32,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            stages: 16,
            single_tokens: 256,
            sums_bytes: 4096,
            prefetch_code_stages: 0,
            registers_beside_prefetch: 64,
            activation_rows: 3,
            part_registers: 64,
            paired_rows: 16,
        }
    }
}

/// The [`Thresholds`] of [`DeviceOptions`](super::DeviceOptions): readable by every caller, set by
/// the planner alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedThresholds(Thresholds);

impl FixedThresholds {
    /// The thresholds after a change.
    pub(super) fn changed(mut self, change: impl FnOnce(&mut Thresholds)) -> FixedThresholds {
        change(&mut self.0);
        self
    }
}

impl Deref for FixedThresholds {
    type Target = Thresholds;

    fn deref(&self) -> &Thresholds {
        &self.0
    }
}
