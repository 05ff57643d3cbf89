//! The machine: a kernel, its memory, and steps.

use std::ops::ControlFlow;
use std::time::Duration;

use half::bf16;
use tilewright_codegen::device::{Buffer, Device, DeviceError, Kernel, Mapped, Source, Stream};
use tilewright_kernels::kv::swizzled;
use tilewright_kernels::sample::Request;
use tilewright_layout::DType;

use super::kernel::{BEGUN, Feeds, HALT, OWN_COUNTERS, PITCH, TIMES};
use super::load::{self, Bound};
use super::record::BlockRecord;
use super::run::{MAX_ENDS, MAX_STEPS};
use super::watch::{EachStep, Ended, Watch};
use super::{
    AbortHandle, DeviceKernels, DeviceKv, DeviceOptions, LaunchError, Lengths, LoadError, Plan, TaskTimes, status, text,
};
use crate::program::{BufferId, BufferKind, TaskId};
use crate::validate::Placed;
use crate::vm::reference::bind;
use crate::vm::reference::cells::Limits;
use crate::vm::reference::roles::Cells;
use crate::vm::reference::{AccessError, KvError, RequestSlot};
use crate::weights::Weights;

/// A placed program on a device.
pub struct DeviceMachine {
    placed: Placed,
    pub(super) plan: Plan,
    pub(super) cells: Cells,
    pub(super) limits: Limits,
    /// What rows ask for; empty where the program does not sample.
    pub(super) requests: Vec<Request>,
    /// Which slot each row has; empty where nothing is kept of requests.
    pub(super) slots: Vec<RequestSlot>,
    device: Device,
    pub(super) stream: Stream,
    kernel: Kernel,
    pub(super) memory: Memory,
    status: Mapped<u32>,
    abort: AbortHandle,
    patience: Duration,
    /// Steps that all launches ran so far; what counters are scaled by.
    epoch: u32,
    /// Whether a kernel runs that does not end.
    lost: bool,
}

/// What lies on the device.
#[derive(Clone)]
pub(super) struct Memory {
    image: Buffer<bf16>,
    plain: Buffer<u8>,
    state: Buffer<u8>,
    kv: DeviceKv,
    tables: Buffer<u8>,
    directory: Buffer<u32>,
    counters: Buffer<u32>,
    /// The tokens that end each row.
    pub(super) ends: Buffer<i32>,
    /// The text whose tokens are proposed.
    pub(super) text: Option<Buffer<i32>>,
    trace: Option<Buffer<u64>>,
}

/// How long a step may take before the host ends the launch, unless it is told otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

