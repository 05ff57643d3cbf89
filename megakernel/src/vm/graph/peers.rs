//! A program of many rows on several devices: launches on each, with barriers between them.

use crate::lower::StepPlan;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use tilewright_codegen::device::{DeviceError, Graph, launch_side_by_side};
use tilewright_kernels::sample::Request;

use super::fault::GraphFault;
use super::launch::Launch;
use super::machine::{Counts, EachLogits, GraphMachine, between};
use super::nccl::NcclSums;
use super::run::{FedSteps, run_by_host};
use super::{GraphPlan, GraphWeights};
use crate::vm::resident::DeviceKv;
use crate::vm::resident::stored::BoundWeights;
use crate::vm::steps::{check_count, end_ids};
use crate::vm::{AbortHandle, LaunchError, LoadError, StepCells, Unsupported};

/// A program of many rows on several devices, as a graph of launches on each. Made by
/// [`GraphWeights::peers`].
///
/// Barriers are launches of [`GraphPlan::meet`]. A simulated device runs one launch after the
/// other: there those of a barrier run side by side. Tokens are chosen by the first device, and fed
/// back by the host. Where parts are [added up by NCCL](super::Exchange::Nccl), devices wait for
/// each other in its kernels.
///
/// A device that does not come to a barrier is an error that names it after the machine's
/// [timeout](GraphPeers::set_timeout), and so is one that is lost. Unless one is lost, the next
/// step runs as if nothing had happened.
pub struct GraphPeers {
    /// The machine of each device, two or more.
    pub(super) machines: Vec<GraphMachine>,
    /// Each device's launches.
    graphs: BTreeMap<PeerPart, Vec<Graph>>,
    /// The all-reduce by NCCL, if sums use it.
    pub(super) sums: Option<NcclSums>,
    abort: AbortHandle,
    /// How long a device waits for another at a barrier.
    pub(super) timeout: Duration,
    /// What is wrong with every step, for tests.
    fault: Option<GraphFault>,
}

/// The part of a step that is queued at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PeerPart {
    /// A step, by what attention is launched for.
    Step(Counts),
    /// A choice of tokens after it.
    Choice,
}

impl PeerPart {
    fn counts(self) -> Counts {
        match self {
            PeerPart::Step(counts) => counts,
            PeerPart::Choice => Counts::NONE,
        }
    }

    fn of(self, plan: &GraphPlan) -> &[Launch] {
        match self {
            PeerPart::Step(_) => &plan.launches,
            PeerPart::Choice => plan.choice.as_ref().map_or(&[], |choice| &choice.launches),
        }
    }
}

impl GraphWeights {
    /// Makes a machine of a step of as many devices as these are the weights of, which reach
    /// each other's memory ([`open_peers`](tilewright_codegen::device::open_peers)). It uses the
    /// pools `kv`, or new ones. Each device has its shard of the weights, row by row or packed.
    ///
    /// # Errors
    /// As [`GraphWeights::machine`]; [`LoadError::Devices`] where there are not as many as the
    /// step is for, or it is for one.
    pub fn peers(
        all: &mut [GraphWeights],
        step: StepPlan,
        kv: Option<&DeviceKv>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<GraphPeers, LoadError> {
        let wanted = step.devices;
        let found = all.len();
        let Some(first) = all.first().filter(|_| found == wanted && wanted > 1) else {
            return Err(LoadError::Devices { wanted, found });
        };
        let bound = BoundWeights::new(&step, first.weights())?;
        let kv = match kv {
            Some(kv) => kv.clone(),
            None => {
                let streams = all.iter().map(|weights| weights.device().stream()).collect::<Result<Vec<_>, _>>()?;
                let on: Vec<_> = all.iter().zip(&streams).map(|(weights, stream)| (weights.device(), stream)).collect();
                let kv = DeviceKv::allocate(&step, 0, &on)?;
                streams.iter().try_for_each(|stream| stream.wait())?;
                kv
            }
        };
        let plan = |(device, weights): (usize, &GraphWeights)| weights.plan_of(&step, device, weights.packed());
        let plans = all.iter().enumerate().map(plan).collect::<Result<Vec<GraphPlan>, Unsupported>>()?;
        let parts = [PeerPart::Step(Counts::NONE), PeerPart::Choice];
        let barriers = |plan: &GraphPlan| parts.map(|part| part.of(plan).iter().filter(|l| plan.is_barrier(l)).count());
        if plans.windows(2).any(|two| barriers(&two[0]) != barriers(&two[1])) {
            return Err(Unsupported::Launch { what: "devices with different numbers of barriers" }.into());
        }
        if plans.windows(2).any(|two| two[0].all_reduces.len() != two[1].all_reduces.len()) {
            return Err(Unsupported::Launch { what: "devices that do not add up as often as each other" }.into());
        }
        let of = |(weights, plan): (&mut GraphWeights, GraphPlan)| {
            weights.machine_of(step.clone(), plan, &bound, Some(&kv), progress)
        };
        let machines = all.iter_mut().zip(plans).map(of).collect::<Result<Vec<_>, LoadError>>()?;
        Ok(GraphPeers::new(machines)?)
    }
}

impl GraphPeers {
    fn new(mut machines: Vec<GraphMachine>) -> Result<GraphPeers, DeviceError> {
        let scratch: Vec<_> = machines.iter().map(|machine| machine.memory.scratch.clone()).collect();
        machines.iter_mut().for_each(|machine| machine.memory.peers.clone_from(&scratch));
        let timeout = machines[0].barrier_timeout();
        let graphs = BTreeMap::new();
        let sums = NcclSums::of(&machines)?;
        let abort = AbortHandle::default();
        let peers = GraphPeers { machines, graphs, sums, abort, timeout, fault: None };
        peers.reset_barriers()?;
        Ok(peers)
    }

