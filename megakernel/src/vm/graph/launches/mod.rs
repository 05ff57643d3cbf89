//! The launches of ops, and the table that finds them.
//!
//! | file | what it holds |
//! |---|---|
//! | `attention`, `embed`, `linear`, `qkv`, `reduce`, `rope` | the launches of the op of that name |
//! | `experts` | those of `route`, `expert_gate_up` and `expert_down` |
//! | `choice` | those of `argmax` and `sample` |
//!
//! May import: `ops`, `program`, and what `vm::graph` shows to crates outside.

mod attention;
mod choice;
mod embed;
mod experts;
mod linear;
mod qkv;
mod reduce;
mod rope;

use super::op::LaunchOp;
use crate::ops::{
    Argmax, Attention, Embed, ExpertDown, ExpertGateUp, Linear, Op, Qkv, Reduce, Rope, Route, Sample, TaskOp,
};
use crate::vm::table::OpTable;

static LAUNCHES: OpTable<dyn LaunchOp> = OpTable::new(&[
    launched::<Argmax>,
    launched::<Attention>,
    launched::<Embed>,
    launched::<ExpertDown>,
    launched::<ExpertGateUp>,
    launched::<Linear>,
    launched::<Qkv>,
    launched::<Reduce>,
    launched::<Rope>,
    launched::<Route>,
    launched::<Sample>,
]);

fn launched<T: TaskOp + LaunchOp>(op: &Op) -> Option<&(dyn LaunchOp + 'static)> {
    op.get::<T>().map(|op| op as &dyn LaunchOp)
}

/// The side of an op for graphs of launches; `None` where no launch computes it.
pub(super) fn launch_op(op: &Op) -> Option<&(dyn LaunchOp + 'static)> {
    LAUNCHES.of(op)
}

/// Gives an op of another crate its launches: programs that hold it run as graphs of launches.
/// Registering the same op again does nothing.
pub fn register_launch_op<T: TaskOp + LaunchOp>() {
    LAUNCHES.register::<T>(launched::<T>);
}
