//! Graphs of one device or of several, under one type.

use crate::lower::StepPlan;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tilewright_codegen::device::{Buffer, Device};
use tilewright_kernels::sample::Request;

use super::machine::EachLogits;
use super::{Exchange, GraphMachine, GraphPeers, GraphPlan, GraphShard, GraphTuning, GraphWeights, ProductTuning};
use crate::vm::resident::{DeviceKernels, DeviceKv, DeviceWeights, Packed};
use crate::vm::{AbortHandle, AccessError, LaunchError, LoadError, MaskSender, StepCells, Unsupported};
use crate::weights::Weights;

/// A model's weights row by row on one device, or on several that reach each other's memory, each
/// its shard.
pub struct PeerWeights {
    /// The weights of each device.
    all: Vec<GraphWeights>,
}

/// A step of many rows on one device or several. Made by [`PeerWeights::machine`]. It has the
/// operations of both machines.
pub enum AnyGraph {
    /// Of one.
    One(Box<GraphMachine>),
    /// Of several.
    Several(GraphPeers),
}

impl PeerWeights {
    /// Creates weights that are copied to the devices with the first machine.
    pub fn new(devices: &[Device], weights: &Arc<dyn Weights + Send + Sync>) -> PeerWeights {
        let of = |device: &Device| GraphWeights::new(device.clone(), Arc::clone(weights));
        PeerWeights { all: devices.iter().map(of).collect() }
    }

    /// Shares compiled kernels of the first device with other machines.
    #[must_use]
    pub fn with_kernels(self, kernels: &DeviceKernels) -> PeerWeights {
        let mut all = self.all.into_iter();
        let first = all.next().map(|first| first.with_kernels(kernels));
        PeerWeights { all: first.into_iter().chain(all).collect() }
    }

    /// Shares packed weights on every device, as [`GraphWeights::share`] does.
    pub fn share(&mut self, weights: &DeviceWeights) {
        self.all.iter_mut().enumerate().for_each(|(device, graphs)| graphs.share_of(weights, device));
    }

    /// Tunes every device, as [`GraphWeights::tune`] and [`GraphWeights::tune_products`] do.
    pub fn tune(&mut self, attention: Option<GraphTuning>, products: &[ProductTuning]) {
        for graphs in &mut self.all {
            graphs.tune(attention);
            graphs.tune_products(products.to_vec());
        }
    }

    /// Sets the exchange on every device, as [`GraphWeights::set_exchange`] does.
    pub fn set_exchange(&mut self, exchange: Exchange) {
        self.all.iter_mut().for_each(|graphs| graphs.set_exchange(exchange));
    }

    /// The plan of the first device, as [`GraphWeights::plan`] makes it.
    ///
    /// # Errors
    /// If no launches compute the step, or there is no device.
    pub fn plan(&self, step: &StepPlan, packed: Option<&Packed>) -> Result<GraphPlan, Unsupported> {
        let first = self.all.first().ok_or(Unsupported::Launch { what: "a program without a device" })?;
        first.plan_of(step, 0, packed)
    }

    /// Makes a machine, by [`GraphWeights::machine`] of one device and [`GraphWeights::peers`] of
    /// several.
    ///
    /// # Errors
    /// As these; [`LoadError::Devices`] without a device.
    pub fn machine(
        &mut self,
        step: StepPlan,
        kv: Option<&DeviceKv>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<AnyGraph, LoadError> {
        match &mut self.all[..] {
            [one] => Ok(AnyGraph::One(Box::new(one.machine(step, kv, progress)?))),
            several => Ok(AnyGraph::Several(GraphWeights::peers(several, step, kv, progress)?)),
        }
    }
}

impl PeerWeights {
    /// Makes the machine of device number `device` of a step, by [`GraphWeights::shard`]: the other
    /// devices are other processes'.
    ///
    /// # Errors
    /// As [`GraphWeights::shard`]; [`LoadError::Devices`] unless this process has one device.
    pub fn shard(
        &mut self,
        step: StepPlan,
        device: usize,
        kv: Option<&DeviceKv>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<GraphShard, LoadError> {
        self.one()?.shard(step, device, kv, progress)
    }

    /// The plan of that machine, by [`GraphWeights::shard_plan`].
    ///
    /// # Errors
    /// As [`GraphWeights::shard_plan`]; [`LoadError::Devices`] unless this process has one device.
    pub fn shard_plan(&mut self, step: &StepPlan, device: usize) -> Result<GraphPlan, LoadError> {
        self.one()?.shard_plan(step, device)
    }

    fn one(&mut self) -> Result<&mut GraphWeights, LoadError> {
        let found = self.all.len();
        match &mut self.all[..] {
            [one] => Ok(one),
            _ => Err(LoadError::Devices { wanted: 1, found }),
        }
    }
}

/// Calls a method of the machine, whichever it is.
macro_rules! either {
    ($graph:expr, $machine:ident => $call:expr) => {
        match $graph {
            AnyGraph::One($machine) => $call,
            AnyGraph::Several($machine) => $call,
        }
    };
}

impl AnyGraph {
    /// The plan, of several devices the first's.
    pub fn plan(&self) -> &GraphPlan {
        either!(self, machine => machine.plan())
    }

