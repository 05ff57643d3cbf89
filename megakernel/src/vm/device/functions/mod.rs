//! The device functions of ops, and the table that finds them.
//!
//! | file | what it holds |
//! |---|---|
//! | `argmax`, `attention`, `embed`, `expert_down`, `expert_gate_up`, `linear`, `linear_part`, `qkv`, `reduce`, `rope`, `route`, `sample` | the device function of the op of that name |
//! | `input`, `product` | what products have in common: activations; tiles |
//! | `stream` | keys and values as stages of the ring |
//!
//! May import: `ops`, `program`, `vm::resident`, and what `vm::device` shows to crates outside.

mod argmax;
mod attention;
mod embed;
mod expert_down;
mod expert_gate_up;
mod input;
mod linear;
mod linear_part;
mod product;
mod qkv;
mod reduce;
mod rope;
mod route;
mod sample;
mod stream;

pub use input::InputCode;
pub use linear::LinearTile;
pub use linear_part::PartTile;
pub use product::TileCode;
pub use qkv::QkvTile;

use super::op::DeviceOp;
use crate::ops::{
    Argmax, Attention, Embed, ExpertDown, ExpertGateUp, Linear, LinearPart, Op, Qkv, Reduce, Rope, Route, Sample,
    TaskOp,
};
use crate::vm::table::OpTable;

static FUNCTIONS: OpTable<dyn DeviceOp> = OpTable::new(&[
    planned::<Argmax>,
    planned::<Attention>,
    planned::<Embed>,
    planned::<Linear>,
    planned::<LinearPart>,
    planned::<Qkv>,
    planned::<Reduce>,
    planned::<Rope>,
    planned::<Sample>,
    planned::<Route>,
    planned::<ExpertGateUp>,
    planned::<ExpertDown>,
]);

fn planned<T: TaskOp + DeviceOp>(op: &Op) -> Option<&(dyn DeviceOp + 'static)> {
    op.get::<T>().map(|op| op as &dyn DeviceOp)
}

/// The side of an op for devices; `None` where it has no device function.
pub(super) fn device_op(op: &Op) -> Option<&(dyn DeviceOp + 'static)> {
    FUNCTIONS.of(op)
}

/// Gives an op of another crate its device function: programs that hold it run on a device.
/// Registering the same op again does nothing.
///
/// An op has one device function for as long as the process runs. Without it, a device refuses
/// programs that hold the op ([`Unsupported::Op`](crate::vm::Unsupported::Op)).
pub fn register_device_op<T: TaskOp + DeviceOp>() {
    FUNCTIONS.register::<T>(planned::<T>);
}
