//! A random flow, written through the public interface: a list of choices decides op by op. Formats
//! are types, so that what cannot be written cannot be drawn; shapes are looked at before an op is
//! called.

use std::cell::Cell;

use tilewright_flow::prelude::*;
use tilewright_flow::{InnerShape, format};
use tilewright_graph::rows::{Comparison, InnerAxis};

/// A flow that the choices stand for. Equal choices give the same flow.
#[derive(Clone, Debug)]
pub struct RandomFlow {
    pub choices: Vec<u16>,
}

#[derive(Clone, Copy)]
enum Any<'t, P> {
    B(Value<'t, Batched, P>),
    R(Value<'t, Ragged, P>),
    P(Value<'t, Paged, P>),
}

/// Reads the choices round and round.
struct Dice<'c> {
    choices: &'c [u16],
    next: Cell<usize>,
}

impl Dice<'_> {
    fn below(&self, n: usize) -> usize {
        let at = self.next.get();
        self.next.set(at + 1);
        let choice = usize::from(self.choices.get(at % self.choices.len().max(1)).copied().unwrap_or(0));
        // A second look at a choice is another number.
        (choice + at / self.choices.len().max(1) * 7919) % n
    }

    fn number(&self) -> f64 {
        [0.5, -0.75, 1.25, 0.3, -1.0, 2.0, 0.1, 0.0][self.below(8)]
    }

    fn axis(&self) -> InnerAxis {
        [D0, D1][self.below(2)]
    }
}

impl<P> Any<'_, P> {
    fn shape(&self) -> InnerShape {
        match self {
            Any::B(x) => x.shape(),
            Any::R(x) => x.shape(),
            Any::P(x) => x.shape(),
        }
    }
}

macro_rules! each {
    ($value:expr, $x:ident => $f:expr) => {
        match $value {
            Any::B($x) => Any::B($f),
            Any::R($x) => Any::R($f),
            Any::P($x) => Any::R($f),
        }
    };
}

macro_rules! pair {
    ($a:expr, $b:expr, $x:ident $y:ident => $f:expr) => {
        match ($a, $b) {
            (Any::B($x), Any::B($y)) => Any::B($f),
            (Any::B($x), Any::R($y)) => Any::R($f),
            (Any::B($x), Any::P($y)) => Any::R($f),
            (Any::R($x), Any::B($y)) => Any::R($f),
            (Any::R($x), Any::R($y)) => Any::R($f),
            (Any::R($x), Any::P($y)) => Any::R($f),
            (Any::P($x), Any::B($y)) => Any::R($f),
            (Any::P($x), Any::R($y)) => Any::R($f),
            (Any::P($x), Any::P($y)) => Any::R($f),
        }
    };
}

fn broadcasts(a: InnerShape, b: InnerShape) -> bool {
    (0..2).all(|axis| a.0[axis] == b.0[axis] || a.0[axis] == Dim::ONE || b.0[axis] == Dim::ONE)
}

fn small(shape: InnerShape) -> bool {
    // At most two symbols: what a test can afford.
    shape.elements().to_string().matches(['G', 'D', 'B']).count() <= 2
}

