//! One device of several that share a model, of which the others are other processes'.

use std::collections::BTreeMap;

use tilewright_codegen::device::backend::Work;
use tilewright_codegen::device::{Collective, DeviceError, Graph};

use super::launch::Launch;
use super::machine::{Counts, EachLogits, GraphMachine};
use super::sums::{Summand, with_sums};
use super::{Exchange, GraphPlan, GraphWeights};
use crate::lower::StepPlan;
use crate::vm::resident::DeviceKv;
use crate::vm::resident::stored::BoundWeights;
use crate::vm::{LaunchError, LoadError, StepCells, Unsupported};

/// A step on one of several devices, each of which is another process's. Made by
/// [`GraphWeights::shard`].
///
/// All processes run the same steps in the same order. Where the plan adds up the parts of all
/// devices, NCCL does so within the launch graph, or on simulated devices a callback on the host.
/// After a step each device has the logits of its part of the vocabulary. No wait in here has a
/// timeout: callers poll [`GraphShard::done`], and abort the [`Collective`] when they give up.
pub struct GraphShard {
    machine: GraphMachine,
    /// The launches of a step with their sums, by what attention is launched for.
    graphs: BTreeMap<Counts, Graph>,
}

impl GraphWeights {
    /// Makes the machine of device number `device` of a step. It uses the pools `kv`, which an
    /// earlier one of that device has made, or new ones.
    ///
    /// # Errors
    /// As [`GraphWeights::machine`]; if the step is for one device, or needs the memory of other
    /// devices.
    pub fn shard(
        &mut self,
        step: StepPlan,
        device: usize,
        kv: Option<&DeviceKv>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<GraphShard, LoadError> {
        let plan = self.shard_plan(&step, device)?;
        let bound = BoundWeights::new(&step, self.weights())?;
        let kv = match kv {
            Some(kv) => kv.clone(),
            None => {
                let stream = self.device().stream()?;
                let kv = DeviceKv::allocate(&step, device, &[(self.device(), &stream)])?;
                stream.wait()?;
                kv
            }
        };
        let machine = self.machine_of(step, plan, &bound, Some(&kv), progress)?;
        Ok(GraphShard { machine, graphs: BTreeMap::new() })
    }

    /// The plan of [`GraphWeights::shard`].
    ///
    /// # Errors
    /// If no launches compute the step, it is for one device, or it needs the memory of other
    /// devices.
    pub fn shard_plan(&mut self, step: &StepPlan, device: usize) -> Result<GraphPlan, LoadError> {
        if device >= step.devices || step.devices < 2 {
            return Err(LoadError::Devices { wanted: step.devices, found: device + 1 });
        }
        self.set_exchange(Exchange::Nccl);
        let plan = self.plan_of(step, device, self.packed())?;
        match plan.needs_peers() {
            true => Err(Unsupported::Launch { what: "memory of a device of another process" }.into()),
            false => Ok(plan),
        }
    }
}

impl GraphShard {
    /// The device's plan.
    pub fn plan(&self) -> &GraphPlan {
        self.machine.plan()
    }

    /// The KV pools, for other machines of the device.
    pub fn kv(&self) -> &DeviceKv {
        self.machine.kv()
    }

    /// Enables joint attention, as [`GraphMachine::attend_together`] does.
    pub fn attend_together(&mut self) {
        self.machine.attend_together();
    }

    /// Checks the cells of a step: what one device refuses, no other waits for.
    ///
    /// # Errors
    /// Cells that do not fit.
    pub fn check(&self, cells: &StepCells) -> Result<(), LaunchError> {
        Ok(cells.check(&self.machine.limits)?)
    }

    /// Runs a step on a simulated device. `add` replaces this device's summand of each sum by the
    /// sum over all devices.
    ///
    /// # Errors
    /// Cells that do not fit, before anything runs; a device that fails; errors of `add`.
    pub fn step_by_host<E: From<LaunchError>>(
        &mut self,
        cells: &StepCells,
        add: &mut dyn FnMut(&mut Summand) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check(cells)?;
        let machine = &mut self.machine;
        let counts = machine.set_cells(cells)?;
        let device = |error: DeviceError| E::from(LaunchError::from(error));
        let run = |machine: &GraphMachine, launches: &[Launch]| {
            machine.work(launches, counts, None)?.iter().try_for_each(|work| machine.stream.submit(work))
        };
        let mut first = 0;
        for sum in &machine.plan.all_reduces {
            run(machine, machine.plan.launches.get(first..sum.before).unwrap_or_default()).map_err(device)?;
            let mut summand = machine.summand(sum).map_err(device)?;
            add(&mut summand)?;
            machine.store_sum(sum, &summand).map_err(device)?;
            first = sum.before;
        }
        run(machine, machine.plan.launches.get(first..).unwrap_or_default()).map_err(device)?;
        Ok(machine.wait()?)
    }

    /// Queues a step on a GPU, as a graph with NCCL's sums. `record` makes the graph of a step's
    /// work, by [`Collective::graphs`]: NCCL may wait for other processes meanwhile. No step is
    /// under way.
    ///
    /// # Errors
    /// Cells that do not fit, before anything runs; a device that fails; errors of `record`.
    pub fn submit<E: From<LaunchError>>(
        &mut self,
        cells: &StepCells,
        collective: &Collective,
        record: &mut dyn FnMut(Vec<Work>) -> Result<Graph, E>,
    ) -> Result<(), E> {
        self.check(cells)?;
        let counts = self.machine.set_cells(cells)?;
        let device = |error: DeviceError| E::from(LaunchError::from(error));
        if !self.graphs.contains_key(&counts) {
            let graph = record(with_sums(collective, &self.machine, counts).map_err(device)?)?;
            self.graphs.insert(counts, graph);
        }
        self.graphs[&counts].launch(&self.machine.stream).map_err(device)
    }

    /// Whether the step that was submitted is done.
    ///
    /// # Errors
    /// If the device failed in it.
    pub fn done(&self) -> Result<bool, LaunchError> {
        Ok(self.machine.stream.done()?)
    }

    /// The logits of some rows of the step that is done: those of this device's part of the
    /// vocabulary.
    ///
    /// # Errors
    /// Rows that there are not; a device that fails.
    pub fn logits(&mut self, rows: &[usize], each: EachLogits) -> Result<(), LaunchError> {
        self.machine.check_rows(rows)?;
        self.machine.logits(rows, each)
    }
}