    fn set_fault(&mut self, fault: Option<GraphFault>) {
        self.fault = fault;
        self.graphs.clear();
    }

    /// Makes every step from now on suffer a fault.
    pub fn inject(&mut self, fault: GraphFault) {
        self.set_fault(Some(fault));
    }

    /// Takes it back.
    pub fn mend(&mut self) {
        self.set_fault(None);
    }

    /// The first device's plan.
    pub fn plan(&self) -> &GraphPlan {
        self.machines[0].plan()
    }

    /// The KV pools, for other machines of the model.
    pub fn kv(&self) -> &DeviceKv {
        self.machines[0].kv()
    }

    /// Makes this machine listen to a handle that others listen to as well. It is looked at before
    /// a step.
    pub fn listen_to(&mut self, handle: &AbortHandle) {
        self.abort = handle.clone();
    }

    /// Enables joint attention on every device, as [`GraphMachine::attend_together`] does.
    pub fn attend_together(&mut self) {
        self.machines.iter_mut().for_each(GraphMachine::attend_together);
    }

    /// Runs a step; `each` gets the logits of these rows, in their order, which may be none. After
    /// it the keys and values are there for every machine of the pools.
    ///
    /// # Errors
    /// As [`GraphMachine::step`]; [`LaunchError::OneOf`] names a device that fails,
    /// [`LaunchError::Absent`] a device that did not reach a barrier.
    pub fn step(&mut self, cells: &StepCells, rows: &[usize], each: EachLogits) -> Result<(), LaunchError> {
        self.machines[0].check_rows(rows)?;
        self.submit(cells)?;
        self.logits(rows, each)
    }

    /// Queues a step without logits; other machines of the pools run after [`GraphPeers::wait`].
    ///
    /// # Errors
    /// As [`GraphPeers::step`].
    pub fn submit(&mut self, cells: &StepCells) -> Result<(), LaunchError> {
        cells.check(&self.machines[0].limits)?;
        if self.abort.is_set() {
            self.abort.clear();
            return Err(LaunchError::Aborted { steps: 0 });
        }
        self.submit_checked(cells).map_err(|error| self.judged(error))
    }

    fn submit_checked(&mut self, cells: &StepCells) -> Result<(), LaunchError> {
        self.come()?;
        let mut counts = Counts::NONE;
        let sequences = self.machines[0].sequences(cells);
        for device in 0..self.machines.len() {
            let sent = self.machines[device].send_cells(cells, &sequences);
            counts = self.named(device, sent)?;
        }
        self.queue(PeerPart::Step(counts))
    }

    /// Waits for the steps that were submitted.
    ///
    /// # Errors
    /// [`LaunchError::OneOf`] if a device failed in one of them, [`LaunchError::Absent`] if one did
    /// not come to a barrier.
    pub fn wait(&self) -> Result<(), LaunchError> {
        self.ended().map_err(|error| self.judged(error))
    }

    /// Waits until all that was queued has ended, and every device has come to every barrier.
    fn ended(&self) -> Result<(), LaunchError> {
        self.come()?;
        for (device, machine) in self.machines.iter().enumerate() {
            self.named(device, machine.wait())?;
        }
        self.check_barriers()
    }

    /// The logits of some rows of the step that was submitted: each device has those of its part of
    /// the vocabulary.
    ///
    /// # Errors
    /// As [`GraphPeers::wait`].
    pub fn logits(&mut self, rows: &[usize], each: EachLogits) -> Result<(), LaunchError> {
        let all = self.all_logits(rows).map_err(|error| self.judged(error))?;
        rows.iter().zip(&all).for_each(|(&row, logits)| each(row, logits));
        Ok(())
    }

