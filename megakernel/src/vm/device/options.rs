//! The shape of the generated kernel: warps, ring, polls.

use tilewright_codegen::ir::{Arch, Needs};
use tilewright_kernels::gemv::task::Early;

use super::thresholds::FixedThresholds;
#[cfg(feature = "testing")]
use super::thresholds::Thresholds;
use crate::vm::resident::StageOrder;

/// Choices of the device machine: they change speed, and results at most by the order of sums.
///
/// | option | what it changes of the order of sums |
/// |---|---|
/// | `warps` | which warp adds up which columns and tokens |
/// | `split_tokens`, and the program's splits | which tokens a split adds up |
/// | `activation_registers` | whether activations come by K chunks, and by which, or are reloaded; then also `stage_bytes` |
/// | `stage_bytes`, of 3 rows of codes and more | which products of a group of codes are added up first |
/// | `stage_bytes`, of cut sums | which columns of a cut sum are added up first |
/// | `stream_tokens`, stages that hold no 16 tokens | which warp has a row's current tokens |
/// | all others, and `stage_bytes` where activations are copied or held whole | nothing: every bit is the same |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Warps of a block that compute. Twice as many have half of the work and half of the registers
    /// each: try 16 where consumer warps bound a token, as in attention over long contexts.
    pub warps: u32,
    /// Bytes of a stage of the ring, a multiple of 512 · `warps`. Smaller stages suit GPUs of little
    /// shared memory, whose ring would be short; each stage costs a barrier, so 8 KB are 20 % slower
    /// than 16 KB on an H100.
    pub stage_bytes: u32,
    /// Most stages in flight for tasks that the consumer warps have not reached: what they publish,
    /// poll and load meanwhile queues after them. One more where stages are prefetched to registers
    /// (`prefetch_stages`): what leaves the ring makes room that one stage at a time does not fill.
    /// Raise it where a timeline shows an idle memory during waits.
    pub in_flight: u32,
    /// Most stages in flight for the task that the consumer warps are at. More only queue at the
    /// memory. Raise it for a memory of more bandwidth or latency per SM.
    pub burst: u32,
    /// Whether keys and values of earlier steps are streamed through the ring, where they fit
    /// stages, as are the streamed operands of other ops.
    pub stream_tokens: bool,
    /// Whether keys and values that are not streamed through the ring are prefetched before
    /// attention reaches them.
    pub prefetch_pages: bool,
    /// Fewest tokens of a split of attention, whole pages: merging a split costs more than some
    /// more tokens. Lower it where few key heads leave SMs idle, raise it where merges take long.
    pub split_tokens: u32,
    /// Most bytes of a block's tables that lie in shared memory whole; longer ones come section by
    /// section, ahead of the consumer warps, and leave the room to the ring: of 80 layers they have
    /// 75 KB. Set 0 for a longer ring, more to read tables of deep models once.
    pub table_bytes: u32,
    /// Polls of a counter after which a task gives up and reports it.
    pub polls: u32,
    /// Whether activations are flag-in-word packets where they can be, instead of being released.
    pub packets: bool,
    /// Whether a linear task whose results are flagged words signals before it stores them, ahead
    /// of the products of its last group ([`Early`]); else after its stores.
    pub early_signals: bool,
    /// Whether tasks poll flagged words without waiting for a semaphore. It applies if all their
    /// inputs are flagged words of few columns.
    pub skip_semaphores: bool,
    /// The order of a stream's stages among the packed weights.
    pub stage_order: StageOrder,
    /// Stages of a task that the consumer warps prefetch into registers while they wait, where
    /// activations are copied; 8 at most. The ring has room for others meanwhile, and one more is
    /// in flight. 0: none. Lower it where `ptxas` reports spills. With quantised weights the planner
    /// chooses it.
    pub prefetch_stages: u32,
    /// Most registers of a thread that hold activations. Lower it where `ptxas` reports spills:
    /// activations of long rows then come by K chunks.
    pub activation_registers: u32,
    /// Whether the splits of attention exchange flagged words, so that the first merges them, where
    /// the result is flagged words and no block has two splits of a level; else the last merges.
    pub merge_packets: bool,
    /// Whether the consumer warps take over the registers of the producer, which then has a
    /// warpgroup of its own; only where they are whole warpgroups, and gain by it.
    pub take_registers: bool,
    /// Whether every task's times are recorded.
    pub timeline: bool,
    /// Whether a launch may propose tokens of one sequence to its rows
    /// ([`DeviceMachine::propose`](super::DeviceMachine::propose)).
    pub propose: bool,
    /// Whether the host may say which tokens rows can choose, while a launch runs
    /// ([`DeviceMachine::restrict`](super::DeviceMachine::restrict)). For programs that sample, and
    /// machines without queued launches.
    pub masks: bool,
    /// Whether launches may be queued ([`DeviceMachine::queue`](super::DeviceMachine::queue)), and
    /// repeated by a CUDA graph: the kernel then reads how many steps there were so far, which it is
    /// told otherwise. For programs of one device.
    pub queued: bool,
    /// Limits of the planner, which callers read and do not set.
    pub thresholds: FixedThresholds,
}

