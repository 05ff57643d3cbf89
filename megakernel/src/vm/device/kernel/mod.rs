//! The persistent kernel, recorded for a plan.
//!
//! | file | what it holds |
//! |---|---|
//! | `context` | what every part of the kernel works with |
//! | `ring` | the ring of stages, and how far the consumer warps have come |
//! | `table`, `task` | the block's tables in shared memory; the record of a task |
//! | `sections` | tables of many tasks, section by section |
//! | `cells` | positions and page tables in shared memory |
//! | `sync` | counters, the end of a launch, reports |
//! | `sync/leave` | packets that do not come |
//! | `produce` | the warp that streams weights, keys and values |
//! | `feed` | stages of the ring that device functions fill |
//! | `consume` | the warps that compute |
//! | `prefetch` | a task's first stages in registers, while the consumer warps wait |
//! | `pages` | keys and values that are not streamed on their way to L2 |
//! | `call`, `dispatch` | calls of device functions; from opcodes to them |
//! | `advance` | from one step to the next |
//! | `propose` | the same of one sequence whose rows are proposed |
//! | `peers` | the other devices of a program of several |
//! | `trace` | times of tasks |

mod advance;
mod call;
mod cells;
mod consume;
mod context;
mod dispatch;
mod feed;
mod pages;
mod peers;
mod prefetch;
mod produce;
mod propose;
mod ring;
mod sections;
mod sync;
mod table;
mod task;
mod trace;

use half::bf16;
use tilewright_codegen::build::{Builder, block, record as record_kernel};
use tilewright_codegen::device;
use tilewright_codegen::ir::Kernel;
use tilewright_kernels::gemv::task::LinearScratch;
use tilewright_kernels::ring::start;
use tilewright_kernels::sample::mask_pitch;
use tilewright_kernels::warps::ConsumerWarps;

use super::{Plan, status};
use crate::vm::LoadError;
use crate::vm::resident::DeviceKernels;

pub(super) use advance::Feeds;
pub use call::{Call, Generation};
use cells::StepCells;
use context::{KernelContext, Masks, MemorySpaces, Proposals};
pub use feed::RingFeed;
use peers::Peers;
use ring::Progress;
use sync::Sync;
pub(super) use sync::{BEGUN, HALT, OWN_COUNTERS, PITCH};
use table::Table;
pub(super) use trace::TIMES;
use trace::Trace;

/// The kernel's name.
pub(super) const NAME: &str = "megakernel";

/// Most registers of a thread to which activations in shared memory come before they are multiplied
/// by bf16 weights.
const COPIED_REGISTERS: u32 = 32;

/// Most stages of a strip of 4-bit codes whose words, more than 8 KB of a stage, are prefetched
/// into registers during the products of the previous stage.
const PREFETCHED_WORD_STAGES: u32 = 1;

/// Records the kernel of a plan.
///
/// Parameters: packed weights, plain, state, pools, tables, directory, counters, status, steps so
/// far, steps of this launch, what is fed back, pages of the pools, entries of a row of the page
/// table, the tokens that end each row; with proposals, the text; with masks, which rows have one;
/// with a timeline, where it goes; on several devices the number of this one, and the
/// counters and the state of each.
pub fn record(plan: &Plan) -> Kernel {
    record_kernel(NAME, plan.arch, block(plan.options.threads()).min_blocks(1).cooperative(), |k| body(k, plan))
}

fn body(k: &Builder, plan: &Plan) {
    let shape = &plan.shape();
    let options = shape.options;
    let [prepacked, plain, state, pools, tables] =
        ["prepacked", "plain", "state", "pools", "tables"].map(|name| k.global::<u8>(name));
    let directory = k.global::<u32>("directory");
    let counters = k.global::<u32>("counters");
    let status = k.global::<u32>("status");
    let epoch = k.param::<u32>("epoch");
    let steps = k.param::<u32>("steps");
    let advance = k.param::<u32>("advance");
    let pages = k.param::<u32>("pages");
    let table_width = k.param::<u32>("table_width");
    let ends = k.global::<i32>("ends");
    let text = options.propose.then(|| k.global::<i32>("text"));
    let mask_tokens = shape.feedback.and_then(|cells| cells.mask_tokens);
    let masks = mask_tokens.map(|tokens| {
        let words = status.at(status::masks(shape.rows));
        Masks { masked: k.global("masked"), words, pitch: mask_pitch(tokens) }
    });
    let ring = ring::ring(k, shape);
    let progress = Progress::new(k, shape);
    let table = Table::new(k, shape, directory, tables);
    let operand_bytes = shape.operand_bytes;
    let sums_bytes = options.thresholds.sums_bytes;
    let operand = k.shared_aligned::<bf16>("operand", (operand_bytes + sums_bytes) / 2, 128);
    let scratch = LinearScratch {
        operand,
        operand_bytes,
        squares: k.shared::<f32>("squares", 16 * options.warps),
        sums: operand.at(operand_bytes / 2).cast(),
        sums_bytes,
        best: k.shared::<u64>("best", 16),
        paired_rows: options.thresholds.paired_rows,
        copied_registers: COPIED_REGISTERS,
        prefetched_word_stages: PREFETCHED_WORD_STAGES,
        overflow: None,
        loaded: options.timeline.then(|| k.shared::<u64>("loaded", 1)),
    };
    let proposals = text.map(|text| Proposals::new(text, scratch.sums, scratch.best));
    let trace = options.timeline.then(|| Trace::new(k, shape, scratch.loaded));
    let peers = Peers::new(k, shape);
    let sync = Sync::new(k, shape, counters, status, peers, epoch);
    let cells = StepCells::new(k, shape, state, table_width);
    let memory = MemorySpaces { prepacked, plain, state, pools, peers };
    let context = KernelContext {
        k,
        shape,
        memory,
        progress,
        table,
        sync,
        consumers: ConsumerWarps::new(k, options.warps),
        scratch,
        cells,
        trace,
        steps,
        advance,
        ends,
        pages,
        masks,
        proposals,
    };
    table.fetch(k);
    k.when(k.tid().eq(0), || {
        table.start();
        sync.start();
        progress.start();
        cells.start();
    });
    let (producer, reader) = start(k, ring).split();
    table.add_up(k);
    k.barrier();
    let [found, expected] = table.sums();
    k.when(k.tid().eq(0), || sync.check_tables(found, expected));
    k.moving().when(found.eq(expected), || {
        k.moving().if_else(
            k.warp().lt(options.warps),
            || {
                if let Some(registers) = options.registers() {
                    k.registers_up(registers.consumers);
                }
                consume::consume(context, &plan.opcodes, reader.into());
            },
            || {
                if let Some(registers) = options.registers() {
                    k.registers_down(registers.producer);
                }
                let warp = k.warp().eq(options.warps);
                let who = if producer.by_warp() { warp } else { warp & k.lane().eq(0) };
                k.moving().when(who, || produce::produce(context, &plan.opcodes, producer.counted()));
            },
        );
    });
}

impl DeviceKernels {
    /// The kernel of a plan, compiled where there is none.
    ///
    /// # Errors
    /// If the kernel breaks a rule, or the device refuses it.
    pub fn of(&self, plan: &Plan) -> Result<device::Kernel, LoadError> {
        self.compile(&record(plan))
    }
}
