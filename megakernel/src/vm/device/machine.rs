//! The machine: a kernel, its memory, and steps.

use half::bf16;
use thiserror::Error;
use tilewright_codegen::device::{Buffer, Device, DeviceError, Kernel, Mapped, Stream};
use tilewright_codegen::verify::verify;

use super::kernel::{OWN_COUNTERS, PITCH, TIMES, record};
use super::load::{self, Bound, LoadError};
use super::{DeviceOptions, Plan, status};
use crate::program::{BufferId, BufferKind, TaskId};
use crate::validate::Placed;
use crate::vm::reference::bind;
use crate::vm::reference::cells::Limits;
use crate::vm::reference::roles::Cells;
use crate::vm::reference::{AccessError, CellError, StepCells};
use crate::weights::Weights;

/// A placed program on a device.
pub struct DeviceMachine {
    placed: Placed,
    plan: Plan,
    cells: Cells,
    limits: Limits,
    device: Device,
    stream: Stream,
    kernel: Kernel,
    memory: Memory,
    status: Mapped<u32>,
    /// Steps that all launches ran so far; what counters are scaled by.
    epoch: u32,
}

/// What lies on the device.
struct Memory {
    image: Buffer<bf16>,
    plain: Buffer<u8>,
    state: Buffer<u8>,
    pools: Buffer<u8>,
    tables: Buffer<u8>,
    directory: Buffer<u32>,
    counters: Buffer<u32>,
    trace: Option<Buffer<u64>>,
}

/// Why a launch did not end as it should. Outputs are undefined then, and so are the KV entries of its steps.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum LaunchError {
    #[error("the cells are refused")]
    Cells(#[from] CellError),
    #[error("the device failed")]
    Device(#[from] DeviceError),
    #[error("the program has other outputs than are asked for")]
    Access(#[from] AccessError),
    #[error(
        "task {task} `{label}` on block {block} waited too long: counter {counter} `{name}` should reach {wanted}, it is {seen}"
    )]
    Stuck { task: TaskId, label: String, block: u32, counter: u32, name: String, wanted: u32, seen: u32 },
    #[error("block {block} waited too long for the other blocks: {wanted} should have come, {seen} did")]
    Blocks { block: u32, wanted: u32, seen: u32 },
    #[error("task {task} `{label}` on block {block} has opcode {opcode}, the kernel has {classes}")]
    Opcode { task: TaskId, label: String, block: u32, opcode: u32, classes: usize },
    #[error("the launch was aborted")]
    Aborted,
    #[error("a launch takes 1 to {most} steps, {found} were asked for")]
    Steps { found: usize, most: usize },
    #[error("the program feeds no token back: it has no embedding, or no greedy choice")]
    NoFeedback,
    #[error("the machine was made without a timeline")]
    NoTimeline,
}

/// When a task did what, in nanoseconds of the device's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTimes {
    /// The task.
    pub task: TaskId,
    /// Its block.
    pub block: usize,
    /// The team came to it.
    pub begun: u64,
    /// What it waits for was there.
    pub waited: u64,
    /// Its activations were there, for tasks that load some.
    pub loaded: Option<u64>,
    /// It was computed.
    pub computed: u64,
    /// It was published.
    pub published: u64,
}

/// Most steps of one launch.
pub const MAX_STEPS: usize = 4096;

impl DeviceMachine {
    /// Loads a program onto a device: plans it, generates and compiles its kernel, sends the weights.
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
        let (found, wanted) = (device.properties().sms as usize, placed.target.sms);
        if found < wanted {
            return Err(LoadError::Sms { wanted, found });
        }
        let plan = Plan::new(&placed, options)?;
        let (cells, limits) = bind::cells(&placed)?;
        let bound = Bound::new(&placed, weights)?;
        let kernel = device.load(&verify(record(&plan))?)?;
        let stream = device.stream()?;
        let plain = stream.buffer(&load::plain(&plan, &placed, &bound))?;
        let total = plan.image_bytes;
        let image = load::image(device, &stream, &plan, &bound, &mut |sent| progress(sent, total))?;
        let zeroed = |bytes: u64| -> Result<Buffer<u8>, DeviceError> {
            let buffer = device.buffer::<u8>(bytes.max(16) as usize)?;
            stream.fill(&buffer, 0)?;
            Ok(buffer)
        };
        let directory: Vec<u32> = bytemuck::cast_slice(&plan.directory).to_vec();
        let memory = Memory {
            image,
            plain,
            state: zeroed(plan.places.state)?,
            pools: zeroed(plan.places.pools)?,
            tables: stream.buffer(&plan.tables)?,
            directory: stream.buffer(&directory)?,
            trace: match plan.options.timeline {
                true => Some(device.buffer((plan.blocks * plan.longest_queue() * TIMES) as usize)?),
                false => None,
            },
            counters: stream.buffer(&vec![0u32; ((plan.counters + OWN_COUNTERS) * PITCH) as usize])?,
        };
        let status = device.mapped::<u32>(status::TOKENS as usize + MAX_STEPS * plan.rows as usize)?;
        stream.wait()?;
        let device = device.clone();
        Ok(DeviceMachine { placed, plan, cells, limits, device, stream, kernel, memory, status, epoch: 0 })
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