    /// The KV pools, for other machines of the model.
    pub fn kv(&self) -> &DeviceKv {
        either!(self, machine => machine.kv())
    }

    /// Makes this machine listen to a handle.
    pub fn listen_to(&mut self, handle: &AbortHandle) {
        either!(self, machine => machine.listen_to(handle));
    }

    /// Lets all rows attend by the kernel of prompts from now on.
    pub fn attend_together(&mut self) {
        either!(self, machine => machine.attend_together());
    }

    /// Runs a step; `each` gets the logits of these rows.
    ///
    /// # Errors
    /// As [`GraphMachine::step`] and [`GraphPeers::step`].
    pub fn step(&mut self, cells: &StepCells, rows: &[usize], each: EachLogits) -> Result<(), LaunchError> {
        either!(self, machine => machine.step(cells, rows, each))
    }

    /// Runs a step launch by launch; what each took, of several devices the first's.
    ///
    /// # Errors
    /// As [`GraphMachine::times`] and [`GraphPeers::times`].
    pub fn times(&mut self, cells: &StepCells) -> Result<Vec<(String, Duration)>, LaunchError> {
        either!(self, machine => machine.times(cells))
    }

    /// Queues a step.
    ///
    /// # Errors
    /// As [`GraphMachine::submit`] and [`GraphPeers::submit`].
    pub fn submit(&mut self, cells: &StepCells) -> Result<(), LaunchError> {
        either!(self, machine => machine.submit(cells))
    }

    /// Waits for the steps that were submitted.
    ///
    /// # Errors
    /// As [`GraphMachine::wait`] and [`GraphPeers::wait`].
    pub fn wait(&self) -> Result<(), LaunchError> {
        either!(self, machine => machine.wait())
    }

    /// Sets the residual stream that a stage of one device takes.
    pub fn set_input(&mut self, name: &str, values: &[f32]) -> Result<(), LaunchError> {
        match self {
            AnyGraph::One(machine) => machine.set_input(name, values),
            // No stage is planned for several.
            AnyGraph::Several(_) => Err(AccessError::Missing { name: name.to_owned() }.into()),
        }
    }

    /// The memory of the residual stream that a stage of one device takes.
    ///
    /// # Errors
    /// As [`GraphMachine::input`].
    pub fn input(&self, name: &str) -> Result<Buffer<f32>, LaunchError> {
        match self {
            AnyGraph::One(machine) => machine.input(name),
            AnyGraph::Several(_) => Err(AccessError::Missing { name: name.to_owned() }.into()),
        }
    }

    /// The memory of the residual stream that a stage of one device gives.
    ///
    /// # Errors
    /// As [`GraphMachine::output`].
    pub fn output(&self, name: &str) -> Result<Buffer<f32>, LaunchError> {
        match self {
            AnyGraph::One(machine) => machine.output(name),
            AnyGraph::Several(_) => Err(AccessError::Missing { name: name.to_owned() }.into()),
        }
    }

    /// The residual stream that a stage of one device gives.
    pub fn f32(&self, name: &str) -> Result<Vec<f32>, LaunchError> {
        match self {
            AnyGraph::One(machine) => machine.f32(name),
            AnyGraph::Several(_) => Err(AccessError::Missing { name: name.to_owned() }.into()),
        }
    }

    /// The logits of some rows of the step that was submitted.
    ///
    /// # Errors
    /// As [`GraphMachine::logits`] and [`GraphPeers::logits`].
    pub fn logits(&mut self, rows: &[usize], each: EachLogits) -> Result<(), LaunchError> {
        either!(self, machine => machine.logits(rows, each))
    }

    /// Restricts the tokens of some rows in the next steps.
    ///
    /// # Errors
    /// As [`GraphMachine::restrict`]; graphs of several devices take no masks.
    pub fn restrict(&mut self, rows: &[usize]) -> Result<Option<MaskSender>, LaunchError> {
        match self {
            AnyGraph::One(machine) => machine.restrict(rows),
            AnyGraph::Several(_) if rows.is_empty() => Ok(None),
            AnyGraph::Several(_) => Err(LaunchError::NoMasks),
        }
    }

    /// Most steps of [`AnyGraph::run_until`] in which rows may have masks; 0: none may have any.
    pub fn masked_steps(&self) -> usize {
        match self {
            AnyGraph::One(machine) => machine.masked_steps(),
            AnyGraph::Several(_) => 0,
        }
    }

    /// Runs a step, and gives the next tokens of these rows.
    ///
    /// # Errors
    /// As [`GraphMachine::choose`] and [`GraphPeers::choose`].
    pub fn choose(&mut self, cells: &StepCells, rows: &[usize], draws: &[Request]) -> Result<Vec<u32>, LaunchError> {
        either!(self, machine => machine.choose(cells, rows, draws))
    }

    /// Runs steps that feed themselves.
    ///
    /// # Errors
    /// As [`GraphMachine::run_until`] and [`GraphPeers::run_until`].
    pub fn run_until(
        &mut self,
        cells: &StepCells,
        steps: usize,
        draws: &[Request],
        ends: &[&[u32]],
        each: &mut dyn FnMut(&[u32]) -> ControlFlow<()>,
    ) -> Result<usize, LaunchError> {
        either!(self, machine => machine.run_until(cells, steps, draws, ends, each))
    }
}
