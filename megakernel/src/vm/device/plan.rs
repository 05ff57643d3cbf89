//! The plan: a placed program in the form that the generated kernel reads. Opcodes, tables, the
//! order of the weights, memory.

use crate::edges::ChosenEdges;
use tilewright_codegen::ir::Arch;
use tilewright_kernels::weights::{PrefetchForm, StagePlacement};

use super::record::SECTION_TASKS;
use super::shape::{CellsPlan, Feedback, KernelShape};
use super::{BlockRecord, DeviceOptions, Opcode, OrderTable, Places};
use crate::vm::resident::stream::TILE_BYTES;
use crate::vm::resident::{RotationTable, Stream};
use crate::vm::{Lengths, NoFeedback};

/// A placed program in the form that the generated kernel reads.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The choices it was made with, of them nothing that the architecture lacks; the thresholds
    /// have the stages that shared memory allows.
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
    pub placements: Vec<StagePlacement>,
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
    /// Whether some tasks poll for their activations without waiting for a semaphore.
    pub skips_semaphores: bool,
    /// The lengths that a launch takes as parameters: the code does not depend on them.
    pub lengths: Lengths,
    /// The cells that a launch of many steps feeds back, or why it feeds none.
    pub feedback: Result<Feedback, NoFeedback>,
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

    /// Tokens of a row's mask, where the machine takes masks.
    pub(super) fn masked_tokens(&self) -> Option<u32> {
        self.feedback.as_ref().ok()?.mask_tokens
    }

    /// Tasks of the longest queue.
    pub fn longest_queue(&self) -> u32 {
        self.directory.iter().map(|block| block.tasks).max().unwrap_or(0)
    }

    /// What the kernel is generated for, besides the device functions.
    pub(super) fn shape(&self) -> KernelShape {
        let opcodes = &self.opcodes;
        let prefetches = opcodes.iter().any(|opcode| opcode.prefetch_form().is_some());
        let codes = || self.streams.iter().filter_map(|stream| Some((stream, stream.strip.codes()?)));
        let small_bytes = self.slot_bytes * 5 / 8;
        KernelShape {
            options: self.options,
            blocks: self.blocks,
            devices: self.devices,
            counters: self.counters,
            opcodes: opcodes.len() as u32,
            placements: self.placements.clone(),
            slot_bytes: self.slot_bytes,
            small_bytes,
            operand_bytes: self.operand_bytes,
            table_bytes: self.table_bytes,
            section_bytes: self.section_bytes,
            record_bytes: self.record_bytes,
            longest_queue: self.longest_queue(),
            rows: self.rows,
            cells: self.cells,
            feedback: self.feedback.ok(),
            prefetched_stages: if prefetches { self.options.prefetch() } else { 0 },
            prefetched_form: opcodes.iter().filter_map(|opcode| opcode.prefetch_form()).reduce(PrefetchForm::or),
            fills_stages: opcodes.iter().any(|opcode| opcode.fills()),
            has_parts: self.parts,
            has_pairs: opcodes.iter().any(|opcode| opcode.takes_pairs().is_some()),
            has_small_stages: codes().any(|(stream, _)| stream.strip.stage_bytes() <= small_bytes),
            has_halves: codes().any(|(_, codes)| self.rows > 4 || !codes.code.is_integer()),
            skips_semaphores: self.skips_semaphores,
            leaves: self.skips_semaphores || opcodes.iter().any(|opcode| opcode.polls_peers()),
        }
    }
}
