//! What the launches of a machine read and write on its device.

use std::collections::HashMap;

use half::bf16;
use tilewright_codegen::device::{Buffer, Device, DeviceError, Mapped, Stream};
use tilewright_kernels::quant::{QuantMatrix, Widen};
use tilewright_kernels::sample::{Request, mask_pitch};

use super::launch::{LaunchMemory, Scratch};
use super::plan::GraphPlan;
use super::plan::LINES;
use crate::program::{BufferId, BufferKind, Program};
use crate::vm::resident::DeviceKv;
use crate::vm::resident::stored::{self, BoundWeights};
use crate::vm::{LoadError, MAX_ENDS};

/// A quantised matrix as [`Widen`] reads it.
#[derive(Clone)]
pub(super) struct Codes {
    codes: Buffer<u8>,
    factors: Buffer<f32>,
    order: Option<Buffer<u32>>,
}

/// A plan, the program that it computes, and this program's weights.
#[derive(Clone, Copy)]
pub(super) struct BoundPlan<'a> {
    /// The launches.
    pub plan: &'a GraphPlan,
    /// The program that the launches compute.
    pub program: &'a Program,
    /// The weights of the program.
    pub weights: &'a BoundWeights,
}

/// The matrices of a plan: those of bf16 in its order, those of codes, and the packed weights.
pub(super) struct Sent {
    pub matrices: Vec<Buffer<bf16>>,
    pub codes: HashMap<BufferId, Codes>,
    pub prepacked: Option<Buffer<bf16>>,
}

impl Codes {
    pub fn send(stream: &Stream, matrix: &QuantMatrix) -> Result<Codes, DeviceError> {
        let widen = Widen::of(matrix);
        let order = matrix.order().map(|order| stream.buffer(order)).transpose()?;
        Ok(Codes {
            codes: stream.buffer(&widen.codes(matrix))?,
            factors: stream.buffer(&widen.factors(matrix))?,
            order,
        })
    }

    pub fn bytes(&self) -> u64 {
        self.codes.bytes() + self.factors.bytes() + self.order.as_ref().map_or(0, Buffer::bytes)
    }
}

/// What the launches of a machine read and write.
pub(super) struct GraphMemory {
    matrices: Vec<Buffer<bf16>>,
    codes: HashMap<BufferId, Codes>,
    prepacked: Option<Buffer<bf16>>,
    biases: Vec<Buffer<bf16>>,
    rotations: Vec<Buffer<f32>>,
    plain: HashMap<BufferId, Buffer<u8>>,
    pub scratch: HashMap<Scratch, Buffer<u8>>,
    pools: HashMap<BufferId, Buffer<u8>>,
    pub cells: HashMap<BufferId, Buffer<i32>>,
    pub query_starts: Buffer<u32>,
    pub token_starts: Buffer<u32>,
    pub tables: Buffer<i32>,
    /// Tokens that rows see which are sequences of their own.
    pub lengths: Buffer<u32>,
    /// Rows whose tokens are chosen, what is chosen, and by what.
    pub wanted: Buffer<i32>,
    pub chosen: Buffer<u32>,
    pub requests: Buffer<Request>,
    pub ends: Buffer<i32>,
    /// Masks of rows, where these may have some.
    pub masks: Option<MaskMemory>,
    /// Steps that fed the next, and their tokens, where the host reads them while later steps run.
    pub steps: Buffer<u32>,
    pub history: Mapped<u32>,
    pub kv: DeviceKv,
    /// The activations of all devices, by device, where there are several.
    pub peers: Vec<HashMap<Scratch, Buffer<u8>>>,
}

/// Memory of masks.
pub(super) struct MaskMemory {
    /// Whether each row has one.
    pub masked: Buffer<u32>,
    /// Tickets and masks of the rows.
    pub words: Mapped<u32>,
}

impl MaskMemory {
    pub fn new(device: &Device, stream: &Stream, rows: u32, tokens: u32) -> Result<MaskMemory, DeviceError> {
        let masked = stream.buffer(&vec![0u32; rows as usize])?;
        let words = device.mapped((rows * mask_pitch(tokens)) as usize)?;
        Ok(MaskMemory { masked, words })
    }
}

/// A buffer whatever its type is.
#[derive(Clone)]
pub(super) enum AnyBuffer {
    Bf16(Buffer<bf16>),
    F32(Buffer<f32>),
    U32(Buffer<u32>),
    I32(Buffer<i32>),
    Bytes(Buffer<u8>),
    /// Of another device, whose memory this one reaches.
    Peer(Buffer<u8>),
    /// The host's.
    Mapped(Mapped<u32>),
}

