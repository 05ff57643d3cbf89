//! A program of many rows on several devices: launches on each, in segments between which the devices meet.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tilewright_codegen::device::{DeviceError, Event, Graph};
use tilewright_kernels::sample::Request;

use super::machine::{Counts, EachLogits, GraphMachine};
use super::run::run_by_host;
use super::{GraphPlan, GraphWeights};
use crate::validate::Checked;
use crate::vm::device::load::Bound;
use crate::vm::device::{AbortHandle, DeviceKv, LaunchError, LoadError, MAX_STEPS, Unsupported, end_ids};
use crate::vm::reference::StepCells;

/// A program of many rows on several devices, as graphs of launches on each. Made by [`GraphWeights::peers`].
///
/// Devices meet by events: what a stream queues behind a meeting waits for what all streams queued before it. Tokens are chosen by the
/// first device, and fed back by the host.
pub struct GraphPeers {
    /// One for each device.
    machines: Vec<GraphMachine>,
    /// The launches of a device's segment, by what attention is launched for; none where there are none.
    graphs: BTreeMap<(Counts, usize, usize), Option<Graph>>,
    abort: AbortHandle,
}

impl GraphWeights {
    /// Makes a machine of a program of as many devices as these are the weights of, which reach each other's memory
    /// ([`open_peers`](tilewright_codegen::device::open_peers)). It uses the pools `kv`, or new ones. Weights lie row by row, each device its
    /// shard.
    ///
    /// # Errors
    /// As [`GraphWeights::machine`]; [`LoadError::Devices`] where there are not as many as the program is for.
    pub fn peers(
        all: &mut [GraphWeights],
        program: Checked,
        kv: Option<&DeviceKv>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<GraphPeers, LoadError> {
        let (wanted, found) = (program.devices, all.len());
        let Some(first) = all.first().filter(|_| found == wanted && wanted > 1) else {
            return Err(LoadError::Devices { wanted, found });
        };
        let bound = Bound::new(&program, first.weights())?;
        let kv = match kv {
            Some(kv) => kv.clone(),
            None => {
                let streams = all.iter().map(|weights| weights.device().stream()).collect::<Result<Vec<_>, _>>()?;
                let on: Vec<_> = all.iter().zip(&streams).map(|(weights, stream)| (weights.device(), stream)).collect();
                let kv = DeviceKv::allocate(&program, &on)?;
                streams.iter().try_for_each(|stream| stream.wait())?;
                kv
            }
        };
        let plan = |(device, weights): (usize, &GraphWeights)| weights.plan_of(&program, device, None);
        let plans = all.iter().enumerate().map(plan).collect::<Result<Vec<GraphPlan>, Unsupported>>()?;
        if plans.iter().any(|plan| plan.meetings.len() != plans[0].meetings.len()) {
            return Err(Unsupported::Launch { what: "devices that do not meet as often as each other" }.into());
        }
        let of = |(weights, plan): (&mut GraphWeights, GraphPlan)| {
            weights.machine_of(program.clone(), plan, (&bound, None), Some(&kv), progress)
        };
        let machines = all.iter_mut().zip(plans).map(of).collect::<Result<Vec<_>, LoadError>>()?;
        Ok(GraphPeers::new(machines))
    }
}

impl GraphPeers {
    fn new(mut machines: Vec<GraphMachine>) -> GraphPeers {
        let scratch: Vec<_> = machines.iter().map(|machine| machine.memory.scratch.clone()).collect();
        machines.iter_mut().for_each(|machine| machine.memory.peers.clone_from(&scratch));
        GraphPeers { machines, graphs: BTreeMap::new(), abort: AbortHandle::default() }
    }

    /// The first device's plan.
    pub fn plan(&self) -> &GraphPlan {
        self.machines[0].plan()
    }

    /// The KV pools, for other machines of the model.
    pub fn kv(&self) -> &DeviceKv {
        self.machines[0].kv()
    }

    /// Makes this machine listen to a handle that others listen to as well. It is looked at before a step.
    pub fn listen_to(&mut self, handle: &AbortHandle) {
        self.abort = handle.clone();
    }

    /// As [`GraphMachine::attend_together`].
    pub fn attend_together(&mut self) {
        self.machines.iter_mut().for_each(GraphMachine::attend_together);
    }

    /// Runs a step; `each` gets the logits of these rows, in their order, which may be none. Behind it the keys and values are there for
    /// every machine of the pools.
    ///
    /// # Errors
    /// As [`GraphMachine::step`]; [`LaunchError::OneOf`] names a device that fails.
    pub fn step(&mut self, cells: &StepCells, rows: &[usize], each: EachLogits) -> Result<(), LaunchError> {
        self.machines[0].check_rows(rows)?;
        self.submit(cells)?;
        self.logits(rows, each)?;
        self.wait()
    }

    /// Queues a step whose logits nobody asks for; other machines of the pools run behind [`GraphPeers::wait`].
    ///
    /// # Errors
    /// As [`GraphPeers::step`].
    pub fn submit(&mut self, cells: &StepCells) -> Result<(), LaunchError> {
        cells.check(&self.machines[0].limits)?;
        if self.abort.is_set() {
            self.abort.clear();
            return Err(LaunchError::Aborted { steps: 0 });
        }
        let mut counts = Counts::NONE;
        for device in 0..self.machines.len() {
            counts = self.named(device, self.machines[device].set_cells(cells))?;
        }
        for segment in 0..=self.plan().meetings.len() {
            if segment > 0 {
                self.meet()?;
            }
            for device in 0..self.machines.len() {
                let queued = self.queue(counts, segment, device);
                self.named(device, queued)?;
            }
        }
        Ok(())
    }

