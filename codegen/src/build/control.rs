//! Control flow: branches, loops, the end of a thread, machine control.

use super::ptr::Counter;
use super::{Arg, Builder, Val};
use crate::ir::attr::{RegChange, RegCount, Remark};
use crate::ir::{ControlOp, Op, Operand, ValueId};
use core::cell::Cell;
use core::panic::Location;

/// What records a block. As an object: code that is generic over closures is compiled anew for each of them, with their own
/// code in it as often as it calls them.
pub(super) type Body<'b> = &'b mut dyn FnMut();

/// What is called once, as something that might be called often.
fn once(body: impl FnOnce()) -> impl FnMut() {
    let mut body = Some(body);
    move || {
        if let Some(body) = body.take() {
            body();
        }
    }
}

impl Builder {
    /// Records `then`, executed where the condition is true.
    #[track_caller]
    pub fn when(&self, cond: Val<'_, bool>, then: impl FnOnce()) {
        self.if_else(cond, then, || {});
    }

    /// Records both sides. Of a condition that is known, only the side that is taken.
    #[track_caller]
    pub fn if_else(&self, cond: Val<'_, bool>, then: impl FnOnce(), otherwise: impl FnOnce()) {
        self.branch(cond.op, &mut once(then), &mut once(otherwise));
    }

    #[track_caller]
    fn branch(&self, cond: Operand, then: Body<'_>, otherwise: Body<'_>) {
        match cond.as_const() {
            Some(known) if known.bits != 0 => then(),
            Some(_) => otherwise(),
            None => self.nest(|| Op::If { cond, then: self.inside(then), otherwise: self.inside(otherwise) }),
        }
    }

    /// Counts from `start` up to, without, `end`.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let (x, n) = (k.global::<f32>("x"), k.param::<u32>("n"));
    /// let sum = k.var(0.0f32);
    /// k.for_(0, n, |i| sum.set(sum.get() + x.at(i).load()));
    /// # });
    /// ```
    #[track_caller]
    pub fn for_<'k, T: Counter + Arg<'k, T>>(
        &'k self,
        start: impl Arg<'k, T>,
        end: impl Arg<'k, T>,
        body: impl FnOnce(Val<'k, T>),
    ) {
        self.for_step(start, end, T::ONE, body);
    }

    /// Counts from `start` up to, without, `end`, in steps, which are constant and above zero.
    #[track_caller]
    pub fn for_step<'k, T: Counter>(
        &'k self,
        start: impl Arg<'k, T>,
        end: impl Arg<'k, T>,
        step: T,
        body: impl FnOnce(Val<'k, T>),
    ) {
        let (start, end, step) = (start.val(self).op, end.val(self).op, step.constant().into());
        let var = self.fresh(T::TY);
        self.count(var, [start, end], step, &mut once(|| body(Val::new(self, var.into()))));
    }

    #[track_caller]
    fn count(&self, var: ValueId, [start, end]: [Operand; 2], step: Operand, body: Body<'_>) {
        self.nest(|| Op::For { var, start, end, step, body: self.inside(body) });
    }

    /// Repeats the body until it breaks.
    #[track_caller]
    pub fn loop_(&self, body: impl FnOnce()) {
        self.repeat(&mut once(body));
    }

    #[track_caller]
    fn repeat(&self, body: Body<'_>) {
        self.nest(|| Op::Loop { body: self.inside(body) });
    }

    /// Repeats the body while the condition, recorded at the head of the loop, holds.
    #[track_caller]
    pub fn while_<'k>(&'k self, cond: impl FnOnce() -> Val<'k, bool>, body: impl FnOnce()) {
        let holds = Cell::new(None);
        self.repeat_while(&holds, &mut once(|| holds.set(Some(cond()))), &mut once(body));
    }

    /// The head sets `holds`.
    #[track_caller]
    fn repeat_while<'k>(&'k self, holds: &Cell<Option<Val<'k, bool>>>, head: Body<'_>, body: Body<'_>) {
        let src = Location::caller();
        self.repeat(&mut || {
            head();
            if let Some(cond) = holds.take() {
                self.on_behalf(src, || self.break_if(!cond));
            }
            body();
        });
    }

    /// Leaves the innermost loop.
    #[track_caller]
    pub fn break_(&self) {
        self.leave();
    }

    /// Leaves the innermost loop where the condition is true.
    #[track_caller]
    pub fn break_if(&self, cond: Val<'_, bool>) {
        self.when(cond, || self.leave());
    }

    /// One side for warps of each role: `roles[i]` is executed by the warps below the `i`-th bound and not below the
    /// one before. Bounds are numbers of warps, ascending.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// # record("sample", Arch::Sm80, block(160), |k| {
    /// k.roles(vec![(1, Box::new(|| k.comment("producer"))), (5, Box::new(|| k.comment("consumers")))]);
    /// # });
    /// ```
    #[track_caller]
    pub fn roles(&self, roles: Vec<(u32, Box<dyn FnOnce() + '_>)>) {
        let mut rest = roles.into_iter();
        if let Some((bound, role)) = rest.next() {
            let others: Vec<_> = rest.collect();
            let mine = self.warp().lt(bound);
            if others.is_empty() { self.when(mine, role) } else { self.if_else(mine, role, || self.roles(others)) }
        }
    }

    /// The thread ends.
    #[track_caller]
    pub fn exit(&self) {
        self.emit(ControlOp::Exit {});
    }

    /// The launch fails.
    #[track_caller]
    pub fn trap(&self) {
        self.emit(ControlOp::Trap {});
    }

    /// Sleeps for about that many nanoseconds.
    #[track_caller]
    pub fn nanosleep<'k>(&'k self, ns: impl Arg<'k, u32>) {
        let ns = ns.val(self).op;
        self.emit(ControlOp::NanoSleep { ns });
    }

    /// Asks for more registers per thread, for the whole warpgroup.
    #[track_caller]
    pub fn registers_up(&self, count: u32) {
        self.emit(ControlOp::SetMaxNReg { change: RegChange::Inc, count: RegCount(count) });
    }

    /// Gives registers back, for the whole warpgroup.
    #[track_caller]
    pub fn registers_down(&self, count: u32) {
        self.emit(ControlOp::SetMaxNReg { change: RegChange::Dec, count: RegCount(count) });
    }

    /// A remark in the text and in the PTX.
    #[track_caller]
    pub fn comment(&self, text: &str) {
        self.emit(ControlOp::Comment { text: Remark(text.into()) });
    }
}
