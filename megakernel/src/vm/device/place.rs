//! The layout of buffers in device memory.

use crate::edges::ChosenEdges;
use crate::edges::Merge;
use tilewright_kernels::attention::split::Merged;

use crate::program::{Buffer, BufferId, BufferKind, Program};
use crate::vm::Unsupported;
use crate::vm::cells::cell_roles;
use crate::vm::resident::kv::{ALIGN, bytes};

/// The parts of device memory that a kernel gets a pointer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Weights that are read as they are: norms, biases, tables.
    Plain,
    /// Activations, cells, inputs, outputs.
    State,
    /// Keys and values.
    Pools,
}

/// The offset of every buffer in its space, and the sizes of the spaces, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    offsets: Vec<u64>,
    /// For each buffer of partial sums, the offsets of its merge, and of its arrival counters or
    /// the flagged words of parts.
    merged: Vec<(BufferId, [u64; 2])>,
    /// The offsets of the current token's queries, keys and values.
    current_token: [u64; 3],
    /// For each split activation, the offsets of its terms and of its sums of squares.
    scaled: Vec<(BufferId, [u64; 2])>,
    /// Bytes of the plain weights, tables of rotations not counted.
    pub plain: u64,
    /// Bytes of the state.
    pub state: u64,
    /// Bytes of the pools.
    pub pools: u64,
}

impl Places {
    /// Lays out the buffers: activations that share an arena where the program says, everything
    /// else one after the other. Page tables come last, so that the places of the others do not
    /// depend on the length of sequences.
    ///
    /// A buffer of packets takes twice its bytes.
    pub fn new(program: &Program, edges: &ChosenEdges, plain: impl Fn(&Buffer) -> bool) -> Places {
        let arena = program.buffers.iter().filter_map(|b| Some(b.arena? + bytes(b))).max().unwrap_or(0);
        let state = arena.next_multiple_of(ALIGN);
        let tables = cell_roles(program).page_table;
        let offsets = Vec::new();
        let merged = Vec::new();
        let scaled = Vec::new();
        let mut places = Places { offsets, merged, current_token: [0; 3], scaled, plain: 0, state, pools: 0 };
        // Devices have pools of their own at the same places; of everything else, which is small,
        // each has room for all.
        let mut pools = vec![0; program.devices.max(1)];
        for buffer in &program.buffers {
            if tables.contains(&buffer.id) && buffer.arena.is_none() {
                places.offsets.push(u64::MAX);
                continue;
            }
            let end = match space(buffer) {
                Space::Plain if !plain(buffer) => {
                    places.offsets.push(u64::MAX);
                    continue;
                }
                Space::Plain => &mut places.plain,
                Space::State => &mut places.state,
                Space::Pools => {
                    &mut pools[buffer.device.map_or(0, |device| device.index()).min(program.devices.saturating_sub(1))]
                }
            };
            places.offsets.push(buffer.arena.unwrap_or(*end));
            if buffer.arena.is_none() {
                let is_packets = edges.period(buffer.id) > 0 && edges.merge_of(buffer.id).is_none();
                let times = if is_packets { 2 } else { 1 };
                *end = (*end + times * bytes(buffer)).next_multiple_of(ALIGN);
            }
        }
        places.pools = pools.into_iter().max().unwrap_or(0);
        for merge in edges.merges() {
            let acc = merge.acc;
            let word = merge.float.bytes() * if edges.period(acc) > 0 { 2 } else { 1 };
            let arrivals =
                places.state + (u64::from(merge.rows * merge.width) * u64::from(word)).next_multiple_of(ALIGN);
            places.merged.push((acc, [places.state, arrivals]));
            let parts = if edges.splits_are_flagged() {
                let Merge { rows, heads, splits, width, .. } = merge;
                Merged::packet_bytes(rows * heads * splits, width / heads.max(1)).next_multiple_of(ALIGN)
            } else {
                u64::from(merge.rows * merge.kv_heads * Merged::ARRIVAL) * 4
            };
            places.state = arrivals + parts;
        }
        places.current_token = edges.token_bytes(program).map(|bytes| {
            let start = places.state;
            places.state = (start + bytes).next_multiple_of(ALIGN);
            start
        });
        for (stream, bytes) in edges.split_buffers() {
            let [terms, squares] = bytes.map(|bytes| bytes.next_multiple_of(ALIGN));
            let start = places.state.next_multiple_of(ALIGN);
            places.scaled.push((stream, [start, start + terms]));
            places.state = start + terms + squares;
        }
        for buffer in program.buffers.iter().filter(|buffer| tables.contains(&buffer.id) && buffer.arena.is_none()) {
            places.offsets[buffer.id.index()] = places.state;
            places.state = (places.state + bytes(buffer)).next_multiple_of(ALIGN);
        }
        places
    }

    /// Offset of a buffer in its space, bytes.
    pub fn offset(&self, buffer: BufferId) -> u64 {
        self.offsets.get(buffer.index()).copied().unwrap_or(u64::MAX)
    }

    /// The offset in units of 16 bytes, as records have it.
    pub(super) fn operand(&self, buffer: BufferId) -> Result<u32, Unsupported> {
        match self.offset(buffer) {
            u64::MAX => Err(Unsupported::Packed { buffer }),
            offset => Places::strips(buffer, offset),
        }
    }

    /// The operands of the merge of partial sums, and of its arrival counters or the flagged words
    /// of parts, in units of 16 bytes.
    pub(super) fn merged(&self, acc: BufferId) -> Result<[u32; 2], Unsupported> {
        let found = self.merged.iter().find(|(buffer, _)| *buffer == acc);
        let [out, arrivals] = found.map_or([u64::MAX; 2], |(_, places)| *places);
        Ok([Places::strips(acc, out)?, Places::strips(acc, arrivals)?])
    }

    /// The operands of the current token's flagged words, in units of 16 bytes: queries, keys,
    /// values.
    pub(super) fn current_token(&self) -> [u32; 3] {
        self.current_token.map(|offset| (offset / 16) as u32)
    }

    /// The operands of split activations and of their sums of squares, in units of 16 bytes.
    pub(super) fn scaled(&self, stream: BufferId) -> Result<[u32; 2], Unsupported> {
        let found = self.scaled.iter().find(|(buffer, _)| *buffer == stream);
        let [terms, squares] = found.map_or([u64::MAX; 2], |(_, places)| *places);
        Ok([Places::strips(stream, terms)?, Places::strips(stream, squares)?])
    }

    fn strips(buffer: BufferId, offset: u64) -> Result<u32, Unsupported> {
        match u32::try_from(offset / 16) {
            Ok(operand) if offset.is_multiple_of(16) => Ok(operand),
            _ => Err(Unsupported::Offset { buffer, offset }),
        }
    }
}

/// The space of a buffer.
pub fn space(buffer: &Buffer) -> Space {
    match buffer.kind {
        BufferKind::Weight => Space::Plain,
        BufferKind::KvPool => Space::Pools,
        BufferKind::Activation | BufferKind::Cell | BufferKind::Input | BufferKind::Output => Space::State,
    }
}
