//! A task's first stages in registers: taken while the team waits for its activations, since weights depend on nothing.

use tilewright_codegen::build::{Ptr, Shared};
use tilewright_kernels::decode::{HeldStage, Weights};

use super::Kit;
use super::ring::Reader;
use super::table::TaskView;

/// The ring's reader, behind the stages that are held.
pub(super) struct Held<'r, 'k> {
    ring: &'r Reader<'k>,
    stages: Vec<HeldStage<'k>>,
}

impl<'r, 'k> Held<'r, 'k> {
    /// Takes the stages of a task that are held; by the team, before thread 0 waits for anything. Or only those that have
    /// landed: each warp takes the others when it multiplies them.
    ///
    /// Nobody is told to stop here: thread 0 says so later, when what it took has landed.
    pub fn take(kit: Kit<'k, '_>, ring: &'r Reader<'k>, task: TaskView<'k>) -> Held<'r, 'k> {
        let (k, options) = (kit.k, kit.plan.options);
        let holds = kit.plan.opcodes.iter().any(|opcode| opcode.holds_stages());
        let most = if holds { options.hold() } else { 0 };
        let stages: Vec<_> =
            (0..most).map(|_| HeldStage::new(kit.team, options.stage_bytes, options.hold_waits)).collect();
        let goes_on = k.var(true);
        for (number, stage) in (0u32..).zip(&stages) {
            let wanted = task.held().gt(number);
            if options.hold_waits {
                k.when(wanted, || stage.take(ring, task.stage_bytes()));
                continue;
            }
            k.when(wanted & goes_on.get(), || {
                let landed = ring.landed();
                goes_on.set(landed);
                k.when(landed, || stage.take(ring, task.stage_bytes()));
            });
        }
        Held { ring, stages }
    }
}

impl<'k> Weights<'k> for Held<'_, 'k> {
    fn stage(&self, read: &dyn Fn(Ptr<'k, Shared, u32>)) {
        self.ring.stage(read);
    }

    fn held(&self) -> &[HeldStage<'k>] {
        &self.stages
    }
}
