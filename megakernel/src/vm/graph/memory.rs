//! The memory on the device: matrices and kernels that machines of one model share, and each
//! machine's own activations and step inputs.

use std::collections::HashMap;
use std::sync::Arc;

use half::bf16;
use tilewright_codegen::device::{Buffer, Device, DeviceError, Mapped, Stream};
use tilewright_kernels::quant::{QuantMatrix, Widen};
use tilewright_kernels::sample::Request;

use super::kernels::LazyKernels;
use super::launch::{LaunchMemory, Scratch};
use super::machine::GraphMachine;
use super::plan::{GraphPlan, GraphTarget};
use super::run::LINES;
use super::tuning::{Exchange, GraphOptions, GraphTuning, ProductTuning};
use crate::lower::StepPlan;
use crate::program::{self, BufferId, BufferKind, Program};
use crate::vm::resident::stored::{self, BoundWeights};
use crate::vm::resident::{DeviceKernels, DeviceKv, DeviceWeights, Packed};
use crate::vm::unsupported::one_device;
use crate::vm::{LoadError, MAX_ENDS, Unsupported};
use crate::weights::Weights;

/// A model's weights row by row on a device, and the kernels of its graphs: once for all machines.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use tilewright_codegen::device::Device;
/// # use tilewright_megakernel::{lower::StepPlan, vm::device::DeviceMachine, vm::graph::GraphWeights, weights::Weights};
/// # use tilewright_megakernel::vm::StepCells;
/// # fn run(device: Device, weights: Arc<dyn Weights + Send + Sync>, wide: StepPlan, decode: &mut DeviceMachine, chunk: StepCells,
/// #     next: StepCells) -> Result<(), Box<dyn std::error::Error>> {
/// let mut weights = GraphWeights::new(device, weights);
/// let mut prompts = weights.machine(wide, Some(decode.kv()), &mut |_, _| ())?;
/// prompts.step(&chunk, &[511], &mut |row, logits| println!("{row}: {}", logits[0]))?;
/// decode.step(&next)?;
/// # Ok(())
/// # }
/// ```
pub struct GraphWeights {
    device: Device,
    weights: Arc<dyn Weights + Send + Sync>,
    matrices: Vec<(Vec<program::Buffer>, Buffer<bf16>)>,
    codes: Vec<(program::Buffer, Codes)>,
    packed: Option<(Packed, Buffer<bf16>)>,
    kernels: DeviceKernels,
    tuning: Option<GraphTuning>,
    products: Vec<ProductTuning>,
    exchange: Exchange,
}

/// A quantised matrix as [`Widen`] reads it.
#[derive(Clone)]
struct Codes {
    codes: Buffer<u8>,
    factors: Buffer<f32>,
    order: Option<Buffer<u32>>,
}

/// A plan, the program that it computes, and this program's weights.
#[derive(Clone, Copy)]
struct BoundPlan<'a> {
    /// The launches.
    plan: &'a GraphPlan,
    /// The program that the launches compute.
    program: &'a Program,
    /// The weights of the program.
    weights: &'a BoundWeights,
}

/// The matrices of a plan: those of bf16 in its order, those of codes, and the packed weights.
struct Sent {
    matrices: Vec<Buffer<bf16>>,
    codes: HashMap<BufferId, Codes>,
    prepacked: Option<Buffer<bf16>>,
}

impl Codes {
    fn send(stream: &Stream, matrix: &QuantMatrix) -> Result<Codes, DeviceError> {
        let widen = Widen::of(matrix);
        let order = matrix.order().map(|order| stream.buffer(order)).transpose()?;
        Ok(Codes {
            codes: stream.buffer(&widen.codes(matrix))?,
            factors: stream.buffer(&widen.factors(matrix))?,
            order,
        })
    }

    fn bytes(&self) -> u64 {
        self.codes.bytes() + self.factors.bytes() + self.order.as_ref().map_or(0, Buffer::bytes)
    }
}

impl GraphWeights {
    /// Creates weights that are copied to the device with the first machine.
    pub fn new(device: Device, weights: Arc<dyn Weights + Send + Sync>) -> GraphWeights {
        let matrices = Vec::new();
        let codes = Vec::new();
        let kernels = DeviceKernels::new(&device);
        let packed = None;
        let tuning = None;
        let products = Vec::new();
        let exchange = Exchange::default();
        GraphWeights { device, weights, matrices, codes, packed, kernels, tuning, products, exchange }
    }

    /// Machines that are made from now on read the packed weights of these machines where they can:
    /// products of up to 64 rows on sm_90a. A machine of no more rows than that has no other copy
    /// of them.
    ///
    /// Nothing changes where nothing is packed yet, or its stages are dealt
    /// ([`Dealing`](crate::vm::resident::Dealing)).
    pub fn share(&mut self, weights: &DeviceWeights) {
        self.share_of(weights, 0);
    }

