//! Registers of `wgmma`: fenced before, untouched until waited for.
//!
//! Follows every path through the kernel with what is in flight: the open group, the closed groups,
//! youngest last, and what was touched since the last `wgmma.fence`. Where paths meet, the union
//! holds; a loop is walked until nothing new comes. These are the mistakes on which the compiler
//! serialises every `wgmma` of the kernel.

use super::{ErrorKind, Faults};
use crate::ir::{Block, ControlOp, Inst, MmaOp, Operand, Regs, Stmt, StmtId, StmtKind, ValueId};
use std::collections::BTreeSet;

/// The mistakes are reported once per statement.
pub(super) fn verify_flight(faults: &mut Faults<'_>) {
    let kernel = faults.kernel;
    let mut uses = false;
    let mut fragments = BTreeSet::new();
    kernel.walk(&mut |stmt| {
        uses |= matches!(&stmt.op, StmtKind::Inst(Inst::Mma(MmaOp::WgmmaSs { .. } | MmaOp::WgmmaRs { .. })));
        if let StmtKind::Inst(Inst::Mma(MmaOp::WgmmaRs { a, .. })) = &stmt.op {
            fragments.extend(a.iter().filter_map(|operand| operand.as_value()));
        }
    });
    if !uses {
        return;
    }
    let start = PathState { unfenced: true, ..PathState::default() };
    let mut walk = FlightWalk { faults, fragments, told: BTreeSet::new(), breaks: Vec::new() };
    let end = walk.block(&kernel.body, Some(start));
    if end.is_some_and(|state| !state.open.is_empty() || !state.groups.is_empty()) {
        faults.whole(ErrorKind::EndsInFlight);
    }
}

/// The state of a path.
#[derive(Clone, Debug, Default, PartialEq)]
struct PathState {
    /// No fence was executed yet.
    unfenced: bool,
    /// Registers touched since the last fence.
    touched: Vec<Regs>,
    /// Fragments of A written since the last fence.
    fresh: BTreeSet<ValueId>,
    /// Accumulators of the open group.
    open: Vec<Regs>,
    /// Accumulators of the closed groups that may be unfinished, youngest last.
    groups: Vec<Vec<Regs>>,
}

/// More groups in flight than kernels keep: older ones are merged.
const DEEPEST: usize = 8;

impl PathState {
    fn join(mut self, other: PathState) -> PathState {
        self.unfenced |= other.unfenced;
        add(&mut self.touched, &other.touched);
        self.fresh.extend(other.fresh);
        add(&mut self.open, &other.open);
        let depth = self.groups.len().max(other.groups.len());
        let missing = depth - self.groups.len();
        self.groups.splice(0..0, std::iter::repeat_n(Vec::new(), missing));
        for (mine, theirs) in self.groups.iter_mut().rev().zip(other.groups.iter().rev()) {
            add(mine, theirs);
        }
        self
    }

    fn commit(&mut self) {
        self.groups.push(std::mem::take(&mut self.open));
        if self.groups.len() > DEEPEST {
            let oldest = self.groups.remove(0);
            add(&mut self.groups[0], &oldest);
        }
    }

    fn wait(&mut self, pending: u32) {
        let done = self.groups.len().saturating_sub(pending as usize);
        self.groups.drain(..done);
        if self.groups.iter().all(Vec::is_empty) {
            self.groups.clear();
        }
    }

    fn in_flight(&self, regs: Regs) -> bool {
        self.open.iter().chain(self.groups.iter().flatten()).any(|busy| busy.overlaps(regs))
    }
}

fn add(to: &mut Vec<Regs>, from: &[Regs]) {
    for &regs in from {
        if !to.contains(&regs) {
            to.push(regs);
        }
    }
}

fn meet(a: Option<PathState>, b: Option<PathState>) -> Option<PathState> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.join(b)),
        (a, b) => a.or(b),
    }
}

