//! Quest without the first features of a head.

use crate::prelude::*;

/// The smallest box that holds a block's keys.
#[derive(Clone, Copy, Debug)]
pub struct MaskedQuestEnvelope {
    max: Field,
    min: Field,
}

/// The flow `masked-quest`.
#[derive(Clone, Copy, Debug)]
pub struct MaskedQuest {
    /// Features that do not count.
    pub features: u32,
}

impl Flow for MaskedQuest {
    type Fields = MaskedQuestEnvelope;
    type State = ();

    fn name(&self) -> &str {
        "masked-quest"
    }

    fn fields(&self, declare: &mut Declare) -> MaskedQuestEnvelope {
        MaskedQuestEnvelope {
            max: declare.field("max", [Dim::ONE, Dim::HEAD_DIM]),
            min: declare.field("min", [Dim::ONE, Dim::HEAD_DIM]),
        }
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &MaskedQuestEnvelope) {
        block.store(fields.max, block.keys().max(D0));
        block.store(fields.min, block.keys().min(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &MaskedQuestEnvelope, (): ()) -> Done<'t> {
        let q = step.query();
        let max = step.field(fields.max);
        let min = step.field(fields.min);
        let terms = (q * max).maximum(q * min);
        let kept = terms * terms.mask_slice(D1, 0, self.features, 0.0, 1.0);
        step.select(kept.sum(D1).max(D0))
    }
}
