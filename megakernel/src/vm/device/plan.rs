//! The plan: a placed program in the form that the generated kernel reads. Opcodes, tables, the
//! order of the weights, memory.

use crate::edges::ChosenEdges;
use tilewright_codegen::ir::Arch;
use tilewright_kernels::gemv::linear::HeldForm;
use tilewright_kernels::gemv::{Codes, Deal};

use super::planner::Planner;
use super::record::SECTION_TASKS;
use super::{BlockRecord, DeviceOptions, Opcode, OrderTable, Places};
use crate::validate::Placed;
use crate::vm::resident::stream::TILE_BYTES;
use crate::vm::resident::{RotationTable, Stream};
use crate::vm::unsupported::one_device;
use crate::vm::{Lengths, NoFeedback, Unsupported};

/// Entries of page tables that a block keeps in shared memory, of all rows together: of one and two
/// rows, whose programs have most stages in the ring, and of more.
const NEAR: [u32; 2] = [256, 1024];

/// A placed program in the form that the generated kernel reads.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The choices it was made with; `stages` as shared memory allows, and nothing that the
    /// architecture lacks.
    pub options: DeviceOptions,
    /// The architecture that code is generated for.
    pub arch: Arch,
    /// Blocks of a device: one for each SM of the target.
    pub blocks: u32,
    /// Devices, which run the kernel side by side.
    pub devices: u32,
    /// Opcodes.
    pub opcodes: Vec<Opcode>,
    /// Counters of the program; those of the machine's own follow.
    pub counters: u32,
    /// Each block's share of the tables, device by device.
    pub directory: Vec<BlockRecord>,
    /// The tables of all blocks.
    pub tables: Vec<u8>,
    /// The weights that are streamed, and in which order.
    pub streams: Vec<Stream>,
    /// The stage placements; each record names one.
    pub deals: Vec<Deal>,
    /// Bytes of the largest device's packed weights.
    pub packed_bytes: u64,
    /// The edges between tasks, with transports and layouts.
    pub edges: ChosenEdges,
    /// The layout of all other buffers.
    pub places: Places,
    /// Tables of rotations: frequencies, factor, positions, and where they begin in the plain
    /// weights, bytes.
    pub rotations: Vec<RotationTable>,
    /// Tables of the orders of weights.
    pub orders: Vec<OrderTable>,
    /// Bytes of the plain weights with the tables of rotations and orders.
    pub plain_bytes: u64,
    /// Bytes of a stage of the ring: those of [`DeviceOptions::stage_bytes`], or more where factors
    /// lie after codes.
    pub slot_bytes: u32,
    /// Bytes of shared memory for activations.
    pub operand_bytes: u32,
    /// Bytes of shared memory for the tables of a block.
    pub table_bytes: u32,
    /// Bytes of a section of them, where a block brings them section by section.
    pub section_bytes: Option<u32>,
    /// Bytes of a task's record in the tables: those of a [`TaskRecord`](super::TaskRecord) that
    /// the program's ops have fields for.
    pub record_bytes: u32,
    /// Rows of the batch.
    pub rows: u32,
    /// Positions and page tables that a block keeps in shared memory, if they are the same for all
    /// tasks.
    pub cells: Option<CellsPlan>,
    /// Whether some tasks take a part of each of their strips, or part by part.
    pub parts: bool,
    /// Whether some tasks look for their activations without waiting for signals.
    pub looks_at_once: bool,
    /// The lengths that a launch takes as parameters: the code does not depend on them.
    pub lengths: Lengths,
    /// The cells that a launch of many steps feeds back, or why it feeds none.
    pub feedback: Result<Feedback, NoFeedback>,
}

/// Positions and page tables, the same for all tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellsPlan {
    /// The offset of the positions in the state, in units of 16 bytes.
    pub position: u32,
    /// The offset of the page tables in the state, in units of 16 bytes.
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
    /// The sampling requests, if the program samples.
    pub request: Option<u64>,
}