    /// Runs one step.
    ///
    /// # Errors
    /// Cells that do not fit, before anything runs; a launch that did not end as it should.
    pub fn step(&mut self, cells: &StepCells) -> Result<(), LaunchError> {
        self.set_cells(cells)?;
        self.launch(1, false)
    }

    /// Runs many steps in one launch, each feeding the greedy choice of the one before; gives the tokens,
    /// `[steps, rows]`.
    ///
    /// # Errors
    /// As [`DeviceMachine::step`]; steps that the page tables have no room for.
    pub fn run(&mut self, cells: &StepCells, steps: usize) -> Result<Vec<u32>, LaunchError> {
        if steps == 0 || steps > MAX_STEPS {
            return Err(LaunchError::Steps { found: steps, most: MAX_STEPS });
        }
        if self.plan.feedback.is_none() {
            return Err(LaunchError::NoFeedback);
        }
        // The last step's cells are checked too: then every step between has its pages.
        let ahead = |position: &i32| if *position < 0 { *position } else { position.saturating_add(steps as i32 - 1) };
        let last: Vec<i32> = cells.positions.iter().map(ahead).collect();
        StepCells { positions: &last, ..*cells }.check(&self.limits)?;
        self.set_cells(cells)?;
        self.launch(steps as u32, true)?;
        let tokens = (0..steps * self.plan.rows as usize).map(|at| self.status.load(status::TOKENS as usize + at));
        Ok(tokens.collect::<Result<_, _>>()?)
    }

    fn set_cells(&mut self, cells: &StepCells) -> Result<(), LaunchError> {
        cells.check(&self.limits)?;
        let set = [
            (&self.cells.token, cells.tokens),
            (&self.cells.position, cells.positions),
            (&self.cells.page_table, cells.page_table),
        ];
        for (buffers, values) in set {
            for &buffer in buffers {
                self.stream.upload(values, &self.state_of::<i32>(buffer, values.len())?)?;
            }
        }
        Ok(())
    }

    fn state_of<T: bytemuck::Pod>(&self, buffer: BufferId, len: usize) -> Result<Buffer<T>, DeviceError> {
        let start = self.plan.places.offset(buffer) as usize;
        self.memory.state.slice(start..start + len * size_of::<T>())?.cast()
    }

    fn launch(&mut self, steps: u32, advance: bool) -> Result<(), LaunchError> {
        for word in 0..status::TOKENS as usize {
            self.status.store(word, 0)?;
        }
        let Memory { image, plain, state, pools, tables, directory, counters, trace } = &self.memory;
        let numbers = [self.epoch, steps, u32::from(advance)];
        let mut args = vec![image.into(), plain.into(), state.into(), pools.into(), tables.into(), directory.into()];
        args.extend([counters.into(), (&self.status).into()]);
        args.extend(numbers.map(Into::into));
        args.extend(trace.iter().map(Into::into));
        let launched = self.kernel.launch(&self.stream, self.plan.blocks, &args);
        launched.and_then(|()| self.stream.wait())?;
        match self.status.load(status::CODE as usize)? {
            0 => {
                self.epoch = self.epoch.wrapping_add(steps);
                Ok(())
            }
            code => {
                let why = self.failure(code)?;
                self.recover()?;
                Err(why)
            }
        }
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
                let classes = self.plan.classes.len();
                LaunchError::Opcode { task: id, label: label(), block, opcode: what, classes }
            }
            _ => LaunchError::Aborted,
        })
    }

    /// Counters as of the beginning: a launch that was stopped left them anywhere.
    fn recover(&mut self) -> Result<(), DeviceError> {
        self.stream.fill(&self.memory.counters, 0)?;
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
                let [begun, waited, loaded, computed, published] = std::array::from_fn(|i| values[first + i]);
                let loaded = (loaded != 0).then_some(loaded);
                times.push(TaskTimes { task, block, begun, waited, loaded, computed, published });
            }
        }
        Ok(times)
    }

    /// All elements of a floating-point output of the last step, as f32.
    ///
    /// # Errors
    /// If there is no such output of that type.
    pub fn f32(&self, name: &str) -> Result<Vec<f32>, LaunchError> {
        self.output(name, "f32", tilewright_layout::DType::F32)
    }

    /// All elements of an i32 output of the last step.
    ///
    /// # Errors
    /// If there is no such output of that type.
    pub fn i32(&self, name: &str) -> Result<Vec<i32>, LaunchError> {
        self.output(name, "i32", tilewright_layout::DType::I32)
    }

    fn output<T: bytemuck::Pod>(
        &self,
        name: &str,
        asked: &'static str,
        dtype: tilewright_layout::DType,
    ) -> Result<Vec<T>, LaunchError> {
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
        Ok(self.stream.read(&self.state_of(buffer.id, elements)?)?)
    }
}
