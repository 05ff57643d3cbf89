//! The order in which the stages of strips come, where that is not strip after strip.

use tilewright_codegen::build::Val;

/// The order in which the stages of strips come where activations are reloaded: group by group; of
/// each group the first stage of every strip, then the second.
#[derive(Clone, Copy)]
pub struct StageOrder<'k> {
    /// Stages of a strip.
    pub stages: Val<'k, u32>,
    /// Strips of a group.
    pub group: Val<'k, u32>,
    /// Stages of all strips.
    pub all: Val<'k, u32>,
}

impl<'k> StageOrder<'k> {
    /// Which stage comes at a place, where strip after strip lies stage after stage.
    #[track_caller]
    pub fn stage(self, place: Val<'k, u32>) -> Val<'k, u32> {
        let each = self.stages * self.group;
        let start = place / each * each;
        // Strips of this group: the last may have fewer.
        let strips = (self.all - start).min(each) / self.stages;
        let stage = (place - start) / strips;
        let strip = (place - start) % strips;
        start + strip * self.stages + stage
    }
}

/// The order in which the stages of strips come by phases
/// ([`AOperand::Phases`](crate::gemv::activations::AOperand::Phases)): of every strip its first
/// stages, then the next.
#[derive(Clone, Copy)]
pub struct Phases<'k> {
    /// Stages of a strip.
    pub stages: Val<'k, u32>,
    /// Stages of a strip that come together.
    pub each: Val<'k, u32>,
    /// Stages of a phase, of all strips.
    pub of_phase: Val<'k, u32>,
}

impl<'k> Phases<'k> {
    /// Which stage comes at a place, where strip after strip lies stage after stage.
    #[track_caller]
    pub fn stage(self, place: Val<'k, u32>) -> Val<'k, u32> {
        let phase = place / self.of_phase;
        let rest = place % self.of_phase;
        rest / self.each * self.stages + phase * self.each + rest % self.each
    }
}