    /// They are valid once all devices have passed the barrier; after a barrier that timed out they
    /// are undefined.
    fn all_logits(&mut self, rows: &[usize]) -> Result<Vec<Vec<f32>>, LaunchError> {
        self.come()?;
        let mut all: Vec<Vec<f32>> = vec![Vec::new(); rows.len()];
        for device in 0..self.machines.len() {
            let mut of_row = all.iter_mut();
            let extend = &mut |_: usize, part: &[f32]| of_row.next().into_iter().for_each(|row| row.extend(part));
            let found = self.machines[device].logits(rows, extend);
            self.named(device, found)?;
        }
        self.ended()?;
        Ok(all)
    }

    /// Runs a step, and gives the next tokens of these rows, as [`GraphMachine::choose`]: the first
    /// device chooses among the logits of all.
    ///
    /// # Errors
    /// As [`GraphMachine::choose`]; as [`GraphPeers::step`].
    pub fn choose(&mut self, cells: &StepCells, rows: &[usize], draws: &[Request]) -> Result<Vec<u32>, LaunchError> {
        let choices = self.machines[0].check_choice(rows, draws)?;
        self.submit(cells)?;
        self.chosen(rows, draws, choices).map_err(|error| self.judged(error))
    }

    /// The tokens of a submitted step, in chunks of that number of rows.
    fn chosen(&mut self, rows: &[usize], draws: &[Request], choices: usize) -> Result<Vec<u32>, LaunchError> {
        self.come()?;
        let mut tokens = Vec::with_capacity(rows.len());
        for (at, rows) in rows.chunks(choices).enumerate() {
            let draws = draws.chunks(choices).nth(at).unwrap_or_default();
            for (device, machine) in self.machines.iter().enumerate() {
                self.named(device, machine.set_wanted(rows, draws, choices))?;
            }
            self.queue(PeerPart::Choice)?;
            // After it the first device has copied what the others have of the logits: the next
            // rows' may be stored.
            tokens.extend(self.named(0, self.machines[0].chosen(rows.len()))?);
        }
        self.ended()?;
        Ok(tokens)
    }

    /// Runs a step launch by launch, as [`GraphMachine::times`], and gives what the first device's
    /// took: a barrier as long as it waits for the others. The launches of simulated devices take
    /// no time, and sums by NCCL are in graphs alone: then nothing is given.
    ///
    /// # Errors
    /// As [`GraphPeers::submit`].
    pub fn times(&mut self, cells: &StepCells) -> Result<Vec<(String, Duration)>, LaunchError> {
        self.submit(cells)?;
        self.times_after_step(cells).map_err(|error| self.judged(error))
    }

    /// Times launches after a submitted step, which keeps the devices busy while they are queued.
    fn times_after_step(&mut self, cells: &StepCells) -> Result<Vec<(String, Duration)>, LaunchError> {
        if self.machines[0].is_simulated() || self.sums.is_some() {
            return Ok(Vec::new());
        }
        let counts = self.machines[0].counts(&self.machines[0].sequences(cells));
        let work = |(device, machine): (usize, &GraphMachine)| {
            let work = machine.work_by_name(&machine.plan().launches, counts);
            self.named(device, work.map_err(LaunchError::from))
        };
        let works = self.machines.iter().enumerate().map(work).collect::<Result<Vec<_>, _>>()?;
        let mut events = vec![self.machines[0].stream.record()?];
        // By turns, so that no device waits long for what another is still to be told.
        for at in 0..works.iter().map(Vec::len).max().unwrap_or(0) {
            for (device, (machine, works)) in self.machines.iter().zip(&works).enumerate() {
                let Some((_, work)) = works.get(at) else { continue };
                self.named(device, machine.stream.submit(work).map_err(LaunchError::from))?;
                if device == 0 {
                    events.push(machine.stream.record()?);
                }
            }
        }
        self.ended()?;
        let first = works.into_iter().next().unwrap_or_default();
        self.named(0, between(first, &events).map_err(LaunchError::from))
    }

    /// Runs steps that feed themselves, as [`GraphMachine::run_until`]; the host feeds tokens back.
    ///
    /// # Errors
    /// As [`GraphMachine::run_until`]; [`LaunchError::OneOf`] if a device fails.
    pub fn run_until(
        &mut self,
        cells: &StepCells,
        steps: usize,
        draws: &[Request],
        ends: &[&[u32]],
        each: &mut dyn FnMut(&[u32]) -> ControlFlow<()>,
    ) -> Result<usize, LaunchError> {
        check_count(steps)?;
        let rows: Vec<usize> = (0..cells.positions.len()).filter(|&row| cells.positions[row] >= 0).collect();
        self.machines[0].check_choice(&rows, draws)?;
        cells.check_steps(&self.machines[0].limits, steps)?;
        end_ids(ends, self.plan().rows as usize)?;
        let choose = &mut |cells: &StepCells, rows: &[usize], draws: &[Request]| self.choose(cells, rows, draws);
        run_by_host(FedSteps { cells, steps, rows: &rows, draws }, ends, choose, each)
    }

