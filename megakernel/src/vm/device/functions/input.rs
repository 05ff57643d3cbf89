//! Where the activations of a product lie, and how its record names them.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_kernels::gemv::activations::{AOperand, Packing, Prologue, Reordering, ScaledForm};
use tilewright_kernels::tile::Float;
use tilewright_kernels::weights::Strip;

use crate::ops::LinearInput;
use crate::program::BufferId;
use crate::vm::Unsupported;
use crate::vm::device::{Call, Generation, Planner, Storage};

/// Where activations come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InputCode {
    /// As they are, or as attention merged them.
    Plain {
        /// Storage.
        x: Storage,
    },
    /// Normalised.
    RmsNorm {
        /// Storage.
        x: Storage,
        /// Storage of the weight.
        weight: Float,
        /// Added to the mean square.
        eps: f32,
    },
    /// Either of them, brought in the order of the weights' codes.
    Ordered {
        /// Storage.
        x: Storage,
        /// Of a norm: added to the mean square.
        eps: Option<f32>,
    },
    /// Either of the first two, stored as it is multiplied.
    Scaled {
        /// The form of the terms.
        form: ScaledForm,
        /// Of a norm: added to the mean square.
        eps: Option<f32>,
    },
}

impl InputCode {
    /// The code of an input that meets these weights.
    pub(super) fn plan(
        input: &LinearInput,
        plan: &Planner,
        weights: &[BufferId],
        strip: Strip,
    ) -> Result<InputCode, Unsupported> {
        if let Some((form, _)) = plan.scaled_input()? {
            let eps = if let LinearInput::RmsNorm { eps, .. } = *input { Some(eps) } else { None };
            return Ok(InputCode::Scaled { form, eps });
        }
        let ordered = plan.is_ordered(weights, strip)?;
        Ok(match *input {
            LinearInput::Plain { x } if ordered => InputCode::Ordered { x: plan.storage("x", x)?, eps: None },
            LinearInput::RmsNorm { x, eps, .. } if ordered => {
                InputCode::Ordered { x: plan.storage("x", x)?, eps: Some(eps) }
            }
            LinearInput::Combine { acc, .. } if ordered => InputCode::Ordered { x: plan.merge(acc)?, eps: None },
            LinearInput::Plain { x } => InputCode::Plain { x: plan.storage("x", x)? },
            LinearInput::RmsNorm { x, weight, eps } => {
                InputCode::RmsNorm { x: plan.storage("x", x)?, weight: plan.float("norm weight", weight)?, eps }
            }
            LinearInput::Combine { acc, .. } => InputCode::Plain { x: plan.merge(acc)? },
            LinearInput::Heads { x, .. } => InputCode::Plain { x: plan.storage("x", x)? },
            LinearInput::CombineHeads { acc, .. } => InputCode::Plain { x: plan.merge(acc)? },
        })
    }

    /// The type of the activations as they are multiplied.
    pub(super) fn float(self) -> Float {
        match self {
            InputCode::Plain { x } | InputCode::Ordered { x, eps: None } => x.float,
            InputCode::RmsNorm { .. } | InputCode::Ordered { eps: Some(_), .. } => Float::F32,
            InputCode::Scaled { form, .. } => form.exact(),
        }
    }

    /// Whether the activations are packets.
    pub(super) fn is_packets(self) -> bool {
        match self {
            InputCode::Plain { x } | InputCode::RmsNorm { x, .. } | InputCode::Ordered { x, .. } => x.period > 0,
            InputCode::Scaled { .. } => false,
        }
    }

    /// How that number of rows lies in the MMA's operand.
    pub(super) fn packing(self, rows: u32) -> Packing {
        Packing::of(rows, self.float())
    }

    /// The activations of a task, rows of `k` elements, whose record has their operands at
    /// `fields`.
    pub(super) fn of<'k>(self, call: Call<'k, '_>, fields: usize, k: u32) -> Prologue<'k> {
        let at = fields + offset_of!(InputFields, x);
        let norm = fields + offset_of!(InputFields, norm);
        match self {
            InputCode::Plain { x } => Prologue::Plain(call.stored(at, x, Generation::Input)),
            InputCode::RmsNorm { x, weight, eps } => {
                Prologue::RmsNorm { x: call.stored(at, x, Generation::Input), weight: call.plain(norm, weight), eps }
            }
            InputCode::Ordered { x, eps } => {
                let x = call.stored(at, x, Generation::Input);
                Prologue::Ordered(call.ordered(norm, x, k, eps))
            }
            InputCode::Scaled { form, eps } => Prologue::Scaled { x: call.scaled(at, form), eps },
        }
    }
}

/// What the code reads of a task's activations: operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
pub(super) struct InputFields {
    /// The activations, the merge of attention's splits, or terms.
    x: u32,
    /// The weight of the norm, if there is one; of terms the sums of squares; the table of an
    /// order, after which its norm's weights lie.
    norm: u32,
}

impl InputFields {
    /// The fields of an input that meets these weights, where the A operand lives there.
    pub(super) fn plan(
        input: &LinearInput,
        plan: &mut Planner,
        weights: &[BufferId],
        strip: Strip,
        a_operand: AOperand,
    ) -> Result<InputFields, Unsupported> {
        if let Some((_, [x, norm])) = plan.scaled_input()? {
            return Ok(InputFields { x, norm });
        }
        let x = match *input {
            LinearInput::Plain { x } | LinearInput::RmsNorm { x, .. } => plan.operand(x)?,
            LinearInput::Combine { acc, .. } | LinearInput::CombineHeads { acc, .. } => plan.merged(acc)?[0],
            LinearInput::Heads { x, .. } => plan.operand(x)?,
        };
        let norm = match plan.is_ordered(weights, strip)? {
            true => plan.order(weights, strip, input.norm_weight(), Reordering::of(a_operand))?,
            false => plan.operand_of(input.norm_weight())?,
        };
        Ok(InputFields { x, norm })
    }
}
