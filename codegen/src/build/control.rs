//! Control flow: branches, loops, the end of a thread, machine control.

use super::ptr::Counter;
use super::recorder::Body;
use super::{Builder, IntoVal, Scalar, Val, Var};
use crate::ir::attr::{RegChange, RegCount, Remark};
use crate::ir::{ControlOp, Operand, StmtKind, ValueId};
use core::cell::Cell;
use core::panic::Location;

/// Adapts a closure that is called once to an interface that permits many calls.
fn once(body: impl FnOnce()) -> impl FnMut() {
    let mut body = Some(body);
    move || {
        if let Some(body) = body.take() {
            body();
        }
    }
}

/// Control flow whose closures are recorded once and executed any number of times.
///
/// The closures are `Fn`: a Rust variable that a body assigns would keep one value of one
/// iteration, or of a side that some threads do not take, so such a body does not compile. Values
/// that change at run time are registers ([`Builder::var`]) or are carried by [`Builder::carry`].
///
/// The later use of a value that leaves a body, in a [`Cell`], is an error of `verify`. Constants,
/// and pointers at a constant distance, are not recorded. If one leaves a body, the error is not
/// found; its value is the same in every thread and iteration.
///
/// ```compile_fail,E0594
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let mut p = k.global::<f32>("x");
/// let sum = k.var(0.0f32);
/// k.for_(0, 4u32, |_| {
///     sum.set(sum.get() + p.load());
///     p = p.at(32); // does not compile: the loop is recorded once, so every iteration would load from one address
/// });
/// # });
/// ```
///
/// ```compile_fail,E0594
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let mut v = k.lit(1.0f32);
/// k.when(k.tid().eq(0), || v = k.lit(7.0)); // does not compile: `v` would be 7 in every thread
/// # });
/// ```
///
/// Both as they are meant:
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let p = k.global::<f32>("x");
/// let sum = k.var(0.0f32);
/// let v = k.var(1.0f32);
/// k.for_(0, 4u32, |i| sum.set(sum.get() + p.at(i * 32).load()));
/// k.when(k.tid().eq(0), || v.set(7.0));
/// let total = k.carry(0, 4u32, k.lit(0.0f32), |i, total| total + p.at(i * 32).load());
/// # let _ = total;
/// # });
/// ```
impl Builder {
    /// Records `then`, executed where the condition is true.
    #[track_caller]
    pub fn when(&self, cond: Val<'_, bool>, then: impl Fn()) {
        self.moving().when(cond, then);
    }

    /// Records both sides. Of a condition that is known, only the side that is taken.
    #[track_caller]
    pub fn if_else(&self, cond: Val<'_, bool>, then: impl Fn(), otherwise: impl Fn()) {
        self.moving().if_else(cond, then, otherwise);
    }