/// Threads of a warpgroup.
const WARPGROUP: u32 = 128;
/// 32-bit registers of an SM.
const REGISTERS: u32 = 65536;
/// Most registers of a thread that can be asked for.
const MOST: u32 = 240;

/// Registers of a consumer thread and of the producer's warpgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    pub consumers: u32,
    pub producer: u32,
}

impl DeviceOptions {
    /// The numbers that a caller may set and a search may vary, by the name of their field.
    #[expect(clippy::type_complexity, reason = "a name and its field")]
    pub const NUMBERS: [(&'static str, fn(&mut DeviceOptions) -> &mut u32); 8] = [
        ("warps", |options| &mut options.warps),
        ("stage_bytes", |options| &mut options.stage_bytes),
        ("in_flight", |options| &mut options.in_flight),
        ("burst", |options| &mut options.burst),
        ("split_tokens", |options| &mut options.split_tokens),
        ("table_bytes", |options| &mut options.table_bytes),
        ("prefetch_stages", |options| &mut options.prefetch_stages),
        ("activation_registers", |options| &mut options.activation_registers),
    ];

    /// Options by which the simulator runs a kernel in bearable time: few warps, and a ring of few
    /// small stages.
    pub fn for_simulator() -> DeviceOptions {
        let options = DeviceOptions { warps: 4, stage_bytes: 4096, ..DeviceOptions::default() };
        DeviceOptions { thresholds: options.thresholds.changed(|limits| limits.stages = 4), ..options }
    }

    /// The options with other limits of the planner, for tests of what it chooses.
    ///
    /// ```
    /// use tilewright_megakernel::vm::device::DeviceOptions;
    /// let options = DeviceOptions::default().with_thresholds(|limits| limits.stages = 2);
    /// assert_eq!(options.thresholds.stages, 2);
    /// ```
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_thresholds(self, change: impl FnOnce(&mut Thresholds)) -> DeviceOptions {
        DeviceOptions { thresholds: self.thresholds.changed(change), ..self }
    }

    /// The number of that name among [`DeviceOptions::NUMBERS`].
    ///
    /// ```
    /// use tilewright_megakernel::vm::device::DeviceOptions;
    /// let mut options = DeviceOptions::default();
    /// *options.number_mut("warps").expect("is a number") = 4;
    /// assert_eq!(options, DeviceOptions { warps: 4, ..DeviceOptions::default() });
    /// assert!(options.number_mut("timeline").is_none());
    /// ```
    pub fn number_mut(&mut self, name: &str) -> Option<&mut u32> {
        let (_, field) = Self::NUMBERS.iter().find(|(known, _)| *known == name)?;
        Some(field(self))
    }

    /// Removes what an architecture lacks. Where no registers are taken over, four warps and the
    /// producer have 255 of a thread, eight have 168 and spill: what they hold at a time is less,
    /// too.
    pub(super) fn within(self, arch: Arch) -> DeviceOptions {
        let prefetch_pages = self.prefetch_pages && Needs::Sm90.met_by(arch);
        if Needs::Sm90aUp.met_by(arch) {
            return DeviceOptions { prefetch_pages, ..self };
        }
        let warps = self.warps.min(4);
        let stage_bytes = self.stage_bytes.min(8192);
        let step = 512 * warps.max(1);
        DeviceOptions {
            warps,
            stage_bytes: (stage_bytes / step * step).max(step),
            prefetch_stages: self.prefetch_stages.min(2),
            activation_registers: self.activation_registers.min(64),
            take_registers: false,
            prefetch_pages,
            thresholds: self.thresholds.changed(|limits| {
                limits.prefetch_code_stages = limits.prefetch_code_stages.min(1);
            }),
            ..self
        }
    }

    /// Sets the prefetched stages for quantised weights: scales are prefetched with them, and up to
    /// 64 registers of activations stay with a task. With three 8 bits of Llama-3.1-8B by groups
    /// spill, with four others.
    pub(super) fn for_codes(self, quantised: bool) -> DeviceOptions {
        let prefetch_stages =
            if quantised { self.thresholds.prefetch_code_stages.min(2) } else { self.prefetch_stages };
        DeviceOptions { prefetch_stages, ..self }
    }

    /// Most stages of a task that are prefetched into registers.
    pub(super) fn prefetch(self) -> u32 {
        self.prefetch_stages.min(8)
    }

    /// The point at which linear tasks signal if their results are flagged words; `None` if they
    /// signal after the stores.
    pub(crate) fn early_signal(self) -> Option<Early> {
        self.early_signals.then_some(Early::Products)
    }

    /// Threads of a block.
    pub(super) fn threads(self) -> u32 {
        match self.registers() {
            Some(_) => self.warps * 32 + WARPGROUP,
            None => (self.warps + 1) * 32,
        }
    }

    /// The distribution of registers, if the consumer warps take over the producer's.
    pub(super) fn registers(self) -> Option<Registers> {
        let groups = self.warps / 4;
        if !self.take_registers || groups == 0 || !self.warps.is_multiple_of(4) {
            return None;
        }
        // The registers at launch: the assembler gives every thread the same number, a multiple of
        // eight.
        let each = REGISTERS / (WARPGROUP * (groups + 1)) / 8 * 8;
        let producer = 24;
        let consumers = ((each * (groups + 1) - producer) / groups / 8 * 8).min(MOST);
        (each < consumers).then_some(Registers { consumers, producer })
    }
}

impl Default for DeviceOptions {
    fn default() -> DeviceOptions {
        DeviceOptions {
            warps: 8,
            stage_bytes: 16384,
            in_flight: 1,
            burst: 4,
            stream_tokens: true,
            prefetch_pages: true,
            split_tokens: 128,
            table_bytes: 32768,
            polls: 1 << 24,
            packets: true,
            early_signals: true,
            skip_semaphores: true,
            stage_order: StageOrder::Stages,
            prefetch_stages: 4,
            activation_registers: 128,
            merge_packets: true,
            take_registers: true,
            timeline: false,
            queued: false,
            propose: false,
            masks: false,
            thresholds: FixedThresholds::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_name_has_a_field_of_its_own() {
        let options = DeviceOptions::default();
        let changed = DeviceOptions::NUMBERS.map(|(name, _)| {
            let mut changed = options;
            *changed.number_mut(name).expect("has a field") += 1;
            // The name is the field's: the text of the options has it.
            let text = |options: DeviceOptions| format!("{options:?}").replace(['{', '}', ','], " ");
            let before = text(options);
            let after = text(changed);
            let differ = before.split_whitespace().zip(after.split_whitespace()).position(|(a, b)| a != b);
            let field = differ.and_then(|at| after.split_whitespace().nth(at - 1));
            assert_eq!(field, Some(format!("{name}:").as_str()));
            after
        });
        assert_eq!(HashSet::from(changed).len(), DeviceOptions::NUMBERS.len());
        assert!(StageOrder::ALL.iter().all(|(name, stage_order)| stage_order.name() == *name));
    }

    #[test]
    fn registers_are_shared_out_within_what_a_block_is_launched_with() {
        for warps in 1..=16 {
            let options = DeviceOptions { warps, ..DeviceOptions::default() };
            let Some(Registers { consumers, producer }) = options.registers() else {
                assert_eq!(options.threads(), warps * 32 + 32);
                continue;
            };
            let launched = REGISTERS / options.threads() / 8 * 8;
            let all = consumers * warps * 32 + producer * WARPGROUP;
            assert!(all <= launched * options.threads(), "{warps} warps: {all} registers");
            assert!(
                warps % 4 == 0 && consumers > launched && consumers % 8 == 0 && producer < launched,
                "{warps} warps"
            );
        }
        let default = DeviceOptions::default();
        assert_eq!(default.registers(), Some(Registers { consumers: 240, producer: 24 }));
        assert_eq!(DeviceOptions { take_registers: false, ..default }.threads(), 288);
    }
}