    /// Waits for the steps that were submitted.
    ///
    /// # Errors
    /// [`LaunchError::OneOf`] if a device failed in one of them.
    pub fn wait(&self) -> Result<(), LaunchError> {
        let machines = self.machines.iter().enumerate();
        machines.into_iter().try_for_each(|(device, machine)| self.named(device, machine.wait()))
    }

    /// The logits of some rows of the step that was submitted: each device has those of its part of the vocabulary.
    ///
    /// # Errors
    /// [`LaunchError::OneOf`] if a device fails.
    pub fn logits(&mut self, rows: &[usize], each: EachLogits) -> Result<(), LaunchError> {
        let mut all: Vec<Vec<f32>> = vec![Vec::new(); rows.len()];
        for device in 0..self.machines.len() {
            let mut of_row = all.iter_mut();
            let extend = &mut |_: usize, part: &[f32]| of_row.next().into_iter().for_each(|row| row.extend(part));
            let found = self.machines[device].logits(rows, extend);
            self.named(device, found)?;
        }
        rows.iter().zip(&all).for_each(|(&row, logits)| each(row, logits));
        Ok(())
    }

    /// Runs a step, and gives the next tokens of these rows, as [`GraphMachine::choose`]: the first device chooses among the logits of all.
    ///
    /// # Errors
    /// As [`GraphMachine::choose`]; [`LaunchError::OneOf`] if a device fails.
    pub fn choose(&mut self, cells: &StepCells, rows: &[usize], draws: &[Request]) -> Result<Vec<u32>, LaunchError> {
        let choices = self.machines[0].check_choice(rows, draws)?;
        self.submit(cells)?;
        let mut tokens = Vec::with_capacity(rows.len());
        for (at, rows) in rows.chunks(choices).enumerate() {
            let draws = draws.chunks(choices).nth(at).unwrap_or_default();
            for (device, machine) in self.machines.iter().enumerate() {
                let choice = machine.set_wanted(rows, draws, choices).and_then(|()| machine.choose_apart(false));
                self.named(device, choice)?;
            }
            self.meet()?;
            let first = &self.machines[0];
            self.named(0, first.choose_apart(true))?;
            tokens.extend(self.named(0, first.chosen(rows.len()))?);
        }
        Ok(tokens)
    }

    /// Runs steps that feed themselves, as [`GraphMachine::run_until`]; the host feeds tokens back.
    ///
    /// # Errors
    /// As [`GraphMachine::run_until`]; [`LaunchError::OneOf`] if a device fails.
    pub fn run_until(
        &mut self,
        cells: &StepCells,
        steps: usize,
        (draws, ends): (&[Request], &[&[u32]]),
        each: &mut dyn FnMut(&[u32]) -> ControlFlow<()>,
    ) -> Result<usize, LaunchError> {
        if steps == 0 || steps > MAX_STEPS {
            return Err(LaunchError::Steps { found: steps, most: MAX_STEPS });
        }
        let rows: Vec<usize> = (0..cells.positions.len()).filter(|&row| cells.positions[row] >= 0).collect();
        self.machines[0].check_choice(&rows, draws)?;
        cells.check_steps(&self.machines[0].limits, steps)?;
        end_ids(ends, self.plan().rows as usize)?;
        let choose = &mut |cells: &StepCells, rows: &[usize], draws: &[Request]| self.choose(cells, rows, draws);
        run_by_host(cells, steps, (&rows, draws, ends), choose, each)
    }

    /// Queues a segment of a device's launches.
    fn queue(&mut self, counts: Counts, segment: usize, device: usize) -> Result<(), LaunchError> {
        let machine = &self.machines[device];
        let key = (counts, segment, device);
        if !self.graphs.contains_key(&key) {
            let plan = machine.plan();
            let first = segment.checked_sub(1).map_or(0, |before| plan.meetings[before]);
            let end = plan.meetings.get(segment).copied().unwrap_or(plan.launches.len());
            self.graphs.insert(key, machine.graph_of(&plan.launches[first..end], counts)?);
        }
        match &self.graphs[&key] {
            Some(graph) => Ok(graph.launch(&machine.stream)?),
            None => Ok(()),
        }
    }

    /// What is queued from now on waits for what every device has been given so far.
    fn meet(&self) -> Result<(), LaunchError> {
        let record = |(device, machine): (usize, &GraphMachine)| self.named(device, Ok(machine.stream.record()?));
        let events = self.machines.iter().enumerate().map(record).collect::<Result<Vec<Event>, _>>()?;
        for (device, machine) in self.machines.iter().enumerate() {
            let others = events.iter().enumerate().filter(|&(other, _)| other != device);
            let waits =
                others.map(|(_, event)| machine.stream.wait_for_peer(event)).collect::<Result<(), DeviceError>>();
            self.named(device, waits.map_err(LaunchError::from))?;
        }
        Ok(())
    }

    /// The same, with the device named where it failed.
    fn named<T>(&self, device: usize, result: Result<T, LaunchError>) -> Result<T, LaunchError> {
        let devices = self.machines.len();
        result.map_err(|error| match error {
            LaunchError::Device(source) => LaunchError::OneOf { device, devices, ended: true, source },
            error => error,
        })
    }
}