    /// A device's launches.
    fn launches(&self, device: usize, part: PeerPart) -> Cow<'_, [Launch]> {
        let plan = self.machines[device].plan();
        match self.fault {
            None => part.of(plan).into(),
            Some(fault) => fault.left(plan, device, part.of(plan)).into(),
        }
    }

    /// Queues launches on all devices.
    fn queue(&mut self, part: PeerPart) -> Result<(), LaunchError> {
        let stays = self.fault.and_then(|fault| fault.stays_away(self.plan()));
        if self.machines[0].is_simulated() {
            return match (stays, part) {
                (Some(device), PeerPart::Step(_)) => Err(self.absent_one(device)),
                _ => self.queue_one_by_one(part),
            };
        }
        if let Some(sums) = self.sums.as_mut().filter(|sums| sums.are_given_up()) {
            self.graphs.clear();
            sums.begin_anew(&self.machines)?;
        }
        if !self.graphs.contains_key(&part) {
            // All are made before any is queued: devices that run wait for each other.
            let graph = |(device, machine): (usize, &GraphMachine)| {
                self.named(device, machine.graph_of(&self.launches(device, part), part.counts()))
            };
            let graphs = match (part, &self.sums) {
                (PeerPart::Step(counts), Some(_)) => self.graphs_with_sums(counts)?,
                _ => self.machines.iter().enumerate().map(graph).collect::<Result<Vec<_>, _>>()?,
            };
            self.graphs.insert(part, graphs);
        }
        for (device, (machine, graph)) in self.machines.iter().zip(&self.graphs[&part]).enumerate() {
            if stays != Some(device) {
                self.named(device, graph.launch(&machine.stream).map_err(LaunchError::from))?;
            }
        }
        Ok(())
    }

    /// Queues launches on devices that run them at once: up to each barrier in turn, and the
    /// barrier side by side. Between two barriers another device begins each time, so that nothing
    /// can rely on an order that the barriers do not make.
    fn queue_one_by_one(&self, part: PeerPart) -> Result<(), LaunchError> {
        let all: Vec<Cow<[Launch]>> = (0..self.machines.len()).map(|device| self.launches(device, part)).collect();
        let sums = |device: usize| match part {
            PeerPart::Step(_) => &self.machines[device].plan().all_reduces[..],
            PeerPart::Choice => &[],
        };
        let mut first = vec![0; all.len()];
        for (at, sum) in sums(0).iter().enumerate() {
            let ends: Vec<usize> =
                (0..all.len()).map(|device| sums(device).get(at).map_or(0, |sum| sum.before)).collect();
            let before = (0..all.len()).map(|device| all[device].get(first[device]..ends[device]).unwrap_or_default());
            self.queue_side_by_side(before.collect(), part)?;
            self.add_up(sum)?;
            first = ends;
        }
        self.queue_side_by_side(
            all.iter().zip(first).map(|(all, first)| all.get(first..).unwrap_or_default()).collect(),
            part,
        )
    }

    /// Queues launches between all-reduces of all devices.
    fn queue_side_by_side(&self, mut left: Vec<&[Launch]>, part: PeerPart) -> Result<(), LaunchError> {
        let count = self.machines.len();
        for first in 0.. {
            let mut barrier = BTreeMap::new();
            for device in (0..count).map(|at| (first + at) % count) {
                let machine = &self.machines[device];
                let work = |launches| {
                    self.named(device, machine.work(launches, part.counts(), None).map_err(LaunchError::from))
                };
                let is_barrier = |launch: &Launch| machine.plan().is_barrier(launch);
                let before = left[device].iter().position(is_barrier).unwrap_or(left[device].len());
                let (before, after) = left[device].split_at(before);
                let (next, rest) = after.split_at(after.len().min(1));
                left[device] = rest;
                for work in work(before)? {
                    self.named(device, machine.stream.submit(&work).map_err(LaunchError::from))?;
                }
                barrier.extend(work(next)?.into_iter().map(|work| (device, work)));
            }
            if barrier.is_empty() {
                break;
            }
            let works = barrier.into_iter().map(|(device, work)| (&self.machines[device].stream, work));
            launch_side_by_side(&works.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Names the device in an error.
    pub(super) fn named<T>(&self, device: usize, result: Result<T, LaunchError>) -> Result<T, LaunchError> {
        let devices = self.machines.len();
        result.map_err(|error| {
            let LaunchError::Device(source) = error else { return error };
            LaunchError::OneOf { device, devices, ended: true, source: Box::new(source) }
        })
    }
}
