//! What is said where activations are beyond what an f16 holds.
//!
//! Activations of 5 to 16 rows meet codes as f16 ([`Packing::meeting`](super::Packing::meeting)). One that is larger than any f16, or no
//! number, would be an infinity, and every sum of its row with it: who makes it an f16 reports it.

use tilewright_codegen::build::{Global, Ptr, Val};
use tilewright_codegen::ir::attr::{AtomOrder, Scope};

/// The bits of the least f32 that no f16 is nearest to: half a step above 65504.
const LEAST: u32 = 65520.0f32.to_bits();

/// Where it is said that an activation is beyond what an f16 holds, of a task.
#[derive(Clone, Copy)]
pub struct Beyond<'k> {
    /// Becomes `says` where it is 0.
    pub code: Ptr<'k, Global, u32>,
    /// What it becomes.
    pub says: u32,
    /// Then gets the task.
    pub place: Ptr<'k, Global, u32>,
    /// The task.
    pub task: Val<'k, u32>,
}

impl<'k> Beyond<'k> {
    /// Looks at numbers that become f16s.
    #[track_caller]
    pub(super) fn look(self, x: &[Val<'k, f32>]) {
        let most = x.iter().map(|&x| size(x)).reduce(|a, b| a.max(b));
        most.into_iter().for_each(|most| self.look_at(most));
    }

    /// The same of the largest [`size`].
    #[track_caller]
    pub(super) fn look_at(self, most: Val<'k, u32>) {
        let k = most.builder();
        k.when(most.ge(LEAST), || {
            let first = self.code.compare_swap(0u32, self.says, AtomOrder::Relaxed(Scope::Sys)).eq(0);
            k.when(first, || self.place.store(self.task));
        });
    }
}

/// The bits of a number without its sign: larger where the number is, and largest of those that are none.
#[track_caller]
pub(super) fn size<'k>(x: Val<'k, f32>) -> Val<'k, u32> {
    x.bits::<u32>() & 0x7fff_ffffu32
}
