//! The shape of the kernel: what code is generated for, besides the device functions.

use tilewright_kernels::weights::{PrefetchForm, StagePlacement};

use super::DeviceOptions;

/// Entries of page tables that a block keeps in shared memory, of all rows together: of one and two
/// rows, whose programs have most stages in the ring, and of more.
const NEAR: [u32; 2] = [256, 1024];

/// What the kernel is generated for, besides the device functions: sizes, and the paths that its
/// tasks need.
#[derive(Clone, Debug)]
pub(super) struct KernelShape {
    pub options: DeviceOptions,
    /// Blocks of a device.
    pub blocks: u32,
    pub devices: u32,
    /// Counters of the program.
    pub counters: u32,
    /// Number of opcodes.
    pub opcodes: u32,
    /// The orders of stages among the packed weights.
    pub placements: Vec<StagePlacement>,
    /// Bytes of a stage of the ring.
    pub slot_bytes: u32,
    /// Bytes of a stage of which twice as many may be in flight.
    pub small_bytes: u32,
    /// Bytes of shared memory for activations.
    pub operand_bytes: u32,
    /// Bytes of shared memory for the tables of a block.
    pub table_bytes: u32,
    /// Bytes of a section of them, where a block brings them section by section.
    pub section_bytes: Option<u32>,
    /// Bytes of a record.
    pub record_bytes: u32,
    /// Tasks of the longest queue.
    pub longest_queue: u32,
    /// Rows of the batch.
    pub rows: u32,
    /// Positions and page tables that a block keeps in shared memory.
    pub cells: Option<CellsPlan>,
    /// The cells that a launch of many steps feeds back.
    pub feedback: Option<Feedback>,
    /// Stages of a task that are prefetched to registers, at most.
    pub prefetched_stages: u32,
    /// The form of prefetched stages, of any task.
    pub prefetched_form: Option<PrefetchForm>,
    /// Whether some tasks fill stages of the ring.
    pub fills_stages: bool,
    /// Whether some tasks take a part of each of their strips, or part by part.
    pub has_parts: bool,
    /// Whether some tasks take two strips as one stage.
    pub has_pairs: bool,
    /// Whether some stages have fewer bytes than [`small_bytes`](KernelShape::small_bytes).
    pub has_small_stages: bool,
    /// Whether activations may be multiplied with codes as f16.
    pub has_halves: bool,
    /// Whether some tasks poll flagged words without waiting for a semaphore.
    pub skips_semaphores: bool,
    /// Whether some tasks may abort polling.
    pub leaves: bool,
}

impl KernelShape {
    /// Stages in flight for tasks that the consumer warps have not begun, at most: one more where
    /// prefetched stages make room.
    pub fn in_flight(&self) -> u32 {
        self.options.in_flight.saturating_add(u32::from(self.prefetched_stages > 0))
    }
}

/// Positions and page tables, the same for all tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellsPlan {
    /// Where the positions begin in the state, in units of 16 bytes.
    pub position: u32,
    /// Where the page tables begin in the state, in units of 16 bytes.
    pub table: u32,
    /// Rows.
    pub rows: u32,
    /// Tokens of a page.
    pub page_tokens: u32,
}

impl CellsPlan {
    /// Entries of a row of the page table that a block keeps, the first ones: later ones are read
    /// where they lie.
    pub fn near(&self) -> u32 {
        (NEAR[usize::from(self.rows > 2)] / self.rows.max(1)).max(1)
    }

    /// Numbers of a step: positions, the page tables' first entries, and the immutable prefix of
    /// each row.
    pub fn numbers(&self) -> u32 {
        self.rows * (self.near() + 2)
    }
}

/// Byte offsets of the step inputs that a launch of several steps feeds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The token of every row.
    pub token: u64,
    /// Its position.
    pub position: u64,
    /// The next token of every row.
    pub next_token: u64,
    /// What every row asks for, where the program samples.
    pub request: Option<u64>,
    /// Tokens of a row's mask, where the machine takes masks.
    pub mask_tokens: Option<u32>,
}