/// Draws one more value by an op of one row; the same value if the choice does not fit.
fn inner<'t, P: format::PassKind>(dice: &Dice<'_>, values: &[Any<'t, P>]) -> Any<'t, P> {
    let a = values[dice.below(values.len())];
    let b = values[dice.below(values.len())];
    let fits = broadcasts(a.shape(), b.shape());
    match dice.below(22) {
        0 => each!(a, x => x.relu(dice.number(), dice.number())),
        1 => each!(a, x => x.sigmoid(dice.number(), dice.number())),
        2 => each!(a, x => x.silu(dice.number(), dice.number())),
        3 => each!(a, x => x.affine(dice.number(), dice.number())),
        4 => each!(a, x => x.abs()),
        5 => each!(a, x => (x.abs() + 0.5).ln()),
        6 => each!(a, x => (x * 0.25).exp()),
        7 | 8 if fits => pair!(a, b, x y => x.maximum(y)),
        9 if fits => pair!(a, b, x y => x.minimum(y)),
        10 if fits => pair!(a, b, x y => x * y),
        11 if fits => pair!(a, b, x y => x.mix(dice.number(), y, dice.number())),
        12 if fits => {
            let comparison = Comparison::ALL[dice.below(6)];
            pair!(a, b, x y => x.where_is(comparison, y))
        }
        13..=15 => {
            let reduce = Reduce::ALL[dice.below(5)];
            let axis = dice.axis();
            each!(a, x => x.reduce(reduce, axis))
        }
        16 if a.shape().0[1] == b.shape().0[1] && small(InnerShape([a.shape().0[0], b.shape().0[0]])) => gemm(a, b),
        17 if a.shape().0[1] == b.shape().0[1] && a.shape().0[0] == Dim::ONE && b.shape().0[0] == Dim::ONE => {
            pair!(a, b, x y => x.gemv(y))
        }
        18 => each!(a, x => x.transpose()),
        19 => {
            let InnerShape([d0, d1]) = a.shape();
            each!(a, x => x.reshape([Dim::ONE, d0.times(d1)]))
        }
        20 => {
            let axis = dice.axis();
            let inside = dice.number();
            let outside = dice.number();
            each!(a, x => x.mask_slice(axis, 0, 1, inside, outside))
        }
        21 if a.shape().0[1] == b.shape().0[1] && small(InnerShape([a.shape().elements(), b.shape().0[0]])) => {
            pair!(a, b, x y => x.kron(&[D0], y))
        }
        _ => each!(a, x => -x),
    }
}

fn gemm<'t, P: format::PassKind>(a: Any<'t, P>, b: Any<'t, P>) -> Any<'t, P> {
    pair!(a, b, x y => x.gemm(y))
}

/// A value of a given shape: what is too long is reduced, what is too short is spread over the
/// keys.
macro_rules! fit {
    ($value:expr, $shape:expr, $keys:expr) => {{
        let (mut value, shape, keys): (Value<'_, Ragged, _>, InnerShape, _) = ($value, $shape, $keys);
        for (axis, reduce) in [(D0, Reduce::Max), (D1, Reduce::Mean)] {
            if value.shape().0[axis.index()] != shape.0[axis.index()] {
                value = value.reduce(reduce, axis);
            }
        }
        if value.shape() == shape { value } else { value + keys.reduce(Reduce::Mean, D0) * 0.5 }
    }};
}

const SHAPES: [[Dim; 2]; 2] = [[Dim::ONE, Dim::ONE], [Dim::ONE, Dim::HEAD_DIM]];

impl RandomFlow {
    fn dice(&self, skip: usize) -> Dice<'_> {
        Dice { choices: &self.choices, next: Cell::new(skip) }
    }
}

impl Flow for RandomFlow {
    type Fields = Vec<Field>;
    type State = Vec<(State, InnerShape)>;

    fn name(&self) -> &str {
        "random"
    }

    fn fields(&self, declare: &mut Declare) -> Vec<Field> {
        let dice = self.dice(0);
        (0..dice.below(4)).map(|i| declare.field(&format!("f{i}"), SHAPES[dice.below(2)])).collect()
    }

    fn state(&self, declare: &mut DeclareState) -> Vec<(State, InnerShape)> {
        let dice = self.dice(5);
        let state = |i: usize| {
            let shape = SHAPES[dice.below(2)];
            (declare.state(&format!("s{i}"), shape, dice.number()), InnerShape(shape))
        };
        (0..dice.below(3)).map(state).collect()
    }

    fn forward_cache(&self, block: &Block<'_>, fields: &Vec<Field>) {
        let dice = self.dice(9);
        let mut values = vec![Any::P(block.keys()), Any::P(block.values())];
        // The shapes are those that `fields` drew.
        let shapes = self.dice(1);
        for field in fields {
            for _ in 0..dice.below(4) {
                values.push(inner(&dice, &values));
            }
            let shape = InnerShape(SHAPES[shapes.below(2)]);
            let stored = match values[dice.below(values.len())] {
                Any::B(_) => unreachable!("the cache pass has no such value"),
                Any::R(x) => block.store(*field, fit!(x, shape, block.keys())),
                Any::P(x) => block.store(*field, fit!(x * 1.0, shape, block.keys())),
            };
            values.push(Any::P(stored));
        }
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &Vec<Field>, states: Vec<(State, InnerShape)>) -> Done<'t> {
        let dice = self.dice(40);
        let mut values: Vec<Any<'t, _>> = vec![Any::B(step.query()), Any::R(step.positions()), Any::P(step.keys())];
        values.extend(fields.iter().map(|field| Any::P(step.field(*field))));
        let mut slots = Vec::new();
        for (state, shape) in states {
            let (before, slot) = step.load(state);
            values.push(Any::R(before));
            slots.push((slot, shape));
        }
        for _ in 0..2 + dice.below(14) {
            let value = match (dice.below(9), values[dice.below(values.len())]) {
                (0, Any::R(x)) => Any::B(x.over_blocks(Reduce::ALL[dice.below(5)])),
                (1, Any::R(x)) => Any::R(x.softmax(dice.number())),
                (2, Any::R(x)) => Any::R(x.normalize([Norm::L1, Norm::L2][dice.below(2)])),
                (3, Any::R(x)) => Any::R(x.conv1d(Taps::shared(&[0.5, -0.25, 0.125]).expect("weights"))),
                (0..4, Any::P(x)) => Any::R(x.load()),
                _ => inner(&dice, &values),
            };
            values.push(value);
        }
        let pick = || match values[dice.below(values.len())] {
            Any::R(x) => x,
            Any::P(x) => x.load(),
            Any::B(x) => x * step.positions(),
        };
        for (slot, shape) in slots {
            // Half of the saves take the value as it is: what was loaded, or what another slot
            // saves.
            let value = pick();
            slot.save(if value.shape() == shape { value } else { fit!(value, shape, step.keys()) });
        }
        let score = fit!(pick(), InnerShape::SCORE, step.keys());
        step.select(score)
    }
}
