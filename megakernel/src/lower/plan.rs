//! A step as whole ops, one for each level: what a graph of launches is made from.

use std::ops::Deref;

use crate::ops::{CellUse, Op};
use crate::program::{Buffer, BufferId, DeviceId, Program, Quantised};
use crate::weights::Weights;

/// A step of a model as whole ops, in an order in which each comes after those that it depends on.
///
/// The levels are those that [`lower`](super::lower) cuts into tasks. A graph of launches computes
/// each level by one launch or a few, so no level is cut. [`StepPlan::program`] has the buffers,
/// and no tasks.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::{lower::{LowerOptions, plan}, model::ModelSpec};
/// let spec = ModelSpec::named("llama-3.2-1b").unwrap();
/// let target = Target::named("h100").unwrap();
/// let options = LowerOptions { rows: 512, ..LowerOptions::for_context(4096) };
/// let plan = plan(&spec, &|_| DType::BF16, target, &options).unwrap();
/// // The embedding, five levels of each of 16 layers, logits and their maximum.
/// assert_eq!(plan.levels().len(), 1 + 16 * 5 + 2);
/// assert_eq!((plan.levels()[1].name.as_str(), plan.levels()[1].op.name()), ("layers.0.qkv", "qkv"));
/// ```
#[derive(Clone, Debug)]
pub struct StepPlan {
    pub(super) program: Program,
    pub(super) planned: PlannedLevels,
}

/// A level: an op of all rows on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Its display name, such as `layers.3.qkv`.
    pub name: String,
    /// The device that computes it.
    pub device: DeviceId,
    /// The op. Fields that name the part of the level that a task computes, such as rows and tiles,
    /// have the values of one of the parts.
    pub op: Op,
}

/// The levels so far, with the cells that their ops read.
#[derive(Clone, Debug, Default)]
pub(super) struct PlannedLevels {
    pub levels: Vec<Level>,
    pub cells: Vec<(BufferId, CellUse)>,
}

impl Level {
    /// Whether a device takes part: each looks at the choice of tokens, which is the first's, since
    /// all have logits.
    pub(crate) fn is_of(&self, device: usize) -> bool {
        self.device.index() == device || self.op.choice().is_some()
    }
}

impl StepPlan {
    /// The buffers, as a program without tasks.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The buffers, mutable, to set their storage: the types of weights, the scales of pools.
    pub fn buffers_mut(&mut self) -> &mut [Buffer] {
        &mut self.program.buffers
    }

    /// The levels, in their order.
    pub fn levels(&self) -> &[Level] {
        &self.planned.levels
    }

    /// The cells that the ops read, and what each is read as.
    pub(crate) fn cells(&self) -> &[(BufferId, CellUse)] {
        &self.planned.cells
    }

    /// Sets every weight's stored form, as [`Program::stored_as`] does.
    #[must_use]
    pub fn stored_as(self, weights: &dyn Weights) -> StepPlan {
        StepPlan { program: self.program.stored_as(weights), ..self }
    }

    /// Sets quantised forms of weights, as [`Program::with_forms`] does.
    #[must_use]
    pub fn with_forms(self, form: &dyn Fn(&str) -> Option<(Quantised, usize)>) -> StepPlan {
        StepPlan { program: self.program.with_forms(form), ..self }
    }
}

impl Deref for StepPlan {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}