impl Plan {
    /// Bytes of a device's packed weights.
    pub fn packed_of(&self, device: usize) -> u64 {
        let last = self.streams.iter().rfind(|stream| stream.device == device);
        last.map_or(0, |last| (last.start + last.tiles()) * TILE_BYTES)
    }

    /// The shares of a device's blocks in the tables.
    pub fn directory_of(&self, device: usize) -> &[BlockRecord] {
        self.directory.chunks(self.blocks.max(1) as usize).nth(device).unwrap_or_default()
    }

    /// The offset of a task's record in the tables, by its block and its place in the block's
    /// queue.
    pub fn record_place(&self, block: &BlockRecord, index: usize) -> usize {
        let (section, index) = match self.section_bytes {
            Some(bytes) => (index / SECTION_TASKS as usize * bytes as usize, index % SECTION_TASKS as usize),
            None => (0, index),
        };
        block.start as usize + section + index * self.record_bytes as usize
    }

    /// Tasks of the longest queue.
    pub fn longest_queue(&self) -> u32 {
        self.directory.iter().map(|block| block.tasks).max().unwrap_or(0)
    }

    /// Stages of a task that the team holds, at most: 0 where no task holds any.
    pub(super) fn held_stages(&self) -> u32 {
        self.opcodes.iter().map(|opcode| self.held_of(opcode)).max().unwrap_or(0)
    }

    /// Stages that tasks of an opcode prefetch, at most.
    pub(super) fn held_of(&self, opcode: &Opcode) -> u32 {
        if opcode.holds_stages().is_some() { self.options.hold() } else { 0 }
    }

    /// The form of register prefetch that covers all tasks; `None` if no task uses it.
    pub(super) fn held_forms(&self) -> Option<HeldForm> {
        self.opcodes.iter().filter_map(|opcode| opcode.holds_stages()).reduce(HeldForm::or)
    }

    /// Whether some tasks may go on without packets.
    pub(super) fn leaves(&self) -> bool {
        self.looks_at_once || self.opcodes.iter().any(|opcode| opcode.polls_peers())
    }

    /// Whether some stages have fewer bytes than half of the largest.
    pub(super) fn has_small_stages(&self) -> bool {
        self.streams.iter().any(|stream| stream.strip.codes().is_some() && self.is_small(stream.strip.stage_bytes()))
    }

    /// Whether activations may meet codes as f16.
    pub(super) fn has_halves(&self) -> bool {
        let has = |codes: Codes| self.rows > 4 || !codes.code.is_integer();
        self.streams.iter().any(|stream| stream.strip.codes().is_some_and(has))
    }

    /// Whether some tasks take a part of each of their strips, or part by part.
    pub(super) fn has_parts(&self) -> bool {
        self.parts
    }

    /// Whether some tasks' strips come two a stage.
    pub(super) fn has_pairs(&self) -> bool {
        self.opcodes.iter().any(|opcode| opcode.takes_pairs().is_some())
    }

    fn is_small(&self, bytes: u32) -> bool {
        bytes <= self.small_bytes()
    }

    /// Bytes of a stage of which twice as many may be in flight.
    pub(super) fn small_bytes(&self) -> u32 {
        self.slot_bytes * 5 / 8
    }

    /// Stages in flight for tasks that the team has not come to, at most: one more where it makes
    /// room by holding stages.
    pub(super) fn in_flight(&self) -> u32 {
        self.options.in_flight.saturating_add(u32::from(self.held_stages() > 0))
    }

    /// Plans a placed program. Packets are used where the order that remains without their releases
    /// is the validator's for all other memory; elsewhere every signal releases.
    ///
    /// # Errors
    /// If the program has ops, shapes or types that the device functions do not have.
    pub fn new(placed: &Placed, options: DeviceOptions) -> Result<Plan, Unsupported> {
        if options.propose {
            one_device(placed)?;
        }
        match Planner::new(placed, options)?.plan() {
            // Without packets every signal releases and every wait acquires.
            Err(Unsupported::Unordered { .. }) if options.packets => {
                Planner::new(placed, DeviceOptions { packets: false, ..options })?.plan()
            }
            plan => plan,
        }
    }
}
