//! The mutation harness: a kernel with one synchronising instruction removed or weakened must be
//! found out.
//!
//! [`Survey::of`] judges the kernel itself and all its mutants. It takes a closure that reports a
//! finding against a kernel, and a ledger of mutants that are known to survive, with the reason.
//! [`under_seeds`] makes such a closure from one that launches a kernel under a seed;
//! `trial::survey` has the closure for trials. [`mutants`] makes the kernels. A mutant that
//! survives is a hole in the checks, or a change without an effect.

mod counterparts;
mod survey;

pub use survey::{Equivalent, Judged, Survey, under_seeds};

use crate::ir::attr::{
    AtomOrder, BarThreads, ClusterArriveOrder, FenceOrder, LdOrder, Pending, ProxyFence, RedOrder, Scope, StOrder,
};
use crate::ir::{
    BitsOp, Block, Const, CopyOp, Flag, Inst, Kernel, MemOp, MmaOp, Operand, Src, StmtId, StmtKind, SyncOp, Ty,
    ValueId, WarpOp, text,
};

/// A kernel with one instruction changed.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The instruction that was changed.
    pub stmt: StmtId,
    /// Its text, before.
    pub inst: String,
    /// The author's line.
    pub src: Src,
    /// A description of the change.
    pub change: String,
    /// The changed kernel.
    pub kernel: Kernel,
}

/// The change to an instruction.
enum InstChange {
    Remove,
    Replace(Inst),
}

/// A mutant that is not made yet.
struct PlannedMutant {
    stmt: StmtId,
    inst: String,
    src: Src,
    change: String,
    how: InstChange,
}

impl PlannedMutant {
    fn kernel(&self, of: &Kernel) -> Kernel {
        let mut changed = of.clone();
        changed.edit(&mut |block| apply(block, self.stmt, &self.how));
        changed
    }

    fn mutant(self, of: &Kernel) -> Mutant {
        let kernel = self.kernel(of);
        let PlannedMutant { stmt, inst, src, change, .. } = self;
        Mutant { stmt, inst, src, change, kernel }
    }
}

/// Lists every kernel that differs from this one by one synchronising instruction, removed or
/// weakened.
pub fn mutants(kernel: &Kernel) -> Vec<Mutant> {
    plans(kernel).into_iter().map(|plan| plan.mutant(kernel)).collect()
}

fn plans(kernel: &Kernel) -> Vec<PlannedMutant> {
    let mut all = Vec::new();
    kernel.walk(&mut |stmt| {
        let StmtKind::Inst(inst) = &stmt.op else { return };
        for (change, how) in changes(inst) {
            all.push(PlannedMutant { stmt: stmt.id, inst: text::line(kernel, stmt), src: stmt.src, change, how });
        }
    });
    all
}

/// Removes or replaces a statement, where it stands in this block.
fn apply(block: &mut Block, id: StmtId, change: &InstChange) {
    match change {
        InstChange::Remove => block.retain(|stmt| stmt.id != id),
        InstChange::Replace(inst) => {
            for stmt in block.iter_mut().filter(|stmt| stmt.id == id) {
                stmt.op = StmtKind::Inst(inst.clone());
            }
        }
    }
}

fn removed() -> (String, InstChange) {
    ("removed".into(), InstChange::Remove)
}

fn replaced(what: &str, inst: impl Into<Inst>) -> (String, InstChange) {
    (what.into(), InstChange::Replace(inst.into()))
}

/// A predicate that is always true, in the place of an answer.
fn always(d: ValueId) -> Inst {
    let yes = Operand::Const(Const::pred(true));
    BitsOp::Or { ty: Ty::Pred, d, a: yes, b: yes }.into()
}

fn changes(inst: &Inst) -> Vec<(String, InstChange)> {
    match inst {
        Inst::Sync(op) => sync(op),
        Inst::Mem(op) => mem(op),
        Inst::Copy(op) => copy(op),
        Inst::Warp(WarpOp::SyncWarp { .. }) => vec![removed()],
        Inst::Mma(MmaOp::WgmmaFence {} | MmaOp::WgmmaCommit {}) => vec![removed()],
        Inst::Mma(MmaOp::WgmmaWait { pending }) => {
            vec![removed(), replaced("one more pending", MmaOp::WgmmaWait { pending: Pending(pending.0 + 1) })]
        }
        Inst::Arith(_)
        | Inst::Bits(_)
        | Inst::Convert(_)
        | Inst::Value(_)
        | Inst::Warp(_)
        | Inst::Mma(_)
        | Inst::Control(_) => Vec::new(),
    }
}

/// A constant operand, changed.
fn nudge(operand: Operand, by: i64) -> Option<Operand> {
    let constant = operand.as_const()?;
    let value = constant.as_i64() + by;
    (value > 0).then(|| Const::new(constant.ty, value as u64).into())
}