impl GraphMemory {
    pub(super) fn new(
        device: &Device,
        stream: &Stream,
        bound_plan: BoundPlan<'_>,
        sent: Sent,
        kv: Option<&DeviceKv>,
    ) -> Result<GraphMemory, LoadError> {
        let BoundPlan { plan, program, weights } = bound_plan;
        let Sent { matrices, codes, prepacked } = sent;
        let kv = match kv {
            Some(kv) => kv.clone(),
            None => DeviceKv::allocate(program, 0, &[(device, stream)])?,
        };
        let mut pools = HashMap::new();
        for id in plan.pools() {
            pools.insert(id, kv.pool_of(&program.buffers[id.index()])?);
        }
        let mut cells = HashMap::new();
        for buffer in program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::Cell) {
            cells.insert(buffer.id, stream.buffer(&vec![0i32; elements(program, buffer.id)])?);
        }
        let mut plain = HashMap::new();
        for &buffer in &plan.plain {
            plain.insert(buffer, stream.buffer(&weights.bytes(buffer)[..])?);
        }
        let mut scratch = HashMap::new();
        for &(which, bytes) in &plan.scratch {
            // Products of all rows also read rows that no launch computes; their contents do not
            // matter.
            let buffer = device.buffer::<u8>(bytes as usize)?;
            stream.fill(&buffer, 0)?;
            scratch.insert(which, buffer);
        }
        let biases = plan.biases.iter().map(|parts| stream.buffer(&stored::biases(parts, weights)));
        let rotations = plan.rotations.iter().map(|table| stream.buffer(&stored::rotation(table, weights)));
        let biases = biases.collect::<Result<_, _>>()?;
        let rotations = rotations.collect::<Result<_, _>>()?;
        let rows = plan.rows as usize;
        let widths = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::Cell && buffer.shape.len() == 2);
        let tables = widths.map(|buffer| buffer.shape[1]).max().unwrap_or(1) * rows;
        let query_starts = device.buffer(rows + 1)?;
        let token_starts = device.buffer(rows + 1)?;
        let tables = stream.buffer(&vec![0i32; tables])?;
        let choices = plan.choice.as_ref().map_or(1, |choice| choice.rows as usize);
        let lengths = stream.buffer(&vec![0u32; rows])?;
        let wanted = stream.buffer(&vec![-1i32; choices])?;
        let chosen = device.buffer(choices)?;
        let requests = stream.buffer(&vec![Request::default(); choices])?;
        let ends = stream.buffer(&vec![-1i32; choices * MAX_ENDS])?;
        let masks = plan.mask_tokens().map(|tokens| MaskMemory::new(device, stream, plan.rows, tokens)).transpose()?;
        let steps = stream.buffer(&[0u32])?;
        let history = device.mapped(choices * LINES)?;
        Ok(GraphMemory {
            matrices,
            codes,
            prepacked,
            biases,
            rotations,
            plain,
            scratch,
            pools,
            cells,
            query_starts,
            token_starts,
            tables,
            lengths,
            wanted,
            chosen,
            requests,
            ends,
            masks,
            steps,
            history,
            kv,
            peers: Vec::new(),
        })
    }

    /// The memory that a launch names; `None` for memory that the machine holds elsewhere.
    pub fn get(&self, memory: LaunchMemory) -> Option<AnyBuffer> {
        Some(match memory {
            LaunchMemory::Scratch(which) => AnyBuffer::Bytes(self.scratch.get(&which)?.clone()),
            LaunchMemory::Of { device, scratch, first } => {
                let buffer = self.peers.get(device as usize)?.get(&scratch)?;
                AnyBuffer::Peer(buffer.slice(first as usize..buffer.len()).ok()?)
            }
            LaunchMemory::NormedRow | LaunchMemory::Logits | LaunchMemory::Tokens | LaunchMemory::Positions => {
                return None;
            }
            LaunchMemory::Matrix(at) => AnyBuffer::Bf16(self.matrices.get(at)?.clone()),
            LaunchMemory::Packed { first, len } => {
                let range = first as usize..(first + len) as usize;
                AnyBuffer::Bf16(self.prepacked.as_ref()?.slice(range).ok()?)
            }
            LaunchMemory::Codes(buffer) => AnyBuffer::Bytes(self.codes.get(&buffer)?.codes.clone()),
            LaunchMemory::Factors(buffer) => AnyBuffer::F32(self.codes.get(&buffer)?.factors.clone()),
            LaunchMemory::Order(buffer) => AnyBuffer::U32(self.codes.get(&buffer)?.order.clone()?),
            LaunchMemory::Bias(at) => AnyBuffer::Bf16(self.biases.get(at)?.clone()),
            LaunchMemory::Plain(buffer) => AnyBuffer::Bytes(self.plain.get(&buffer)?.clone()),
            LaunchMemory::Rotation(at) => AnyBuffer::F32(self.rotations.get(at)?.clone()),
            LaunchMemory::Pool(buffer) => AnyBuffer::Bytes(self.pools.get(&buffer)?.clone()),
            LaunchMemory::Cell(buffer) => AnyBuffer::I32(self.cells.get(&buffer)?.clone()),
            LaunchMemory::QueryStarts => AnyBuffer::U32(self.query_starts.clone()),
            LaunchMemory::TokenStarts => AnyBuffer::U32(self.token_starts.clone()),
            LaunchMemory::SequenceTables => AnyBuffer::I32(self.tables.clone()),
            LaunchMemory::Lengths => AnyBuffer::U32(self.lengths.clone()),
            LaunchMemory::WantedRows => AnyBuffer::I32(self.wanted.clone()),
            LaunchMemory::Chosen => AnyBuffer::U32(self.chosen.clone()),
            LaunchMemory::Requests => AnyBuffer::Bytes(self.requests.cast().ok()?),
            LaunchMemory::Masked => AnyBuffer::U32(self.masks.as_ref()?.masked.clone()),
            LaunchMemory::Masks => AnyBuffer::Mapped(self.masks.as_ref()?.words.clone()),
            LaunchMemory::Ends => AnyBuffer::I32(self.ends.clone()),
            LaunchMemory::Steps => AnyBuffer::U32(self.steps.clone()),
            LaunchMemory::History => AnyBuffer::Mapped(self.history.clone()),
        })
    }
}

/// The number of elements of a buffer.
pub(super) fn elements(program: &Program, buffer: BufferId) -> usize {
    program.buffers[buffer.index()].elements().unwrap_or(0)
}
