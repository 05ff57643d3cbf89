//! Leaving packets that do not come.
//!
//! Who looks for packets of another device looks at the machine's words as well, behind every so many looks: that device may be lost. A
//! thread that leaves without packets says so in the block's word `left`. The leader reads it behind the task, neither signals nor
//! finishes, and stops the block at the next task. What the task stored is read by nobody: readers wait for its signal.

use tilewright_codegen::build::Val;
use tilewright_codegen::ir::attr::Scope;

use super::super::table::TaskView;
use super::Sync;
use crate::vm::device::status;

impl<'k> Sync<'k> {
    /// Whether a thread that has looked so often for packets of another device leaves without them, since the host or another block wants
    /// the end, or since they do not come; by any thread of a task. The team reads `stop` at its barriers alone, so that it stays as it is.
    pub fn leaves(self, task: TaskView<'k>, looks: Val<'k, u32>) -> Val<'k, bool> {
        let (k, none) = (self.k, self.k.lit(0u32));
        let over = k.var(self.halt().load_relaxed(self.scope()).ne(0));
        let ends = |code: u32| {
            self.say(code, task.task(), [none; 3]);
            self.halt_all();
            over.set(true);
        };
        // Blocks that hear the host may all be here.
        k.when(k.block_id().eq(0) & !over.get(), || {
            let abort = self.status.at(status::ABORT).load_relaxed(Scope::Sys).ne(0);
            k.when(abort, || ends(status::ABORTED));
        });
        k.when(!over.get() & looks.ge(self.polls), || ends(status::PARTS));
        let left = || self.left.into_iter().for_each(|left| left.store_relaxed(1u32, Scope::Cta));
        k.when(over.get(), left);
        over.get()
    }

    /// Whether a thread of the block left a task without packets, behind a barrier; nothing where none may be left so.
    pub fn left(self) -> Option<Val<'k, bool>> {
        self.left.map(|left| left.load().ne(0))
    }
}