impl DeviceMachine {
    /// Loads a program onto a device: plans it, generates and compiles its kernel, sends the weights. For several
    /// programs of one model, see [`DeviceWeights`](super::DeviceWeights).
    ///
    /// `progress` is told how many bytes of weights are on their way, and of how many.
    ///
    /// # Errors
    /// If the program does not fit the device or its functions, a weight is missing, or the device fails.
    pub fn load(
        placed: Placed,
        weights: &dyn Weights,
        device: &Device,
        options: DeviceOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DeviceMachine, LoadError> {
        let plan = Plan::new(&placed, options)?;
        let bound = Bound::new(&placed, weights)?;
        DeviceMachine::assemble(placed, plan, &bound, &DeviceKernels::new(device), (None, None), device, progress)
    }

    /// A machine of a plan; the image and the pools are made where they are not given.
    pub(super) fn assemble(
        placed: Placed,
        plan: Plan,
        bound: &Bound,
        kernels: &DeviceKernels,
        (image, kv): (Option<Buffer<bf16>>, Option<&DeviceKv>),
        device: &Device,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<DeviceMachine, LoadError> {
        let (found, wanted) = (device.properties().sms as usize, placed.target.sms);
        if found < wanted {
            return Err(LoadError::Sms { wanted, found });
        }
        if let Some(kv) = kv {
            kv.check(&placed, &plan.places)?;
        }
        room(&plan, device, image.is_none(), kv.is_none())?;
        let (cells, limits) = bind::cells(&placed)?;
        let stream = device.stream()?;
        // The driver compiles while the weights are on their way.
        let (kernel, image) = std::thread::scope(|scope| {
            let kernel = scope.spawn(|| kernels.of(&plan));
            let image = image.map_or_else(
                || load::image(device, &stream, &plan, bound, &mut |sent| progress(sent, plan.image_bytes)),
                Ok,
            );
            let kernel = kernel.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (kernel, image)
        });
        let kernel = kernel?;
        let zeroed = |bytes: u64| -> Result<Buffer<u8>, DeviceError> {
            let buffer = device.buffer::<u8>(bytes.max(16) as usize)?;
            stream.fill(&buffer, 0)?;
            Ok(buffer)
        };
        let directory: Vec<u32> = bytemuck::cast_slice(&plan.directory).to_vec();
        let memory = Memory {
            image: image?,
            plain: stream.buffer(&load::plain(&plan, &placed, bound))?,
            state: zeroed(plan.places.state)?,
            kv: match kv {
                Some(kv) => kv.clone(),
                None => DeviceKv::new(&placed, &plan.places, zeroed(plan.places.pools)?),
            },
            tables: stream.buffer(&plan.tables)?,
            directory: stream.buffer(&directory)?,
            text: match plan.options.propose {
                true => Some(stream.buffer(&vec![0i32; text::words(&plan)])?),
                false => None,
            },
            // Queues that are shorter than the longest leave their part as it is.
            trace: match plan.options.timeline {
                true => Some(stream.buffer(&vec![0u64; (plan.blocks * plan.longest_queue() * TIMES) as usize])?),
                false => None,
            },
            counters: stream.buffer(&vec![0u32; ((plan.counters + OWN_COUNTERS) * PITCH) as usize])?,
            ends: stream.buffer(&vec![-1i32; plan.rows as usize * MAX_ENDS])?,
        };
        let status = device.mapped::<u32>(status::TOKENS as usize + MAX_STEPS * plan.rows as usize)?;
        stream.wait()?;
        let (device, abort, patience) = (device.clone(), AbortHandle::default(), PATIENCE);
        Ok(DeviceMachine {
            placed,
            plan,
            cells,
            requests: vec![Request::default(); limits.requests],
            slots: RequestSlot::of_rows(limits.rows_with_slots, limits.slots).collect(),
            limits,
            device,
            stream,
            kernel,
            memory,
            status,
            abort,
            patience,
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

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The kernel, as the device has it.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The KV pools, for other machines of the model.
    pub fn kv(&self) -> &DeviceKv {
        &self.memory.kv
    }

    pub(super) fn image(&self) -> &Buffer<bf16> {
        &self.memory.image
    }

    /// What ends a launch from elsewhere.
    pub fn abort_handle(&self) -> AbortHandle {
        self.abort.clone()
    }

    /// Makes this machine listen to a handle that others listen to as well.
    pub fn listen_to(&mut self, handle: &AbortHandle) {
        self.abort = handle.clone();
    }

    /// How long a step may take before the host ends the launch: 60 seconds unless it is told otherwise.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Runs another kernel of the same signature from now on: for tests that break the generated one.
    ///
    /// # Errors
    /// If the device refuses it.
    pub fn replace_kernel(&mut self, source: &dyn Source) -> Result<(), LaunchError> {
        self.kernel = self.device.load(source)?;
        Ok(())
    }

    /// Sets a KV pool of bf16, `[kv_heads, pages, page_tokens, head_dim]`: a history that was not decoded here.
    ///
    /// # Errors
    /// If there is no such pool of so many elements, or the device fails.
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
            let (pool, rows) = self.memory.kv.pool::<bf16>(name, DType::BF16)?;
            if pool.len() != values.len() {
                return Err(KvError::Range { name: name.to_owned(), end: values.len(), len: pool.len() }.into());
            }
            let stored = match &mut stored {
                Some((known, stored)) if *known == rows => stored,
                other => &mut other.insert((rows, swizzled(values, rows[0], rows[1]))).1,
            };
            self.stream.upload(stored, &pool)?;
        }
        Ok(())
    }

    /// What a KV pool of bf16 holds, `[kv_heads, pages, page_tokens, head_dim]`.
    ///
    /// # Errors
    /// If there is no such pool, or the device fails.
    pub fn pool(&self, name: &str) -> Result<Vec<bf16>, LaunchError> {
        let (pool, [page_tokens, dim]) = self.memory.kv.pool::<bf16>(name, DType::BF16)?;
        let mut values = vec![bf16::ZERO; pool.len()];
        self.stream.download(&pool, &mut values)?;
        // What the order of rows exchanges it exchanges back.
        Ok(swizzled(&values, page_tokens, dim))
    }

    /// Sets a KV pool of e4m3 codes in the same way.
    ///
    /// # Errors
    /// As [`DeviceMachine::set_pool`].
    pub fn set_pool_codes(&mut self, name: &str, codes: &[u8]) -> Result<(), LaunchError> {
        let (pool, [page_tokens, dim]) = self.memory.kv.pool::<u8>(name, DType::F8E4M3)?;
        if pool.len() != codes.len() {
            return Err(KvError::Range { name: name.to_owned(), end: codes.len(), len: pool.len() }.into());
        }
        Ok(self.stream.upload(&swizzled(codes, page_tokens, dim), &pool)?)
    }

    /// Changes the tables; for faults.
    pub(super) fn set_tables(&mut self, directory: &[BlockRecord], tables: &[u8]) -> Result<(), LaunchError> {
        self.stream.upload(tables, &self.memory.tables)?;
        let words: Vec<u32> = bytemuck::cast_slice(directory).to_vec();
        Ok(self.stream.upload(&words, &self.memory.directory)?)
    }

    pub(super) fn state_of<T: bytemuck::Pod>(&self, buffer: BufferId, len: usize) -> Result<Buffer<T>, DeviceError> {
        let start = self.plan.places.offset(buffer) as usize;
        self.memory.state.slice(start..start + len * size_of::<T>())?.cast()
    }

    /// Launches and waits; gives how many steps `each` was told of.
    pub(super) fn launch(&mut self, steps: u32, feeds: Feeds, each: EachStep) -> Result<u32, LaunchError> {
        let patience = self.patience;
        if self.lost {
            return Err(LaunchError::Unresponsive { steps: 0, patience });
        }
        for word in 0..status::TOKENS as usize {
            self.status.store(word, 0)?;
        }
        if self.abort.is_set() {
            self.status.store(status::ABORT as usize, 1)?;
        }
        let Memory { image, plain, state, kv, tables, directory, counters, ends, text, trace } = &self.memory;
        let numbers = [self.epoch, steps, feeds as u32];
        let mut args = vec![image.into(), plain.into(), state.into(), (&kv.memory).into(), tables.into()];
        args.extend([directory.into(), counters.into(), (&self.status).into()]);
        args.extend(numbers.map(Into::into));
        let Lengths { pages, table_width } = self.plan.lengths;
        args.extend([pages, table_width].map(Into::into));
        args.push(ends.into());
        args.extend(text.iter().map(Into::into));
        args.extend(trace.iter().map(Into::into));
        let rows = self.plan.rows as usize;
        let watch = Watch { stream: &self.stream, status: &self.status, abort: &self.abort, patience, rows };
        let mut count = 0;
        let mut told = |tokens: &[u32]| {
            count += 1;
            if feeds == Feeds::Nothing { ControlFlow::Continue(()) } else { each(tokens) }
        };
        let launched = self.kernel.launch(&self.stream, self.plan.blocks, &args);
        let ended = launched.and_then(|()| watch.run(&mut told));
        let ended = match ended {
            // A launch that failed left counters anywhere; where the device is lost, this fails as well.
            Err(error) => {
                let _ = self.recover();
                return Err(error.into());
            }
            Ok(Ended::Never) => {
                self.give_up();
                return Err(LaunchError::Unresponsive { steps: count, patience });
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
        self.recover()?;
        match (ended, failure) {
            (Ended::Enough { steps }, LaunchError::Aborted { .. }) => Ok(steps),
            (Ended::Hung, LaunchError::Aborted { steps }) => Err(LaunchError::Hung { steps, patience }),
            (_, failure) => {
                self.abort.clear();
                Err(failure)
            }
        }
    }

    /// A kernel that does not end keeps its memory: freeing it would wait for the kernel.
    fn give_up(&mut self) {
        self.lost = true;
        std::mem::forget((self.memory.clone(), self.status.clone(), self.kernel.clone(), self.stream.clone()));
    }

    /// What the kernel reported.
    fn failure(&self, code: u32) -> Result<LaunchError, DeviceError> {
        let word = |at: u32| self.status.load(at as usize);
        let (block, task, what) = (word(status::BLOCK)?, word(status::TASK)?, word(status::WHAT)?);
        let (wanted, seen) = (word(status::WANTED)?, word(status::SEEN)?);
        let label = || self.placed.tasks.get(task as usize).map(|task| task.label.clone()).unwrap_or_default();
        let id = TaskId::from(task as usize);
        Ok(match code {
            status::STUCK if task == u32::MAX => LaunchError::Blocks { block, wanted, seen },
            status::STUCK => {
                let name = self.placed.counters.get(what as usize).map(|c| c.name.clone()).unwrap_or_default();
                LaunchError::Stuck { task: id, label: label(), block, counter: what, name, wanted, seen }
            }
            status::OPCODE => {
                let classes = self.plan.opcodes.len();
                LaunchError::Opcode { task: id, label: label(), block, opcode: what, classes }
            }
            status::TABLES => LaunchError::Tables { block, expected: wanted, found: seen },
            _ => LaunchError::Aborted { steps: word(status::STEPS)? },
        })
    }

    /// Behind a launch that ended since all rows had: as many steps are counted as there were, and the next may begin.
    fn rest(&mut self) -> Result<(), DeviceError> {
        self.epoch = self.epoch.wrapping_add(self.status.load(status::STEPS as usize)?);
        for (counter, value) in [(BEGUN, self.epoch), (HALT, 0)] {
            let at = ((self.plan.counters + counter) * PITCH) as usize;
            self.stream.upload(&[value], &self.memory.counters.slice(at..at + 1)?)?;
        }
        Ok(())
    }

    /// Counters as of the beginning: a launch that was stopped left them anywhere.
    fn recover(&mut self) -> Result<(), DeviceError> {
        self.stream.fill(&self.memory.counters, 0)?;
        // Generations count from the beginning too: none that was written must look like one to come.
        self.stream.fill(&self.memory.state, 0)?;
        self.epoch = 0;
        self.stream.wait()
    }

    /// The times of every task of the last launch's last step, by task.
    ///
    /// # Errors
    /// If the machine was made without a timeline, or the device fails.
    pub fn times(&self) -> Result<Vec<TaskTimes>, LaunchError> {
        let trace = self.memory.trace.as_ref().ok_or(LaunchError::NoTimeline)?;
        let values = self.stream.read(trace)?;
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
        Ok(self.stream.read(&all.slice(row * width..(row + 1) * width)?)?)
    }

    fn output<T: bytemuck::Pod>(&self, name: &str, asked: &'static str, dtype: DType) -> Result<Vec<T>, LaunchError> {
        Ok(self.stream.read(&self.place(name, asked, dtype)?)?)
    }

    /// Where an output lies.
    fn place<T: bytemuck::Pod>(&self, name: &str, asked: &'static str, dtype: DType) -> Result<Buffer<T>, LaunchError> {
        let missing = || AccessError::Missing { name: name.to_owned() };
        let buffer = self.placed.buffer_named(name).ok_or_else(missing)?;
        if buffer.kind != BufferKind::Output {
            let (name, found, action) = (name.to_owned(), buffer.kind, "reads output buffers only");
            return Err(AccessError::Kind { name, found, action }.into());
        }
        if buffer.dtype != dtype {
            return Err(AccessError::DType { name: name.to_owned(), found: buffer.dtype, asked }.into());
        }
        let elements = buffer.elements().unwrap_or(0);
        Ok(self.state_of(buffer.id, elements)?)
    }
}

/// Fails where the device has too little free memory, before anything is sent to it.
pub(super) fn room(plan: &Plan, device: &Device, image: bool, pools: bool) -> Result<(), LoadError> {
    let weights = plan.plain_bytes + if image { plan.image_bytes } else { 0 };
    let pools = if pools { plan.places.pools } else { 0 };
    let counters = u64::from(plan.counters + OWN_COUNTERS) * u64::from(PITCH) * 4;
    let rest = plan.places.state + plan.tables.len() as u64 + counters;
    let free = device.free_bytes()?;
    if weights.saturating_add(pools).saturating_add(rest) > free {
        return Err(LoadError::Memory { free, weights, pools, rest });
    }
    Ok(())
}