    /// Shares the packed weights of device number `device`.
    pub(super) fn share_of(&mut self, weights: &DeviceWeights, device: usize) {
        if let Some((packed, prepacked)) = weights.packed()
            && let Some(prepacked) = prepacked.get(device)
        {
            self.packed = Some((packed.clone(), prepacked.clone()));
        }
    }

    /// The packed weights on the device.
    pub(super) fn packed(&self) -> Option<&Packed> {
        self.packed.as_ref().map(|(packed, _)| packed)
    }

    /// Shares kernels with other machines, compiled or being compiled.
    #[must_use]
    pub fn with_kernels(self, kernels: &DeviceKernels) -> GraphWeights {
        GraphWeights { kernels: kernels.clone(), ..self }
    }

    /// Attention of machines that are made from now on is cut so, or as [`GraphTuning::of`] has it.
    pub fn tune(&mut self, tuning: Option<GraphTuning>) {
        self.tuning = tuning;
    }

    /// Products of machines that are made from now on have these settings.
    pub fn tune_products(&mut self, products: Vec<ProductTuning>) {
        self.products = products;
    }

    /// Machines of several devices that are made from now on add up parts so.
    pub fn set_exchange(&mut self, exchange: Exchange) {
        self.exchange = exchange;
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes of matrices that are on the device.
    pub fn bytes(&self) -> u64 {
        let matrices: u64 = self.matrices.iter().map(|(_, matrix)| matrix.bytes()).sum();
        matrices + self.codes.iter().map(|(_, codes)| codes.bytes()).sum::<u64>()
    }

    /// The kernels of its machines.
    pub fn kernels(&self) -> &DeviceKernels {
        &self.kernels
    }

    /// The plan of a step's machine, which shares a decode machine's packed weights, if there are
    /// any: they need not be on the device.
    ///
    /// # Errors
    /// If no launches compute the step.
    pub fn plan(&self, step: &StepPlan, packed: Option<&Packed>) -> Result<GraphPlan, Unsupported> {
        one_device(step)?;
        self.plan_of(step, 0, packed)
    }

    /// The plan of one of a step's devices.
    pub(super) fn plan_of(
        &self,
        step: &StepPlan,
        device: usize,
        packed: Option<&Packed>,
    ) -> Result<GraphPlan, Unsupported> {
        let properties = self.device.properties();
        let arch = properties.arch().ok_or_else(|| Unsupported::Target { target: properties.name.clone() })?;
        let target = GraphTarget { arch, multiprocessors: properties.sms };
        let options = GraphOptions { attention: self.tuning, products: &self.products, exchange: self.exchange };
        GraphPlan::of_device(step, device, target, packed, options)
    }

    pub(super) fn weights(&self) -> &dyn Weights {
        &*self.weights
    }

    /// Makes a machine. It uses the pools `kv`, or new ones.
    ///
    /// `progress` is told how many bytes of weights are on their way, and of how many; it is not
    /// called where they are on the device already.
    ///
    /// # Errors
    /// If no launches compute the step, a weight is missing, the pools are not those that the
    /// step wants, or the device fails or has too little memory.
    pub fn machine(
        &mut self,
        step: StepPlan,
        kv: Option<&DeviceKv>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<GraphMachine, LoadError> {
        let plan = self.plan(&step, self.packed())?;
        let bound = BoundWeights::new(&step, &*self.weights)?;
        self.machine_of(step, plan, &bound, kv, progress)
    }

    /// A machine of a plan.
    pub(super) fn machine_of(
        &mut self,
        step: StepPlan,
        plan: GraphPlan,
        bound: &BoundWeights,
        kv: Option<&DeviceKv>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<GraphMachine, LoadError> {
        self.room(&plan, &step, kv)?;
        let stream = self.device.stream()?;
        // The driver compiles what prompts need while the weights are on their way, and the rest
        // when it is launched.
        let device = &self.device;
        let kernels = LazyKernels::new(&self.kernels, &plan.kernels)?;
        let bound_plan = BoundPlan { plan: &plan, program: &step, weights: bound };
        let (compiled, matrices) = std::thread::scope(|scope| {
            let compiled = scope.spawn(|| kernels.compile(plan.of_prompts()));
            let matrices = matrices(device, &stream, &mut self.matrices, bound_plan, progress);
            (compiled.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), matrices)
        });
        compiled?;
        for &part in &plan.codes {
            let key = program::Buffer { id: BufferId(0), ..step.buffers[part.index()].clone() };
            if let (false, Some(matrix)) = (self.codes.iter().any(|(known, _)| *known == key), bound.codes(part)) {
                self.codes.push((key, Codes::send(&stream, matrix)?));
            }
        }
        let prepacked = self.packed.as_ref().map(|(_, prepacked)| prepacked.clone());
        let sent = Sent { matrices: matrices?, codes: self.codes_of(&plan, &step), prepacked };
        let memory = GraphMemory::new(&self.device, &stream, bound_plan, sent, kv)?;
        GraphMachine::new(step, plan, kernels, memory, self.device.clone(), stream)
    }

    /// The quantised matrices of a plan.
    fn codes_of(&self, plan: &GraphPlan, program: &Program) -> HashMap<BufferId, Codes> {
        let find = |&part: &BufferId| {
            let key = program::Buffer { id: BufferId(0), ..program.buffers[part.index()].clone() };
            self.codes.iter().find(|(known, _)| *known == key).map(|(_, codes)| (part, codes.clone()))
        };
        plan.codes.iter().filter_map(find).collect()
    }

    /// Fails where the device has too little free memory, before anything is sent to it.
    fn room(&self, plan: &GraphPlan, program: &Program, kv: Option<&DeviceKv>) -> Result<(), LoadError> {
        let bytes = |parts: &Vec<BufferId>| parts.iter().map(|&part| elements(program, part) as u64 * 2).sum::<u64>();
        let missing = plan.matrices.iter().filter(|parts| self.known(program, parts).is_none());
        let dense: u64 = missing.map(bytes).sum();
        let absent = |part: &&BufferId| !self.codes_of(plan, program).contains_key(part);
        let stored = |part: &BufferId| program.buffers[part.index()].stored_bytes(elements(program, *part));
        let weights = dense + plan.codes.iter().filter(absent).map(stored).sum::<u64>();
        let pools = if kv.is_some() { 0 } else { DeviceKv::bytes_of(program) };
        let tables: usize = plan.rotations.iter().map(|table| table.positions * table.half * 8).sum();
        let rest = plan.scratch.iter().map(|(_, bytes)| bytes).sum::<u64>() + tables as u64;
        let free = self.device.free_bytes()?;
        match weights + pools + rest > free {
            true => Err(LoadError::Memory { free, weights, pools, rest }),
            false => Ok(()),
        }
    }

    fn known(&self, program: &Program, parts: &[BufferId]) -> Option<&Buffer<bf16>> {
        let key = key_of(program, parts);
        self.matrices.iter().find(|(known, _)| *known == key).map(|(_, matrix)| matrix)
    }
}

/// The contents of a matrix, independent of its buffers' ids in a program.
fn key_of(program: &Program, parts: &[BufferId]) -> Vec<program::Buffer> {
    let of = |part: &BufferId| program::Buffer { id: BufferId(0), ..program.buffers[part.index()].clone() };
    parts.iter().map(of).collect()
}

fn elements(program: &Program, buffer: BufferId) -> usize {
    program.buffers[buffer.index()].elements().unwrap_or(0)
}

/// The matrices of a plan; those that are not on the device are sent.
fn matrices(
    device: &Device,
    stream: &Stream,
    known: &mut Vec<(Vec<program::Buffer>, Buffer<bf16>)>,
    bound_plan: BoundPlan<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Buffer<bf16>>, DeviceError> {
    let BoundPlan { plan, program, weights } = bound_plan;
    let keys: Vec<_> = plan.matrices.iter().map(|parts| key_of(program, parts)).collect();
    let is_missing = |key: &Vec<program::Buffer>| !known.iter().any(|(known, _)| known == key);
    let missing: Vec<usize> = (0..keys.len()).filter(|&at| is_missing(&keys[at])).collect();
    let parts: Vec<&[BufferId]> = missing.iter().map(|&at| &plan.matrices[at][..]).collect();
    let total: usize = parts.iter().flat_map(|parts| parts.iter()).map(|&part| elements(program, part) * 2).sum();
    let sent = stored::matrices(device, stream, &parts, weights, &mut |done| progress(done, total as u64))?;
    known.extend(missing.iter().map(|&at| keys[at].clone()).zip(sent));
    let find =
        |key: &Vec<program::Buffer>| known.iter().find(|(known, _)| known == key).map(|(_, matrix)| matrix.clone());
    Ok(keys.iter().filter_map(find).collect())
}

/// The memory that the launches of a machine read and write.
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
    /// Steps that fed the next, and their tokens, where the host reads them while later steps run.
    pub steps: Buffer<u32>,
    pub history: Mapped<u32>,
    pub kv: DeviceKv,
    /// The activations of all devices, by device, where there are several.
    pub peers: Vec<HashMap<Scratch, Buffer<u8>>>,
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
    fn new(
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
            None => DeviceKv::allocate(program, &[(device, stream)])?,
        };
        let mut pools = HashMap::new();
        for buffer in program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool) {
            pools.insert(buffer.id, kv.pool_of(buffer)?);
        }
        let mut cells = HashMap::new();
        for buffer in program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::Cell) {
            cells.insert(buffer.id, stream.buffer(&vec![0i32; elements(program, buffer.id)])?);
        }
        let mut plain = HashMap::new();
        for &buffer in &plan.plain {
            plain.insert(
                buffer,
                stream.buffer(weights.dense(buffer).map_or(&[][..], |tensor| tensor.bytes().as_ref()))?,
            );
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
            LaunchMemory::Ends => AnyBuffer::I32(self.ends.clone()),
            LaunchMemory::Steps => AnyBuffer::U32(self.steps.clone()),
            LaunchMemory::History => AnyBuffer::Mapped(self.history.clone()),
        })
    }
}
