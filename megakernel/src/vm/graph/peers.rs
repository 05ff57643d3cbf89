//! A program of many rows on several devices: launches on each, which meet.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use tilewright_codegen::device::{Graph, launch_side_by_side};
use tilewright_kernels::exchange::MEET_WORDS;
use tilewright_kernels::sample::Request;

use super::launch::{Launch, Scratch};
use super::machine::{Counts, EachLogits, GraphMachine};
use super::run::run_by_host;
use super::{GraphPlan, GraphWeights};
use crate::validate::Checked;
use crate::vm::device::load::Bound;
use crate::vm::device::{AbortHandle, DeviceKv, LaunchError, LoadError, Unsupported, check_count, end_ids};
use crate::vm::reference::StepCells;

/// What a device that gives a meeting up has waited, about.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program of many rows on several devices, as a graph of launches on each. Made by [`GraphWeights::peers`].
///
/// Devices meet by launches of [`GraphPlan::meet`]. A simulated device runs one launch after the other: there those of a meeting run side by side.
/// Tokens are chosen by the first device, and fed back by the host.
pub struct GraphPeers {
    /// One for each device.
    machines: Vec<GraphMachine>,
    /// Each device's launches.
    graphs: BTreeMap<Part, Vec<Graph>>,
    abort: AbortHandle,
}

/// What is queued at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// A step, by what attention is launched for.
    Step(Counts),
    /// A choice of tokens behind it.
    Choice,
}

impl Part {
    fn counts(self) -> Counts {
        match self {
            Part::Step(counts) => counts,
            Part::Choice => Counts::NONE,
        }
    }

    fn of(self, plan: &GraphPlan) -> &[Launch] {
        match self {
            Part::Step(_) => &plan.launches,
            Part::Choice => plan.choice.as_ref().map_or(&[], |choice| &choice.launches),
        }
    }
}

impl GraphWeights {
    /// Makes a machine of a program of as many devices as these are the weights of, which reach each other's memory
    /// ([`open_peers`](tilewright_codegen::device::open_peers)). It uses the pools `kv`, or new ones. Each device has its
    /// shard of the weights, row by row or packed.
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
        let plan = |(device, weights): (usize, &GraphWeights)| weights.plan_of(&program, device, weights.packed().0);
        let plans = all.iter().enumerate().map(plan).collect::<Result<Vec<GraphPlan>, Unsupported>>()?;
        let meetings = |plan: &GraphPlan| plan.launches.iter().filter(|launch| plan.is_meeting(launch)).count();
        if plans.iter().any(|plan| meetings(plan) != meetings(&plans[0])) {
            return Err(Unsupported::Launch { what: "devices that do not meet as often as each other" }.into());
        }
        let of = |(weights, plan): (&mut GraphWeights, GraphPlan)| {
            let (_, prepacked) = weights.packed();
            weights.machine_of(program.clone(), plan, (&bound, prepacked), Some(&kv), progress)
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
        self.queue(Part::Step(counts))
    }

    /// Waits for the steps that were submitted.
    ///
    /// # Errors
    /// [`LaunchError::OneOf`] if a device failed in one of them.
    pub fn wait(&self) -> Result<(), LaunchError> {
        for (device, machine) in self.machines.iter().enumerate() {
            self.named(device, machine.wait())?;
        }
        // Its meetings failed for what another device did not do.
        for (device, machine) in self.machines.iter().enumerate() {
            self.named(device, met(machine))?;
        }
        Ok(())
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
                self.named(device, machine.set_wanted(rows, draws, choices))?;
            }
            self.queue(Part::Choice)?;
            tokens.extend(self.named(0, self.machines[0].chosen(rows.len()))?);
        }
        self.wait()?;
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
        check_count(steps)?;
        let rows: Vec<usize> = (0..cells.positions.len()).filter(|&row| cells.positions[row] >= 0).collect();
        self.machines[0].check_choice(&rows, draws)?;
        cells.check_steps(&self.machines[0].limits, steps)?;
        end_ids(ends, self.plan().rows as usize)?;
        let choose = &mut |cells: &StepCells, rows: &[usize], draws: &[Request]| self.choose(cells, rows, draws);
        run_by_host(cells, steps, (&rows, draws, ends), choose, each)
    }

    /// Queues launches on all devices.
    fn queue(&mut self, part: Part) -> Result<(), LaunchError> {
        if self.machines[0].is_simulated() {
            return self.queue_one_by_one(part);
        }
        if !self.graphs.contains_key(&part) {
            // All are made before any is queued: devices that run wait for each other.
            let graph = |(device, machine): (usize, &GraphMachine)| {
                self.named(device, machine.graph_of(part.of(machine.plan()), part.counts()))
            };
            let graphs = self.machines.iter().enumerate().map(graph).collect::<Result<Vec<_>, _>>()?;
            self.graphs.insert(part, graphs);
        }
        for (device, (machine, graph)) in self.machines.iter().zip(&self.graphs[&part]).enumerate() {
            self.named(device, graph.launch(&machine.stream).map_err(LaunchError::from))?;
        }
        Ok(())
    }

    /// The same on devices that run what they are given at once: up to each meeting, and that side by side.
    fn queue_one_by_one(&self, part: Part) -> Result<(), LaunchError> {
        let mut left: Vec<&[Launch]> = self.machines.iter().map(|machine| part.of(machine.plan())).collect();
        loop {
            let mut meeting = Vec::with_capacity(left.len());
            for (device, (machine, left)) in self.machines.iter().zip(&mut left).enumerate() {
                let is_meeting = |launch: &Launch| machine.plan().is_meeting(launch);
                let count = left.iter().position(is_meeting).unwrap_or(left.len());
                let (before, behind) = left.split_at(count);
                let (first, rest) = behind.split_at(behind.len().min(1));
                *left = rest;
                for work in self.named(device, machine.work(before, part.counts(), None).map_err(LaunchError::from))? {
                    self.named(device, machine.stream.submit(&work).map_err(LaunchError::from))?;
                }
                let work = self.named(device, machine.work(first, part.counts(), None).map_err(LaunchError::from))?;
                meeting.extend(work.into_iter().map(|work| (&machine.stream, work)));
            }
            if meeting.is_empty() {
                return Ok(());
            }
            launch_side_by_side(&meeting)?;
        }
    }

    /// The same, with the device named where it failed.
    fn named<T>(&self, device: usize, result: Result<T, LaunchError>) -> Result<T, LaunchError> {
        let devices = self.machines.len();
        result.map_err(|error| {
            let LaunchError::Device(source) = error else { return error };
            LaunchError::OneOf { device, devices, ended: true, source: Box::new(source) }
        })
    }
}

/// Fails where a device gave a meeting up.
fn met(machine: &GraphMachine) -> Result<(), LaunchError> {
    let Some(words) = machine.memory.scratch.get(&Scratch::Meetings) else { return Ok(()) };
    let words: Vec<u32> = machine.stream.read(&words.cast()?)?;
    match words.get(MEET_WORDS as usize - 1) {
        Some(0) | None => Ok(()),
        Some(_) => Err(LaunchError::Hung { steps: 0, patience: PATIENCE }),
    }
}
