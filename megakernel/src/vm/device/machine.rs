//! The machine: a kernel, its memory, and steps.

use std::ops::ControlFlow;
use std::slice;
use std::time::Duration;

use half::bf16;
use tilewright_codegen::device::{
    Buffer, Device, DeviceError, Kernel, KernelSource, Mapped, Stream, Work, launch_side_by_side,
};
use tilewright_kernels::kv::swizzled;
use tilewright_kernels::sample::{Request, mask_pitch};
use tilewright_layout::DType;

use super::kernel::{Feeds, TIMES};
use super::part::{DevicePart, Given, PartMemory};
use super::record::BlockRecord;
use super::watch::{EachStep, Ended, Watch};
use super::{DeviceOptions, Plan, TaskTimes, status};
use crate::program::{BufferId, BufferKind, TaskId};
use crate::validate::Placed;
use crate::vm::cells::{CellLimits, CellRoles};
use crate::vm::masks::Masked;
use crate::vm::resident::kv::bytes;
use crate::vm::resident::stored::BoundWeights;
use crate::vm::resident::{DeviceKernels, DeviceKv};
use crate::vm::{AbortHandle, AccessError, KvError, LaunchError, LoadError, RequestSlot, binding};
use crate::weights::Weights;

/// A placed program on one or several devices: weights, KV pools, and one persistent kernel.
///
/// [`load`](DeviceMachine::load) plans the program, compiles its kernel and sends the weights.
/// [`step`](DeviceMachine::step) then advances every row by one token; [`run`](DeviceMachine::run)
/// feeds each step's choice to the next within one launch. A launch that fails is an error that
/// names the task; the machine can be used again, unless the device itself is lost.
///
/// Machines of one model share packed weights and pools through
/// [`DeviceWeights`](crate::vm::resident::DeviceWeights).
///
/// ```
/// use tilewright_codegen::device::sim::{Options, Simulator};
/// use tilewright_codegen::target::Target;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::lower::{LowerOptions, lower};
/// use tilewright_graph::models::Llama;
/// use tilewright_megakernel::schedule::schedule;
/// use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
/// use tilewright_megakernel::vm::StepCells;
/// use tilewright_megakernel::weights::RandomWeights;
///
/// let spec = Llama::small().hidden(32).layers(1).heads(2, 1);
/// let target = Target { sms: 2, ..Target::named("h100").unwrap() };
/// let options = LowerOptions { kv: DType::BF16, page_tokens: 16, ..LowerOptions::for_context(16) };
/// let placed = schedule(lower(&spec, &|_| DType::BF16, target, &options)?, 16)?;
///
/// // Two SMs of the simulator; `tilewright_codegen::device::open("cuda:0")` is a GPU.
/// let device = Simulator::new(Options { sms: 2, ..Options::default() }).device();
/// let weights = RandomWeights::new(&spec, DType::BF16, 7)?;
/// let mut machine = DeviceMachine::load(placed, &weights, &device, DeviceOptions::default(), &mut |_, _| ())?;
/// let cells = StepCells { tokens: &[3], positions: &[0], page_table: &[0] };
/// let tokens = machine.run(&cells, 2)?;
/// assert_eq!(tokens.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceMachine {
    placed: Placed,
    pub(super) plan: Plan,
    pub(super) cells: CellRoles,
    pub(super) limits: CellLimits,
    /// The sampling requests of the rows; empty if the program does not sample.
    pub(super) requests: Vec<Request>,
    /// The slot of each row; empty if no state is kept per request.
    pub(super) slots: Vec<RequestSlot>,
    /// The rows that have masks.
    pub(super) masked: Masked,
    /// The part on each device; the host reads from the first.
    parts: Vec<DevicePart>,
    kv: DeviceKv,
    status: Mapped<u32>,
    abort: AbortHandle,
    timeout: Duration,
    /// Steps that all launches ran so far; what counters are scaled by.
    epoch: u32,
    /// Whether a kernel runs that does not end.
    lost: bool,
}

/// The resources of a machine, besides its program and plan.
#[derive(Clone, Copy)]
pub(super) struct MachineResources<'a> {
    /// The devices, as many as the program is for.
    pub devices: &'a [Device],
    /// The kernels of each device.
    pub kernels: &'a [DeviceKernels],
    /// The weights of the program.
    pub bound: &'a BoundWeights,
    /// The packed weights of each device, where they are there already.
    pub prepacked: Option<&'a [Buffer<bf16>]>,
    /// The KV pools to share; `None` allocates new ones.
    pub kv: Option<&'a DeviceKv>,
}

