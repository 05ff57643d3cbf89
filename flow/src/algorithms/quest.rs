//! Quest: an upper bound of the logits of a block, from the smallest box that holds its keys.
//!
//! Facts: Quest (Tang et al., 2024), criticality by per-channel minimum and maximum.

use crate::prelude::*;

/// The smallest box that holds a block's keys.
#[derive(Clone, Copy, Debug)]
pub struct QuestEnvelope {
    max: Field,
    min: Field,
}

/// The flow `quest`.
#[derive(Clone, Copy, Debug)]
pub struct Quest;

impl Flow for Quest {
    type Fields = QuestEnvelope;
    type State = ();

    fn name(&self) -> &str {
        "quest"
    }

    fn fields(&self, declare: &mut Declare) -> QuestEnvelope {
        QuestEnvelope {
            max: declare.field("max", [Dim::ONE, Dim::HEAD_DIM]),
            min: declare.field("min", [Dim::ONE, Dim::HEAD_DIM]),
        }
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &QuestEnvelope) {
        block.store(fields.max, block.keys().max(D0));
        block.store(fields.min, block.keys().min(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &QuestEnvelope, (): ()) -> Done<'t> {
        let q = step.query();
        let max = step.field(fields.max);
        let min = step.field(fields.min);
        let bound = (q * max).maximum(q * min).sum(D1);
        step.select(bound.max(D0))
    }
}
