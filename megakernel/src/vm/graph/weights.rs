//! The weights of a model on a device, for all machines of it there.

use std::collections::HashMap;
use std::sync::Arc;

use half::bf16;
use tilewright_codegen::device::{Buffer, Device, DeviceError, Stream};

use super::kernels::LazyKernels;
use super::machine::GraphMachine;
use super::memory::{BoundPlan, Codes, GraphMemory, Sent, elements};
use super::plan::{GraphPlan, GraphTarget};
use super::tuning::{Exchange, GraphOptions, GraphTuning, ProductTuning};
use crate::lower::StepPlan;
use crate::program::{self, BufferId, Program};
use crate::vm::resident::stored::{self, BoundWeights};
use crate::vm::resident::{DeviceKernels, DeviceKv, DeviceWeights, Packed};
use crate::vm::unsupported::one_device;
use crate::vm::{LoadError, Unsupported};
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

impl GraphWeights {
    /// Weights that come to the device with the first machine.
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
    /// Nothing changes where nothing is packed yet, or its stages are interleaved
    /// ([`StageOrder`](crate::vm::resident::StageOrder)).
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

    /// What lies packed on the device.
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

    /// The plan of a step's machine, beside a decode machine's packed weights where there are
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

/// What is in a matrix, whatever its buffers' numbers in a program.
fn key_of(program: &Program, parts: &[BufferId]) -> Vec<program::Buffer> {
    let of = |part: &BufferId| program::Buffer { id: BufferId(0), ..program.buffers[part.index()].clone() };
    parts.iter().map(of).collect()
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
