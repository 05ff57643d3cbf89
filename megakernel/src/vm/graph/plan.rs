//! A step as launches.

use crate::lower::StepPlan;
use std::collections::BTreeSet;

use tilewright_codegen::ir::{Arch, Kernel};

use super::Scratch;
use super::launch::{AllReduce, Launch};
use super::launches::launch_op;
use super::planner::GraphPlanner;
use super::tuning::GraphOptions;
use crate::program::BufferId;
use crate::vm::Unsupported;
use crate::vm::resident::{Packed, RotationTable};
use crate::vm::unsupported::one_device;

/// The device that launches are planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphTarget {
    /// The architecture of the kernels.
    pub arch: Arch,
    /// The number of SMs.
    pub multiprocessors: u32,
}

/// A step as launches: what a machine loads.
///
/// Lengths, positions and page tables are in no kernel, so steps that differ in these have the
/// same.
#[derive(Debug)]
pub struct GraphPlan {
    /// Rows of a step.
    pub rows: u32,
    /// The kernels, each once.
    pub kernels: Vec<Kernel>,
    /// The launches of a step up to the last norm, in their order.
    pub launches: Vec<Launch>,
    /// Sums of what all devices have, by NCCL, between these launches: in their order. None where
    /// devices [meet](GraphPlan::meet) for them.
    pub all_reduces: Vec<AllReduce>,
    /// The kernel by which devices meet: after its launch all launches of all devices have ended
    /// that come before their meeting of that number. None of one device.
    pub meet: Option<usize>,
    /// The launches that follow for rows whose logits are requested.
    pub logits: Option<LogitsPlan>,
    /// The device's choice of tokens, where the program ends in one.
    pub choice: Option<ChoicePlan>,
    /// Rows at the beginning of a step that may be sequences of their own, with decode attention; 0
    /// where no such kernel fits.
    pub alone: u32,
    /// Weights that lie below each other as one matrix, row by row.
    pub matrices: Vec<Vec<BufferId>>,
    /// Quantised weights, which a launch of their own makes bf16 before the product that reads
    /// them.
    pub codes: Vec<BufferId>,
    /// Biases of a product's features by layer, with their number; zeros where a layer has none.
    pub biases: Vec<Vec<(usize, Option<BufferId>)>>,
    /// Weights that are read as they are.
    pub plain: Vec<BufferId>,
    /// Tables of rotations.
    pub rotations: Vec<RotationTable>,
    /// Bytes of the activations.
    pub scratch: Vec<(Scratch, u64)>,
}

/// The output projection, which is computed for the rows that are asked for.
#[derive(Debug)]
pub struct LogitsPlan {
    /// Logits of a row.
    pub vocab: u32,
    /// Columns of the norm that it reads.
    pub width: u32,
    /// The launches for a row.
    pub of_row: Vec<Launch>,
    /// The launches for all rows.
    pub of_all: Vec<Launch>,
}

/// The choice of tokens of named rows on the device, and their feedback.
#[derive(Debug)]
pub struct ChoicePlan {
    /// Most rows that are named at a time.
    pub rows: u32,
    /// Whether tokens may be chosen at random.
    pub sampled: bool,
    /// The launches of a choice for rows that are named; of several devices the first chooses.
    pub launches: Vec<Launch>,
    /// The launches of a choice for the first rows in order, which also feed its tokens to the next
    /// step.
    pub fed: Vec<Launch>,
}

impl GraphPlan {
    /// Whether devices meet in a launch.
    pub fn is_meeting(&self, launch: &Launch) -> bool {
        self.meet == Some(launch.kernel)
    }

    /// Plans a step for a device.
    ///
    /// # Errors
    /// Ops, types and shapes that no launch computes.
    pub fn new(step: &StepPlan, target: GraphTarget) -> Result<GraphPlan, Unsupported> {
        GraphPlan::beside(step, target, None)
    }

    /// Plans a step that shares packed weights with streaming machines: products of up to 64 rows
    /// read them in place.
    ///
    /// # Errors
    /// As [`GraphPlan::new`].
    pub fn beside(step: &StepPlan, target: GraphTarget, packed: Option<&Packed>) -> Result<GraphPlan, Unsupported> {
        GraphPlan::tuned(step, target, packed, GraphOptions::default())
    }

    /// Numbers of the kernels that a prompt's step and a row's logits are launched with.
    pub fn of_prompts(&self) -> BTreeSet<usize> {
        let layers = self.launches.iter().filter(|launch| launch.grid.is_of_prompts());
        let logits = self.logits.iter().flat_map(|logits| &logits.of_row);
        layers.chain(logits).map(|launch| launch.kernel).collect()
    }

    /// Plans a step of one device with the given settings.
    ///
    /// # Errors
    /// As [`GraphPlan::new`].
    pub fn tuned(
        step: &StepPlan,
        target: GraphTarget,
        packed: Option<&Packed>,
        options: GraphOptions<'_>,
    ) -> Result<GraphPlan, Unsupported> {
        one_device(step)?;
        GraphPlan::of_device(step, 0, target, packed, options)
    }

    /// Plans the launches of one of a step's devices. Where there are several, parts of sums are
    /// exchanged where the devices [meet](GraphPlan::meet): each adds the parts to a share of the
    /// rows, reading those of its peers, and stores the norm of these on all.
    /// [`GraphOptions::exchange`] sets another exchange.
    ///
    /// # Errors
    /// As [`GraphPlan::new`].
    pub fn of_device(
        step: &StepPlan,
        device: usize,
        target: GraphTarget,
        packed: Option<&Packed>,
        options: GraphOptions<'_>,
    ) -> Result<GraphPlan, Unsupported> {
        let mut planner = GraphPlanner::new(step, device, target, packed, options)?;
        planner.enter()?;
        for level in step.levels().iter().filter(|level| level.is_of(device)) {
            let row = launch_op(&level.op).ok_or(Unsupported::Launch { what: "such an op" });
            row.and_then(|row| row.launch(&mut planner))
                .map_err(|source| Unsupported::Level { level: level.name.clone(), source: Box::new(source) })?;
        }
        planner.finish()
    }
}