/// How long a step may take before the host ends the launch, unless it is told otherwise.
const TIMEOUT: Duration = Duration::from_secs(60);

impl DeviceMachine {
    /// Loads a program onto a device: plans it, generates and compiles its kernel, sends the
    /// weights. For several programs of one model, see
    /// [`DeviceWeights`](crate::vm::resident::DeviceWeights).
    ///
    /// `progress` is told how many bytes of weights are on their way, and of how many.
    ///
    /// # Errors
    /// If the program does not fit the device or its functions, a weight is missing, or the device
    /// fails.
    pub fn load(
        placed: Placed,
        weights: &dyn Weights,
        device: &Device,
        options: DeviceOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DeviceMachine, LoadError> {
        DeviceMachine::load_on(placed, weights, slice::from_ref(device), options, progress)
    }

    /// Loads a program of several devices, which reach each other's memory
    /// ([`open_peers`](tilewright_codegen::device::open_peers)).
    ///
    /// # Errors
    /// As [`DeviceMachine::load`]; [`LoadError::Devices`] where there are not as many as the
    /// program is for.
    pub fn load_on(
        placed: Placed,
        weights: &dyn Weights,
        devices: &[Device],
        options: DeviceOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DeviceMachine, LoadError> {
        let plan = Plan::new(&placed, options)?;
        let bound = BoundWeights::new(&placed, weights)?;
        let kernels: Vec<DeviceKernels> = devices.iter().map(DeviceKernels::new).collect();
        let resources = MachineResources { devices, kernels: &kernels, bound: &bound, prepacked: None, kv: None };
        DeviceMachine::assemble(placed, plan, resources, progress)
    }

    /// A machine of a plan; packed weights and pools are made where they are not given.
    pub(super) fn assemble(
        placed: Placed,
        plan: Plan,
        resources: MachineResources<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DeviceMachine, LoadError> {
        let MachineResources { devices, kernels, bound, prepacked, kv } = resources;
        let found = devices.len();
        let wanted = placed.devices;
        if found != wanted {
            return Err(LoadError::Devices { wanted, found });
        }
        if let Some(kv) = kv {
            kv.check(&placed, |buffer| plan.places.offset(buffer))?;
        }
        let (cells, limits) = binding::cells(&placed)?;
        let total: u64 = (0..found).map(|number| plan.packed_of(number)).sum();
        let mut parts = Vec::with_capacity(found);
        let mut before = 0;
        for (number, (device, kernels)) in devices.iter().zip(kernels).enumerate() {
            let prepacked = prepacked.and_then(|prepacked| prepacked.get(number));
            let pools = kv.and_then(|kv| kv.of_device(number));
            let given = Given { placed: &placed, plan: &plan, bound, kernels, prepacked, pools };
            parts.push(DevicePart::new(device, number, given, &mut |sent| progress(before + sent, total))?);
            before += plan.packed_of(number);
        }
        let kv = match kv {
            Some(kv) => kv.clone(),
            None => {
                let memory = parts.iter().map(|part| part.memory.pools.clone()).collect();
                DeviceKv::new(&placed, |buffer| plan.places.offset(buffer), memory)
            }
        };
        let words = status::masks(plan.rows) + plan.masked_tokens().map_or(0, |tokens| plan.rows * mask_pitch(tokens));
        let status = parts[0].device.mapped::<u32>(words as usize)?;
        parts.iter().try_for_each(|part| part.stream.wait())?;
        Ok(DeviceMachine {
            placed,
            plan,
            cells,
            requests: vec![Request::default(); limits.requests],
            slots: RequestSlot::of_rows(limits.rows_with_slots, limits.slots).collect(),
            limits,
            masked: Masked::default(),
            parts,
            kv,
            status,
            abort: AbortHandle::default(),
            timeout: TIMEOUT,
            epoch: 0,
            lost: false,
        })
    }

    /// The program.
    pub fn program(&self) -> &Placed {
        &self.placed
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The device, of several the first.
    pub fn device(&self) -> &Device {
        &self.first().device
    }

    /// The kernel, as the device has it.
    pub fn kernel(&self) -> &Kernel {
        &self.first().kernel
    }

    /// The part of the first device; every machine has one.
    pub(super) fn first(&self) -> &DevicePart {
        &self.parts[0]
    }

    pub(super) fn parts(&self) -> &[DevicePart] {
        &self.parts
    }

    /// The KV pools, for other machines of the model.
    pub fn kv(&self) -> &DeviceKv {
        &self.kv
    }

    pub(super) fn prepacked(&self) -> Vec<Buffer<bf16>> {
        self.parts.iter().map(|part| part.memory.prepacked.clone()).collect()
    }

    /// A handle that aborts a launch from any thread.
    pub fn abort_handle(&self) -> AbortHandle {
        self.abort.clone()
    }

    /// Shares an abort handle with other machines.
    pub fn listen_to(&mut self, handle: &AbortHandle) {
        self.abort = handle.clone();
    }

    /// Sets the timeout of a step, after which the host aborts the launch (60 seconds by default).
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Replaces the kernel by another of the same signature, for tests that break the generated
    /// one.
    ///
    /// # Errors
    /// If the device refuses it.
    pub fn replace_kernel(&mut self, source: &dyn KernelSource) -> Result<(), LaunchError> {
        for part in &mut self.parts {
            part.kernel = part.device.load(source)?;
        }
        Ok(())
    }

    /// Sets a KV pool of bf16, `[kv_heads, pages, page_tokens, head_dim]`: a history that was not
    /// decoded here.
    ///
    /// # Errors
    /// If there is no such pool of that length, or the device fails.
    pub fn set_pool(&mut self, name: &str, values: &[bf16]) -> Result<(), LaunchError> {
        self.set_pools(&[name], values)
    }

    /// Sets KV pools of bf16, all of one shape, to the same numbers.
    ///
    /// # Errors
    /// As [`DeviceMachine::set_pool`].
    pub fn set_pools(&mut self, names: &[&str], values: &[bf16]) -> Result<(), LaunchError> {
        let mut stored: Option<([usize; 2], Vec<bf16>)> = None;
        for &name in names {
            let (number, pool, rows) = self.kv.pool::<bf16>(name, DType::BF16)?;
            if pool.len() != values.len() {
                return Err(KvError::Range { name: name.to_owned(), end: values.len(), len: pool.len() }.into());
            }
            let stored = match &mut stored {
                Some((known, stored)) if *known == rows => stored,
                other => &mut other.insert((rows, swizzled(values, rows[0], rows[1]))).1,
            };
            self.parts[number].stream.upload(stored, &pool)?;
        }
        Ok(())
    }

    /// Reads a KV pool of bf16, `[kv_heads, pages, page_tokens, head_dim]`.
    ///
    /// # Errors
    /// If there is no such pool, or the device fails.
    pub fn pool(&self, name: &str) -> Result<Vec<bf16>, LaunchError> {
        let (number, pool, [page_tokens, dim]) = self.kv.pool::<bf16>(name, DType::BF16)?;
        let mut values = vec![bf16::ZERO; pool.len()];
        self.parts[number].stream.download(&pool, &mut values)?;
        // The permutation of rows is its own inverse.
        Ok(swizzled(&values, page_tokens, dim))
    }

    /// Sets a KV pool of e4m3 codes in the same way.
    ///
    /// # Errors
    /// As [`DeviceMachine::set_pool`].
    pub fn set_pool_codes(&mut self, name: &str, codes: &[u8]) -> Result<(), LaunchError> {
        let (number, pool, [page_tokens, dim]) = self.kv.pool::<u8>(name, DType::F8E4M3)?;
        if pool.len() != codes.len() {
            return Err(KvError::Range { name: name.to_owned(), end: codes.len(), len: pool.len() }.into());
        }
        Ok(self.parts[number].stream.upload(&swizzled(codes, page_tokens, dim), &pool)?)
    }

    /// Sets an input of f32 on every device: what a stage of a pipeline takes
    /// ([`HIDDEN_IN`](crate::lower::HIDDEN_IN)).
    ///
    /// # Errors
    /// If there is no such input of that length, or the device fails.
    pub fn set_input(&mut self, name: &str, values: &[f32]) -> Result<(), LaunchError> {
        let missing = || AccessError::Missing { name: name.to_owned() };
        let buffer = self.placed.buffer_named(name).ok_or_else(missing)?;
        let name = name.to_owned();
        let elements = buffer.elements().unwrap_or(0);
        if buffer.kind != BufferKind::Input {
            let found = buffer.kind;
            let action = "sets input buffers only";
            return Err(AccessError::Kind { name, found, action }.into());
        }
        if buffer.dtype != DType::F32 {
            return Err(AccessError::DType { name, found: buffer.dtype, asked: "f32" }.into());
        }
        if elements != values.len() {
            return Err(AccessError::Length { name, expected: elements, found: values.len() }.into());
        }
        for part in self.parts.iter().filter(|part| buffer.device.is_none_or(|device| device.index() == part.number)) {
            part.stream.upload(values, &self.state_of(part, buffer.id, elements)?)?;
        }
        Ok(())
    }

    /// Replaces the tables, to inject faults.
    pub(super) fn set_tables(&mut self, directory: &[BlockRecord], tables: &[u8]) -> Result<(), LaunchError> {
        Ok(self.parts.iter().try_for_each(|part| part.set_tables(directory, tables))?)
    }

    /// A buffer in a part's state.
    pub(super) fn state_of<T: bytemuck::Pod>(
        &self,
        part: &DevicePart,
        buffer: BufferId,
        len: usize,
    ) -> Result<Buffer<T>, DeviceError> {
        let start = self.plan.places.offset(buffer) as usize;
        part.memory.state.slice(start..start + len * size_of::<T>())?.cast()
    }

    /// Steps so far.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The words that the host shares with launches.
    pub(super) fn status(&self) -> &Mapped<u32> {
        &self.status
    }

    /// Refuses launches behind a kernel that does not end.
    pub(super) fn responds(&self) -> Result<(), LaunchError> {
        if !self.lost {
            return Ok(());
        }
        let timeout = self.timeout;
        Err(self.failed(false).unwrap_or(LaunchError::Unresponsive { steps: 0, timeout }))
    }

    /// The launch of a part.
    pub(super) fn work(&self, part: &DevicePart, steps: u32, feeds: Feeds) -> Result<Work, DeviceError> {
        let numbers = [self.epoch, steps, feeds as u32];
        part.kernel.work(self.plan.blocks, &part.args(&self.plan, numbers, &self.status, &self.parts))
    }

    /// The code that the kernel reported; 0: none.
    pub(super) fn code(&self) -> Result<u32, DeviceError> {
        self.status.load(status::CODE as usize)
    }

    /// Clears what host and kernel tell each other.
    pub(super) fn clear(&self) -> Result<(), DeviceError> {
        (0..status::TOKENS as usize).try_for_each(|word| self.status.store(word, 0))
    }

    /// The memory of a cell, an input, an output or a pool on the first device, its element type and
    /// its shape.
    ///
    /// # Errors
    /// [`AccessError::Missing`] if the program has no such buffer.
    pub fn memory(&self, name: &str) -> Result<(Buffer<u8>, DType, &[usize]), LaunchError> {
        let found = self.placed.buffer_named(name).filter(|buffer| {
            matches!(buffer.kind, BufferKind::Cell | BufferKind::Input | BufferKind::Output | BufferKind::KvPool)
        });
        let buffer = found.ok_or_else(|| AccessError::Missing { name: name.to_owned() })?;
        let PartMemory { state, pools, .. } = &self.first().memory;
        let space = if buffer.kind == BufferKind::KvPool { pools } else { state };
        let start = self.plan.places.offset(buffer.id) as usize;
        Ok((space.slice(start..start + bytes(buffer) as usize)?, buffer.dtype, &buffer.shape))
    }

    /// Launches and waits; gives how many steps `each` was told of. `masked` is of each row 1 if it
    /// has masks.
    pub(super) fn launch(
        &mut self,
        steps: u32,
        feeds: Feeds,
        masked: Vec<u32>,
        each: EachStep,
    ) -> Result<u32, LaunchError> {
        let timeout = self.timeout;
        self.responds()?;
        self.clear()?;
        self.send_masked(masked)?;
        if self.abort.is_set() {
            self.status.store(status::ABORT as usize, 1)?;
        }
        let rows = self.plan.rows as usize;
        let streams: Vec<&Stream> = self.parts.iter().map(|part| &part.stream).collect();
        let watch = Watch { streams: &streams, status: &self.status, abort: &self.abort, timeout, rows };
        let mut count = 0;
        let mut told = |tokens: &[u32]| {
            count += 1;
            if feeds == Feeds::Nothing { ControlFlow::Continue(()) } else { each(tokens) }
        };
        let work = |part| self.work(part, steps, feeds);
        let works = self.parts.iter().map(|part| Ok((&part.stream, work(part)?))).collect::<Result<Vec<_>, _>>();
        let launched = works.and_then(|works| launch_side_by_side(&works));
        let ended = match launched {
            Ok(()) => watch.run(&mut told),
            Err(error) => watch.end_the_others(error),
        };
        let ended = match ended {
            // A launch that failed left counters anywhere; where the device is lost, this fails as
            // well.
            Err(error) => {
                let failed = self.failed(true);
                let _ = self.recover();
                let mut failure = failed.unwrap_or(error.into());
                if let LaunchError::Aborted { steps } = &mut failure {
                    *steps = count;
                }
                return Err(failure);
            }
            Ok(Ended::Never) => {
                self.give_up();
                return Err(self.failed(false).unwrap_or(LaunchError::Unresponsive { steps: count, timeout }));
            }
            Ok(ended) => ended,
        };
        let code = self.status.load(status::CODE as usize)?;
        if code == 0 {
            self.epoch = self.epoch.wrapping_add(steps);
            return Ok(count);
        }
        if code == status::ENDED {
            self.rest()?;
            return Ok(count);
        }
        let failure = self.failure(code)?;
        let recovered = self.recover();
        // A device that is lost outranks what its peers report: they waited for it.
        if let Some(lost) = self.failed(true) {
            return Err(lost);
        }
        recovered?;
        match (ended, failure) {
            (Ended::Enough { steps }, LaunchError::Aborted { .. }) => Ok(steps),
            (Ended::Hung, LaunchError::Aborted { steps }) => Err(LaunchError::Hung { steps, timeout }),
            (_, failure) => {
                self.abort.clear();
                Err(failure)
            }
        }
    }

    /// The first device of several that fails, as the error that names it; `ended`: whether the
    /// others have ended.
    fn failed(&self, ended: bool) -> Option<LaunchError> {
        let devices = self.parts.len();
        let several = self.parts.iter().enumerate().filter(|_| devices > 1);
        let mut failed = several.filter_map(|(device, part)| Some((device, part.stream.done().err()?)));
        failed.next().map(|(device, source)| LaunchError::OneOf { device, devices, ended, source: source.into() })
    }

    /// Converts an error; if one of several devices has failed, the error names it.
    pub(super) fn named(&self, error: DeviceError) -> LaunchError {
        self.failed(true).unwrap_or(error.into())
    }

    /// A kernel that does not end keeps its memory: freeing it would wait for the kernel.
    fn give_up(&mut self) {
        self.lost = true;
        std::mem::forget((self.parts.clone(), self.kv.clone(), self.status.clone()));
    }

    /// Decodes the error that the kernel reported.
    pub(super) fn failure(&self, code: u32) -> Result<LaunchError, DeviceError> {
        let word = |at: u32| self.status.load(at as usize);
        let block = word(status::BLOCK)?;
        let task = word(status::TASK)?;
        let what = word(status::WHAT)?;
        let wanted = word(status::WANTED)?;
        let seen = word(status::SEEN)?;
        let classes = self.plan.opcodes.len();
        let id = TaskId::from(task as usize);
        let label = || self.placed.tasks.get(id.index()).map(|task| task.label.clone()).unwrap_or_default();
        Ok(match code {
            status::STUCK if task == u32::MAX => LaunchError::Blocks { block, wanted, seen },
            status::STUCK if what == status::HOST => LaunchError::LateMask { task: id, label: label(), block },
            status::STUCK => {
                let name = self.placed.counters.get(what as usize).map(|c| c.name.clone()).unwrap_or_default();
                LaunchError::Stuck { task: id, label: label(), block, counter: what, name, wanted, seen }
            }
            status::PARTS => LaunchError::Parts { task: id, label: label(), block },
            status::OPCODE => LaunchError::Opcode { task: id, label: label(), block, opcode: what, classes },
            status::F16_OVERFLOW => LaunchError::F16Overflow { task: id, label: label() },
            status::TABLES => LaunchError::Tables { block, expected: wanted, found: seen },
            _ => LaunchError::Aborted { steps: word(status::STEPS)? },
        })
    }

    /// After a launch that ended since all rows had: as many steps are counted as there were, and
    /// the next may begin.
    fn rest(&mut self) -> Result<(), DeviceError> {
        self.epoch = self.epoch.wrapping_add(self.status.load(status::STEPS as usize)?);
        self.parts.iter().try_for_each(|part| part.rest(&self.plan, self.epoch))
    }

    /// Counters as of the beginning: a launch that was stopped left them anywhere.
    pub(super) fn recover(&mut self) -> Result<(), DeviceError> {
        self.epoch = 0;
        self.parts.iter().try_for_each(DevicePart::recover)
    }

    /// The times of every task of the last launch's last step, by task.
    ///
    /// # Errors
    /// If the machine was made without a timeline, or the device fails.
    pub fn times(&self) -> Result<Vec<TaskTimes>, LaunchError> {
        let mut values = Vec::new();
        for part in &self.parts {
            let trace = part.memory.trace.as_ref().ok_or(LaunchError::NoTimeline)?;
            values.extend(part.stream.read(trace)?);
        }
        let longest = self.plan.longest_queue() as usize;
        let mut times = Vec::new();
        for (block, queue) in self.placed.queues().iter().enumerate() {
            for (at, &task) in queue.iter().enumerate() {
                let first = (block * longest + at) * TIMES as usize;
                let [begun, waited, loaded, computed, published, full] = std::array::from_fn(|i| values[first + i]);
                let loaded = (loaded != 0).then_some(loaded);
                times.push(TaskTimes { task, block, begun, waited, loaded, computed, published, full });
            }
        }
        // Each device has a clock of its own: those after the first are set by the step's first
        // task.
        let blocks = self.plan.blocks.max(1) as usize;
        let mut began = vec![u64::MAX; self.parts.len()];
        times.iter().for_each(|times| began[times.block / blocks] = began[times.block / blocks].min(times.begun));
        for TaskTimes { block, begun, waited, loaded, computed, published, .. } in &mut times {
            let late = began[*block / blocks].wrapping_sub(began[0]);
            let moments = [begun, waited, computed, published].into_iter().chain(loaded.as_mut());
            moments.for_each(|moment| *moment = moment.wrapping_sub(late));
        }
        Ok(times)
    }

    /// All elements of a floating-point output of the last step, as f32.
    ///
    /// # Errors
    /// If there is no such output of that type.
    pub fn f32(&self, name: &str) -> Result<Vec<f32>, LaunchError> {
        self.output(name, "f32", DType::F32)
    }

    /// All elements of an i32 output of the last step.
    ///
    /// # Errors
    /// If there is no such output of that type.
    pub fn i32(&self, name: &str) -> Result<Vec<i32>, LaunchError> {
        self.output(name, "i32", DType::I32)
    }

    /// A row of an f32 output of the last step: an index of its first dimension.
    ///
    /// # Errors
    /// If there is no such output of that type, or no such row.
    pub fn f32_row(&self, name: &str, row: usize) -> Result<Vec<f32>, LaunchError> {
        let all = self.place::<f32>(name, "f32", DType::F32)?;
        let buffer = self.placed.buffer_named(name);
        let rows = buffer.and_then(|buffer| buffer.shape.first().copied()).unwrap_or(1);
        if row >= rows {
            return Err(AccessError::Row { name: name.to_owned(), rows, row }.into());
        }
        let width = all.len() / rows;
        Ok(self.first().stream.read(&all.slice(row * width..(row + 1) * width)?)?)
    }

    fn output<T: bytemuck::Pod>(&self, name: &str, asked: &'static str, dtype: DType) -> Result<Vec<T>, LaunchError> {
        Ok(self.first().stream.read(&self.place(name, asked, dtype)?)?)
    }

    /// The memory of an output buffer.
    fn place<T: bytemuck::Pod>(&self, name: &str, asked: &'static str, dtype: DType) -> Result<Buffer<T>, LaunchError> {
        let missing = || AccessError::Missing { name: name.to_owned() };
        let buffer = self.placed.buffer_named(name).ok_or_else(missing)?;
        if buffer.kind != BufferKind::Output {
            let name = name.to_owned();
            let found = buffer.kind;
            let action = "reads output buffers only";
            return Err(AccessError::Kind { name, found, action }.into());
        }
        if buffer.dtype != dtype {
            return Err(AccessError::DType { name: name.to_owned(), found: buffer.dtype, asked }.into());
        }
        let elements = buffer.elements().unwrap_or(0);
        Ok(self.state_of(self.first(), buffer.id, elements)?)
    }
}
