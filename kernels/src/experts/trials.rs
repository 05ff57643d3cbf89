//! Random logits against the f64 oracle.

use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, Draw, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::launch::route_slots;
use super::table::RouteShape;
use crate::naive;
use crate::route::RouterKind;
use crate::shipped_entry::ShippedEntry;
use crate::stored::{self, UNIT};
use crate::tile::Float;

/// The shape with which the kernel is shipped.
const SHOWN: RouteShape = RouteShape { rows: 8, experts: 128, chosen: 8 };

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let record = |arch| route_slots(arch, SHOWN, RouterKind::TopKThenSoftmax);
    vec![Box::new(ShippedEntry { name: "route_slots", needs: Needs::Sm80, record, draw: trial })]
}

/// Few different logits: ties are frequent.
fn trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let most = [6, 40, 200][draw.between(0..=2) as usize];
    let experts = draw.between(1..=most);
    let shape = RouteShape { rows: draw.between(1..=16), experts, chosen: draw.between(1..=experts.min(8)) };
    let softmax = |renormalise| RouterKind::SoftmaxThenTopK { renormalise };
    let routing = [softmax(false), softmax(true), RouterKind::TopKThenSoftmax][draw.between(0..=2) as usize];
    let step = [1.0f64, 0.125][draw.between(0..=1) as usize];
    let numbers = stored::numbers(draw, Float::F32, shape.rows * experts, 8.0);
    let logits: Vec<f64> = numbers.into_iter().map(|x| (x / step).round() * step).collect();
    let table = naive::route_table(routing, &logits, &[], shape);
    let mut trial = Trial::new(verify(route_slots(arch, shape, routing))?, 1).note(format!("{shape:?}, {routing:?}"));
    let given = stored::input(&mut trial, "logits", Float::F32, &logits);
    // The exponentials, a sum of `experts` of them, a quotient.
    let bound = Bound { absolute: 0.0, relative: (16.0 + f64::from(experts)) * UNIT };
    let out = stored::output(&mut trial, "table", Float::F32, &table, bound);
    Ok(trial.pass(given).pass(out))
}