struct FlightWalk<'w, 'a> {
    faults: &'w mut Faults<'a>,
    /// Values that some `wgmma` reads as A.
    fragments: BTreeSet<ValueId>,
    told: BTreeSet<StmtId>,
    /// The states at the exits of each enclosing loop.
    breaks: Vec<Option<PathState>>,
}

impl FlightWalk<'_, '_> {
    fn tell(&mut self, stmt: &Stmt, kind: ErrorKind) {
        if self.told.insert(stmt.id) {
            self.faults.at(stmt, kind);
        }
    }

    /// The state after the block; `None` if its end is not reached.
    fn block(&mut self, stmts: &Block, mut state: Option<PathState>) -> Option<PathState> {
        for stmt in stmts {
            let here = state?;
            state = match &stmt.op {
                StmtKind::Inst(inst) => self.instruction(stmt, inst, here),
                StmtKind::If { then, otherwise, .. } => {
                    let taken = self.block(then, Some(here.clone()));
                    meet(taken, self.block(otherwise, Some(here)))
                }
                StmtKind::For { body, .. } => self.repeat(body, here, true),
                StmtKind::Loop { body } => self.repeat(body, here, false),
                StmtKind::Break => {
                    if let Some(left) = self.breaks.last_mut() {
                        *left = meet(left.take(), Some(here));
                    }
                    None
                }
            };
        }
        state
    }

    fn repeat(&mut self, body: &Block, entry: PathState, counted: bool) -> Option<PathState> {
        let mut head = entry;
        loop {
            self.breaks.push(None);
            let end = self.block(body, Some(head.clone()));
            let left = self.breaks.pop().flatten();
            let next = meet(Some(head.clone()), end.clone()).unwrap_or_default();
            if next == head {
                return if counted { meet(left, Some(next)) } else { left };
            }
            head = next;
        }
    }

    fn instruction(&mut self, stmt: &Stmt, inst: &Inst, mut state: PathState) -> Option<PathState> {
        match inst {
            Inst::Mma(MmaOp::WgmmaFence {}) => {
                (state.unfenced, state.touched, state.fresh) = (false, Vec::new(), BTreeSet::new());
            }
            Inst::Mma(MmaOp::WgmmaCommit {}) => state.commit(),
            Inst::Mma(MmaOp::WgmmaWait { pending }) => state.wait(pending.0),
            Inst::Mma(MmaOp::WgmmaSs { acc, .. }) => self.start(stmt, *acc, &[], &mut state),
            Inst::Mma(MmaOp::WgmmaRs { acc, a, .. }) => self.start(stmt, *acc, a, &mut state),
            Inst::Control(ControlOp::Exit {} | ControlOp::Trap {}) => return None,
            Inst::Mma(MmaOp::LdMatrix { .. } | MmaOp::StMatrix { .. } | MmaOp::MmaSync { .. })
            | Inst::Arith(_)
            | Inst::Bits(_)
            | Inst::Convert(_)
            | Inst::Value(_)
            | Inst::Mem(_)
            | Inst::Warp(_)
            | Inst::Sync(_)
            | Inst::Copy(_)
            | Inst::Control(_) => {
                for (_, regs) in inst.regs() {
                    if state.in_flight(regs) {
                        self.tell(stmt, ErrorKind::InFlight { regs });
                    }
                    add(&mut state.touched, &[regs]);
                }
                state.fresh.extend(inst.defs().into_iter().filter(|value| self.fragments.contains(value)));
            }
        }
        Some(state)
    }

    /// A `wgmma`: its registers must be fenced, then they are in flight.
    fn start(&mut self, stmt: &Stmt, acc: Regs, a: &[Operand], state: &mut PathState) {
        if state.unfenced || state.touched.iter().any(|touched| touched.overlaps(acc)) {
            self.tell(stmt, ErrorKind::NotFenced { regs: acc.to_string() });
        }
        if let Some(value) = a.iter().filter_map(|o| o.as_value()).find(|v| state.fresh.contains(v)) {
            self.tell(stmt, ErrorKind::NotFenced { regs: value.to_string() });
        }
        add(&mut state.open, &[acc]);
    }
}
