//! The emitter: adds levels on one device after the other: as tasks, with one counter each, or as
//! whole ops.

use super::level::{HeadTasks, LevelDone};
use super::options::{LowerError, LowerOptions, MAX_TASKS};
use super::plan::{Level, PlannedLevels};
use super::stage::Stage;
use super::state::{ArrivingParts, HostBuffers, StateBuffers};
use super::weights::WeightBuffers;
use crate::model::ModelSizes;
use crate::program::{BufferId, CounterId, DeviceId, Op, Operands, Program, Span, Wait};

/// A program under construction.
pub(super) struct Emitter<'a> {
    pub program: Program,
    /// The levels, where they are planned whole: then the program gets no tasks.
    pub planned: Option<PlannedLevels>,
    /// Extents of the model as each device sees it.
    pub spec: &'a ModelSizes,
    pub options: &'a LowerOptions,
    /// Its layers.
    pub stage: Stage,
    pub host: HostBuffers,
    /// Weights and state of every device.
    pub shards: Vec<(WeightBuffers, StateBuffers)>,
    /// The device whose tasks are added.
    pub device: usize,
    /// Splits of the tokens in attention.
    pub splits: usize,
}

impl Emitter<'_> {
    pub fn sms(&self) -> usize {
        self.program.target.sms
    }

    pub fn devices(&self) -> usize {
        self.shards.len()
    }

    /// The device's weights.
    pub fn weights(&self) -> &WeightBuffers {
        &self.shards[self.device].0
    }

    /// The device's state.
    pub fn state(&self) -> &StateBuffers {
        &self.shards[self.device].1
    }

    /// The device's pools of keys and values of a layer.
    pub fn pools(&self, layer: usize) -> [BufferId; 2] {
        self.state().pools[layer - self.stage.layers().start]
    }

    /// The buffers that receive partial sums on the device, if there are any.
    pub fn parts(&self) -> Option<&ArrivingParts> {
        self.state().parts.as_ref()
    }

    /// The destinations of a partial sum that this device computes: its own buffer, and those of
    /// the other devices.
    pub fn destinations(&self, parts: impl Fn(&ArrivingParts) -> &Vec<BufferId>) -> Option<(BufferId, Vec<BufferId>)> {
        let slots = |device: usize| Some(parts(self.shards[device].1.parts.as_ref()?)[self.device]);
        let others = (0..self.devices()).filter(|&device| device != self.device);
        Some((slots(self.device)?, others.map(slots).collect::<Option<_>>()?))
    }

    /// Adds the tasks of every device; `add` is called with the device's number.
    pub fn each_device<T>(
        &mut self,
        mut add: impl FnMut(&mut Self, usize) -> Result<T, LowerError>,
    ) -> Result<Vec<T>, LowerError> {
        let each = (0..self.devices()).map(|device| {
            self.device = device;
            add(self, device)
        });
        each.collect()
    }

    /// All rows of the batch.
    pub fn rows(&self) -> Span {
        Span::all(self.options.rows)
    }

    /// Adds one task per op; all wait for `ready` and signal one new counter.
    pub fn level(&mut self, name: &str, ops: Vec<Op>, ready: &[LevelDone]) -> Result<LevelDone, LowerError> {
        self.level_in(None, name, ops, ready)
    }

    /// Adds a level that signals the counter of all devices, if there is one.
    pub fn level_in(
        &mut self,
        joint: Option<CounterId>,
        name: &str,
        ops: Vec<Op>,
        ready: &[LevelDone],
    ) -> Result<LevelDone, LowerError> {
        let waits: Vec<Wait> = ready.iter().map(|d| d.wait()).collect();
        self.add(joint, name, ops.into_iter().map(|op| (op, waits.clone())).collect())
    }

    /// Adds a level with a counter for each kv head, which complete one by one.
    pub fn level_of_heads(&mut self, name: &str, heads: Vec<HeadTasks>) -> Result<Vec<LevelDone>, LowerError> {
        if self.planned.is_some() {
            let ops = heads.into_iter().flat_map(|head| head.ops).collect();
            return Ok(vec![self.level(name, ops, &[])?; self.spec.kv_heads]);
        }
        let heads = heads.into_iter().enumerate();
        let done = heads.map(|(head, HeadTasks { ops, ready })| self.level(&format!("{name}.h{head}"), ops, &ready));
        done.collect()
    }

    /// Adds a level as [`Emitter::level`] does, with a separate condition for each op.
    pub fn level_of(&mut self, name: &str, parts: Vec<(Op, LevelDone)>) -> Result<LevelDone, LowerError> {
        self.add(None, name, parts.into_iter().map(|(op, ready)| (op, vec![ready.wait()])).collect())
    }

    /// A counter for a level of several devices, so that a task that waits for all of them waits on
    /// one.
    pub fn joint(&mut self, name: &str) -> Option<CounterId> {
        (self.devices() > 1).then(|| self.program.add_counter(name.to_owned()))
    }

    /// Adds the last tasks of the step, with their names: nothing waits for them, so they signal
    /// nothing.
    pub fn last(&mut self, tasks: Vec<(String, Op)>, ready: &[LevelDone]) -> Result<(), LowerError> {
        if let (Some(_), Some((name, _))) = (&self.planned, tasks.first()) {
            return self.plan(name, tasks.iter().map(|(_, op)| op));
        }
        let waits: Vec<Wait> = ready.iter().map(|done| done.wait()).collect();
        tasks.into_iter().try_for_each(|(name, op)| self.task(name, op, waits.clone(), vec![]))
    }

    /// Plans the level of these ops, which are parts of one if they write the same buffers.
    fn plan<'o>(&mut self, name: &str, ops: impl IntoIterator<Item = &'o Op>) -> Result<(), LowerError> {
        let Some(planned) = &mut self.planned else { return Ok(()) };
        let device = DeviceId::from(self.device);
        let operands = Operands::new(&self.program.buffers);
        let mut known = Vec::new();
        for op in ops {
            let footprint = op.footprint(&operands);
            let footprint = footprint.map_err(|source| LowerError::Task { label: name.to_owned(), source })?;
            planned.cells.extend(footprint.cells);
            let written: Vec<BufferId> = footprint.writes.iter().map(|region| region.buffer).collect();
            if !known.contains(&written) {
                known.push(written);
                planned.levels.push(Level { name: name.to_owned(), device, op: op.clone() });
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        joint: Option<CounterId>,
        name: &str,
        parts: Vec<(Op, Vec<Wait>)>,
    ) -> Result<LevelDone, LowerError> {
        if self.program.tasks.len() + parts.len() > MAX_TASKS {
            return Err(LowerError::Tasks { level: name.to_owned(), most: MAX_TASKS });
        }
        let name = &if self.devices() > 1 { format!("{name}.dev{}", self.device) } else { name.to_owned() };
        if self.planned.is_some() {
            self.plan(name, parts.iter().map(|(op, _)| op))?;
            return Ok(LevelDone::new(CounterId(0), 1));
        }
        let counter = joint.unwrap_or_else(|| self.program.add_counter(name));
        let tasks = parts.len() as u32;
        for (at, (op, waits)) in parts.into_iter().enumerate() {
            self.task(format!("{name}[{at}]"), op, waits, vec![counter])?;
        }
        Ok(LevelDone::new(counter, tasks))
    }

    fn task(&mut self, label: String, op: Op, waits: Vec<Wait>, signals: Vec<CounterId>) -> Result<(), LowerError> {
        let added = self.program.add_task(&label, op, waits, signals);
        let id = added.map_err(|source| LowerError::Task { label, source })?;
        self.program.tasks[id.index()].device = DeviceId::from(self.device);
        Ok(())
    }
}