    /// Counts from `start` up to, without, `end`.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let x = k.global::<f32>("x");
    /// let n = k.param::<u32>("n");
    /// let sum = k.var(0.0f32);
    /// k.for_(0, n, |i| sum.set(sum.get() + x.at(i).load()));
    /// # });
    /// ```
    #[track_caller]
    pub fn for_<'k, T: Counter + IntoVal<'k, T>>(
        &'k self,
        start: impl IntoVal<'k, T>,
        end: impl IntoVal<'k, T>,
        body: impl Fn(Val<'k, T>),
    ) {
        self.moving().for_step(start, end, T::ONE, body);
    }

    /// Counts from `start` up to, without, `end`, in steps, which are constant and above zero.
    #[track_caller]
    pub fn for_step<'k, T: Counter>(
        &'k self,
        start: impl IntoVal<'k, T>,
        end: impl IntoVal<'k, T>,
        step: T,
        body: impl Fn(Val<'k, T>),
    ) {
        self.moving().for_step(start, end, step, body);
    }

    /// Counts from `start` up to, without, `end`, and carries a value (or a pair, a triple or an
    /// array of values) from each iteration to the next: `body` takes the counter and the value
    /// before, and gives the value after. Gives the last.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let x = k.global::<f32>("x");
    /// let n = k.param::<u32>("n");
    /// let (sum, largest) = k.carry(0, n, (k.lit(0.0f32), k.lit(f32::NEG_INFINITY)), |i, (sum, largest)| {
    ///     let v = x.at(i).load();
    ///     (sum + v, largest.max(v))
    /// });
    /// # let _ = sum / largest;
    /// # });
    /// ```
    #[track_caller]
    pub fn carry<'k, T: Counter, C: Carried<'k>>(
        &'k self,
        start: impl IntoVal<'k, T>,
        end: impl IntoVal<'k, T>,
        first: C,
        body: impl Fn(Val<'k, T>, C) -> C,
    ) -> C {
        let src = Location::caller();
        let held = first.hold();
        self.for_step(start, end, T::ONE, |i| {
            let next = body(i, self.on_behalf(src, || C::held(held)));
            self.on_behalf(src, || C::set(held, next));
        });
        C::held(held)
    }

    /// Repeats the body until it breaks.
    #[track_caller]
    pub fn loop_(&self, body: impl Fn()) {
        self.moving().loop_(body);
    }

    /// Repeats the body while the condition, recorded at the head of the loop, holds.
    #[track_caller]
    pub fn while_<'k>(&'k self, cond: impl Fn() -> Val<'k, bool>, body: impl Fn()) {
        self.moving().while_(cond, body);
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

    /// Branches by warp role: `roles[i]` is executed by the warps below the `i`-th bound and not
    /// below the previous one. Bounds are numbers of warps, ascending.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// # record("sample", Arch::Sm80, block(160), |k| {
    /// k.roles(vec![(1, Box::new(|| k.comment("producer"))), (5, Box::new(|| k.comment("consumers")))]);
    /// # });
    /// ```
    #[track_caller]
    pub fn roles(&self, roles: Vec<(u32, Box<dyn Fn() + '_>)>) {
        self.moving().roles(roles.into_iter().map(|(bound, role)| (bound, role as Box<dyn FnOnce()>)).collect());
    }

    /// Control flow whose closures may move and change what they capture.
    ///
    /// For libraries whose bodies consume host-side state: handles of a protocol, plans, counters
    /// of what was recorded. The caller promises that a body hands no recorded value out in a Rust
    /// variable: it would be the value of one iteration, or of a side that some threads do not
    /// take. `verify` refuses its later use, except of constants and of pointers at a constant
    /// distance, which are the same in every thread and iteration.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let mut recorded = Vec::new();
    /// k.moving().when(k.tid().eq(0), || recorded.push("the first thread's side"));
    /// assert_eq!(recorded.len(), 1);
    /// # });
    /// ```
    pub fn moving(&self) -> Moving<'_> {
        Moving { k: self }
    }

    #[track_caller]
    fn branch(&self, cond: Operand, then: Body<'_>, otherwise: Body<'_>) {
        match cond.as_const() {
            Some(known) if known.bits != 0 => then(),
            Some(_) => otherwise(),
            None => self.nest(|| StmtKind::If { cond, then: self.inside(then), otherwise: self.inside(otherwise) }),
        }
    }

    #[track_caller]
    fn count(&self, var: ValueId, [start, end]: [Operand; 2], step: Operand, body: Body<'_>) {
        self.nest(|| StmtKind::For { var, start, end, step, body: self.inside(body) });
    }

    #[track_caller]
    fn repeat(&self, body: Body<'_>) {
        self.nest(|| StmtKind::Loop { body: self.inside(body) });
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
}

/// Control flow whose closures may move and change what they capture: see [`Builder::moving`].
#[derive(Clone, Copy, Debug)]
pub struct Moving<'k> {
    k: &'k Builder,
}

impl<'k> Moving<'k> {
    /// Records a branch as [`Builder::when`] does.
    #[track_caller]
    pub fn when(self, cond: Val<'_, bool>, then: impl FnOnce()) {
        self.if_else(cond, then, || {});
    }

    /// Records a branch as [`Builder::if_else`] does.
    #[track_caller]
    pub fn if_else(self, cond: Val<'_, bool>, then: impl FnOnce(), otherwise: impl FnOnce()) {
        self.k.branch(cond.op, &mut once(then), &mut once(otherwise));
    }

    /// Records a loop as [`Builder::for_`] does.
    #[track_caller]
    pub fn for_<T: Counter>(self, start: impl IntoVal<'k, T>, end: impl IntoVal<'k, T>, body: impl FnOnce(Val<'k, T>)) {
        self.for_step(start, end, T::ONE, body);
    }

    /// Records a loop as [`Builder::for_step`] does.
    #[track_caller]
    pub fn for_step<T: Counter>(
        self,
        start: impl IntoVal<'k, T>,
        end: impl IntoVal<'k, T>,
        step: T,
        body: impl FnOnce(Val<'k, T>),
    ) {
        let start = start.val(self.k).op;
        let end = end.val(self.k).op;
        let step = step.constant().into();
        let var = self.k.fresh(T::TY);
        self.k.count(var, [start, end], step, &mut once(|| body(Val::new(self.k, var.into()))));
    }

    /// Records a loop as [`Builder::loop_`] does.
    #[track_caller]
    pub fn loop_(self, body: impl FnOnce()) {
        self.k.repeat(&mut once(body));
    }

    /// Records a loop as [`Builder::while_`] does.
    #[track_caller]
    pub fn while_(self, cond: impl FnOnce() -> Val<'k, bool>, body: impl FnOnce()) {
        let holds = Cell::new(None);
        self.k.repeat_while(&holds, &mut once(|| holds.set(Some(cond()))), &mut once(body));
    }

    /// Branches by warp role as [`Builder::roles`] does.
    #[track_caller]
    pub fn roles(self, roles: Vec<(u32, Box<dyn FnOnce() + '_>)>) {
        let mut rest = roles.into_iter();
        if let Some((bound, role)) = rest.next() {
            let others: Vec<_> = rest.collect();
            let mine = self.k.warp().lt(bound);
            if others.is_empty() { self.when(mine, role) } else { self.if_else(mine, role, || self.roles(others)) }
        }
    }
}

/// A value that a loop carries: a [`Val`], or a pair, a triple or an array of such.
pub trait Carried<'k>: Copy {
    /// The registers that hold it from one iteration to the next.
    type Registers: Copy;

    /// Registers that start with it.
    #[track_caller]
    fn hold(self) -> Self::Registers;

    /// The current value of the registers.
    #[track_caller]
    fn held(registers: Self::Registers) -> Self;

    /// Gives registers another value.
    #[track_caller]
    fn set(registers: Self::Registers, value: Self);
}

impl<'k, T: Scalar> Carried<'k> for Val<'k, T> {
    type Registers = Var<'k, T>;

    #[track_caller]
    fn hold(self) -> Var<'k, T> {
        self.k.var(self)
    }

    #[track_caller]
    fn held(registers: Var<'k, T>) -> Val<'k, T> {
        registers.get()
    }

    #[track_caller]
    fn set(registers: Var<'k, T>, value: Val<'k, T>) {
        registers.set(value);
    }
}

impl<'k, C: Carried<'k>, const N: usize> Carried<'k> for [C; N] {
    type Registers = [C::Registers; N];

    #[track_caller]
    fn hold(self) -> Self::Registers {
        self.map(C::hold)
    }

    #[track_caller]
    fn held(registers: Self::Registers) -> Self {
        registers.map(C::held)
    }

    #[track_caller]
    fn set(registers: Self::Registers, value: Self) {
        registers.into_iter().zip(value).for_each(|(register, value)| C::set(register, value));
    }
}

macro_rules! carried {
    ($($C:ident $at:tt),+) => {
        impl<'k, $($C: Carried<'k>),+> Carried<'k> for ($($C,)+) {
            type Registers = ($($C::Registers,)+);

            #[track_caller]
            fn hold(self) -> Self::Registers {
                ($(self.$at.hold(),)+)
            }

            #[track_caller]
            fn held(registers: Self::Registers) -> Self {
                ($($C::held(registers.$at),)+)
            }

            #[track_caller]
            fn set(registers: Self::Registers, value: Self) {
                $($C::set(registers.$at, value.$at);)+
            }
        }
    };
}

carried!(A 0, B 1);
carried!(A 0, B 1, C 2);

/// The end of a thread and machine control.
impl Builder {
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
    pub fn nanosleep<'k>(&'k self, ns: impl IntoVal<'k, u32>) {
        let ns = ns.val(self).op;
        self.emit(ControlOp::NanoSleep { ns });
    }

    /// Requests more registers per thread, for the whole warpgroup.
    #[track_caller]
    pub fn registers_up(&self, count: u32) {
        self.emit(ControlOp::SetMaxNReg { change: RegChange::Inc, count: RegCount(count) });
    }

    /// Releases registers, for the whole warpgroup.
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
