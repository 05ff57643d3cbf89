//! A step as launches.

use std::collections::{BTreeSet, HashSet};

use tilewright_codegen::ir::{Arch, Kernel};

use super::Scratch;
use super::launch::{AllReduce, Launch, LaunchArg, LaunchMemory};
use crate::program::BufferId;
use crate::vm::resident::RotationTable;

/// Most rows that are chosen for at a time, and most that decode beside each other.
pub(crate) const MOST_ALONE: u32 = 64;
/// Steps that are queued at a time: one runs, the next is there when it ends, whatever the host
/// does meanwhile. A caller that ends a run receives the tokens of both.
pub const MOST_QUEUED: usize = 2;
/// Steps whose tokens have room: a step's are read before another writes there.
pub(super) const LINES: usize = MOST_QUEUED;

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
    /// devices wait at a [barrier](GraphPlan::meet) for them.
    pub all_reduces: Vec<AllReduce>,
    /// The kernel of a device barrier: after its launch all launches of all devices have ended
    /// that come before their barrier of that number. None of one device.
    pub meet: Option<usize>,
    /// The launches that follow for rows whose logits are requested.
    pub logits: Option<LogitsPlan>,
    /// The device's choice of tokens, where the program ends in one.
    pub choice: Option<ChoicePlan>,
    /// Rows at the beginning of a step that may be sequences of their own, with decode attention; 0
    /// where no such kernel fits.
    pub alone: u32,
    /// Weights that lie below each other as one matrix, row by row; those of experts expert by
    /// expert: of each the rows of every weight.
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
    /// Tokens of a row's mask, where rows may have masks: one device samples.
    pub fn mask_tokens(&self) -> Option<u32> {
        let choice = self.choice.as_ref().filter(|choice| choice.sampled && !choice.fed.is_empty());
        Some(self.logits.as_ref().filter(|_| choice.is_some())?.vocab)
    }

    /// Whether a launch is a device barrier.
    pub fn is_barrier(&self, launch: &Launch) -> bool {
        self.meet == Some(launch.kernel)
    }

    /// All launches: of a step, of logits, and of choices.
    fn all(&self) -> impl Iterator<Item = &Launch> {
        let logits = self.logits.iter().flat_map(|logits| logits.of_row.iter().chain(&logits.of_all));
        let choices = self.choice.iter().flat_map(|choice| choice.launches.iter().chain(&choice.fed));
        self.launches.iter().chain(logits).chain(choices)
    }

    /// The KV pools that launches read or write: those of the plan's device.
    pub(super) fn pools(&self) -> HashSet<BufferId> {
        let of = |arg: &LaunchArg| if let LaunchMemory::Pool(pool) = arg.memory()? { Some(pool) } else { None };
        self.all().flat_map(|launch| launch.args.iter().filter_map(of)).collect()
    }

    /// Whether a step or its logits need the memory of other devices, as [barriers](GraphPlan::meet)
    /// do.
    pub(super) fn needs_peers(&self) -> bool {
        let is_peers = |arg: &LaunchArg| matches!(arg.memory(), Some(LaunchMemory::Of { .. }));
        let logits = self.logits.iter().flat_map(|logits| logits.of_row.iter().chain(&logits.of_all));
        self.launches.iter().chain(logits).any(|launch| launch.args.iter().any(is_peers))
    }

    /// Numbers of the kernels that a prompt's step and a row's logits are launched with.
    pub fn of_prompts(&self) -> BTreeSet<usize> {
        let layers = self.launches.iter().filter(|launch| launch.grid.is_of_prompts());
        let logits = self.logits.iter().flat_map(|logits| &logits.of_row);
        layers.chain(logits).map(|launch| launch.kernel).collect()
    }
}