fn sync(op: &SyncOp) -> Vec<(String, InstChange)> {
    match op.clone() {
        SyncOp::BarSync { id, threads } => {
            let fewer = (threads.0 > 32)
                .then(|| replaced("one warp fewer", SyncOp::BarSync { id, threads: BarThreads(threads.0 - 32) }));
            let arrive = replaced("only arrives", SyncOp::BarArrive { id, threads });
            [removed(), arrive].into_iter().chain(fewer).collect()
        }
        SyncOp::Fence { order } => {
            let weaker = match order {
                FenceOrder::AcqRel(Scope::Cta) => None,
                FenceOrder::Sc(_) | FenceOrder::AcqRel(_) => {
                    Some(replaced("scope of the block", SyncOp::Fence { order: FenceOrder::AcqRel(Scope::Cta) }))
                }
            };
            [removed()].into_iter().chain(weaker).collect()
        }
        SyncOp::FenceProxyAsync { space } => {
            let other = if space == ProxyFence::Global { ProxyFence::Shared } else { ProxyFence::Global };
            vec![removed(), replaced("another space", SyncOp::FenceProxyAsync { space: other })]
        }
        SyncOp::MbarInit { bar, count } => {
            let more = nudge(count, 1).map(|count| replaced("one arrival more", SyncOp::MbarInit { bar, count }));
            let fewer = nudge(count, -1).map(|count| replaced("one arrival fewer", SyncOp::MbarInit { bar, count }));
            [removed()].into_iter().chain(more).chain(fewer).collect()
        }
        SyncOp::MbarArriveTx { bar, bytes, scope } => {
            let one = Const::u32(1).into();
            let plain = replaced("expects nothing", SyncOp::MbarArrive { bar, count: one, scope });
            let fewer =
                nudge(bytes, -16).map(|bytes| replaced("16 bytes fewer", SyncOp::MbarArriveTx { bar, bytes, scope }));
            let more =
                nudge(bytes, 16).map(|bytes| replaced("16 bytes more", SyncOp::MbarArriveTx { bar, bytes, scope }));
            [removed(), plain].into_iter().chain(fewer).chain(more).collect()
        }
        SyncOp::MbarTryWait { done, bar, parity, scope } => {
            let mut all = vec![replaced("does not wait", always(done))];
            if let Some(parity) = parity.as_const() {
                let parity = Const::u32(1 - parity.bits as u32 % 2).into();
                all.push(replaced("the other parity", SyncOp::MbarTryWait { done, bar, parity, scope }));
            }
            all
        }
        SyncOp::MbarTestWait { done, .. } => vec![replaced("does not wait", always(done))],
        SyncOp::ClusterArrive { order: ClusterArriveOrder::Release } => {
            vec![removed(), replaced("relaxed", SyncOp::ClusterArrive { order: ClusterArriveOrder::Relaxed })]
        }
        SyncOp::FenceMbarInit {}
        | SyncOp::MbarInval { .. }
        | SyncOp::MbarArrive { .. }
        | SyncOp::MbarExpectTx { .. }
        | SyncOp::ClusterArrive { .. }
        | SyncOp::ClusterWait {}
        | SyncOp::BarArrive { .. } => vec![removed()],
        SyncOp::GridWait {} | SyncOp::GridLaunch {} => Vec::new(),
    }
}

fn mem(op: &MemOp) -> Vec<(String, InstChange)> {
    match op.clone() {
        MemOp::Ld { ty, d, at, policy, order, cache, prefetch } => {
            let with = |what, order| {
                let d = d.clone();
                replaced(what, MemOp::Ld { ty, d, at, policy, order, cache, prefetch })
            };
            match order {
                LdOrder::Acquire(Scope::Cta) => vec![with("relaxed", LdOrder::Relaxed(Scope::Cta))],
                LdOrder::Acquire(scope) => vec![
                    with("relaxed", LdOrder::Relaxed(scope)),
                    with("scope of the block", LdOrder::Acquire(Scope::Cta)),
                    with("weak", LdOrder::Weak),
                ],
                LdOrder::Relaxed(_) | LdOrder::Volatile => vec![with("weak", LdOrder::Weak)],
                LdOrder::Weak => Vec::new(),
            }
        }
        MemOp::St { ty, at, v, policy, order, cache } => {
            let with = |what, order| replaced(what, MemOp::St { ty, at, v: v.clone(), policy, order, cache });
            match order {
                StOrder::Release(scope) => vec![with("relaxed", StOrder::Relaxed(scope)), with("weak", StOrder::Weak)],
                StOrder::Relaxed(_) | StOrder::Volatile => vec![with("weak", StOrder::Weak)],
                StOrder::Weak => Vec::new(),
            }
        }
        MemOp::Red { ty, at, v, op, order: RedOrder::Release(scope) } => {
            let with = |what, order| replaced(what, MemOp::Red { ty, at, v, op, order });
            let narrow = (scope != Scope::Cta).then(|| with("scope of the block", RedOrder::Release(Scope::Cta)));
            [with("relaxed", RedOrder::Relaxed(scope))].into_iter().chain(narrow).collect()
        }
        MemOp::Atom { ty, d, at, v, op, order } => {
            let with = |what, order| replaced(what, MemOp::Atom { ty, d, at, v, op, order });
            match order {
                AtomOrder::AcqRel(scope) => {
                    vec![with("acquire", AtomOrder::Acquire(scope)), with("release", AtomOrder::Release(scope))]
                }
                AtomOrder::Acquire(scope) | AtomOrder::Release(scope) => {
                    vec![with("relaxed", AtomOrder::Relaxed(scope))]
                }
                AtomOrder::Relaxed(_) => Vec::new(),
            }
        }
        MemOp::Red { .. } | MemOp::Cas { .. } | MemOp::PrefetchL2 { .. } | MemOp::CreatePolicy { .. } => Vec::new(),
    }
}

/// Mutates copy instructions: removes those that order copies, and weakens waits to fewer groups;
/// copies themselves stay.
fn copy(op: &CopyOp) -> Vec<(String, InstChange)> {
    let fewer = |pending: Pending| Pending(pending.0 + 1);
    let weaker = if let CopyOp::CpAsyncWait { pending } = *op {
        Some(CopyOp::CpAsyncWait { pending: fewer(pending) })
    } else if let CopyOp::BulkWait { pending, done } = *op {
        Some(CopyOp::BulkWait { pending: fewer(pending), done })
    } else {
        None
    };
    let removed = op.row().is(Flag::Orders).then(removed);
    removed.into_iter().chain(weaker.map(|op| replaced("one more pending", op))).collect()
}
