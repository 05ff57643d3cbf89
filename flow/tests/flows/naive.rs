//! The oracle of the oracle: a recorded pass, evaluated element by element from the definitions,
//! with a bound of the rounding error of any machine that works with a unit roundoff of `eps`.
//!
//! Nothing of the library is used but the description of the ops. There are no pages, tiles, groups
//! or graphs here.

use std::cell::RefCell;
use std::collections::HashMap;

use tilewright_flow::ModelShape;
use tilewright_graph::Graph;
use tilewright_graph::graph::ValueId;
use tilewright_graph::op::Op;
use tilewright_graph::rows::{
    Binary, Comparison, Elementwise, InnerAxis, Norm, ProductOp, Rearrange, Reduce, Row, RowOp, Source, Unary,
};
use tilewright_layout::tensor::Format;

/// A number, and how far a machine may be from it. An infinite error means that it may be anything.
#[derive(Clone, Copy, Debug)]
pub struct Ball {
    pub v: f64,
    pub e: f64,
}

impl Ball {
    pub const UNKNOWN: Ball = Ball { v: 0.0, e: f64::INFINITY };

    pub fn exact(v: f64) -> Ball {
        Ball { v, e: 0.0 }
    }

    fn rounded(v: f64, e: f64, eps: f64) -> Ball {
        let e = e + eps * v.abs() + 1e-37;
        // Beyond this an f32 may be infinite.
        if e.is_nan() || v.is_infinite() || v.abs() + e > 1e36 { Ball::UNKNOWN } else { Ball { v, e } }
    }

    fn is_unknown(self) -> bool {
        self.e == f64::INFINITY
    }

    /// Whether a machine's number is one that rounding explains.
    pub fn admits(self, found: f64) -> bool {
        self.is_unknown() || (self.v.is_nan() && found.is_nan()) || (found - self.v).abs() <= 4.0 * self.e
    }
}

/// The input of a pass for one row: `(source, block of the row)` to an element.
pub type Given<'a> = dyn Fn(Source, usize, usize, usize) -> Ball + 'a;

/// A pass of one row.
pub struct Naive<'a> {
    pub graph: &'a Graph,
    pub model: ModelShape,
    pub given: &'a Given<'a>,
    /// Blocks that are scored.
    pub blocks: usize,
    pub eps: f64,
    memo: RefCell<HashMap<(usize, usize, usize, usize), Ball>>,
}

impl<'a> Naive<'a> {
    pub fn new(graph: &'a Graph, model: ModelShape, given: &'a Given<'a>, blocks: usize, eps: f64) -> Naive<'a> {
        Naive { graph, model, given, blocks, eps, memo: RefCell::default() }
    }

    pub fn extents(&self, node: usize) -> [usize; 2] {
        self.row(node).shape.bind(&self.model).expect("extents that the flow asked for")
    }

    /// The op with this effect.
    pub fn effect(&self, wanted: impl Fn(&Op) -> bool) -> usize {
        self.graph.steps().position(|step| wanted(step.op)).expect("the effect")
    }

    fn row(&self, node: usize) -> Row {
        self.graph.row(ValueId(node as u32))
    }

    /// Element `(i, j)` of a value at a candidate block.
    pub fn at(&self, node: usize, s: usize, i: usize, j: usize) -> Ball {
        let s = if self.row(node).format == Format::Batched { 0 } else { s };
        if let Some(ball) = self.memo.borrow().get(&(node, s, i, j)) {
            return *ball;
        }
        let ball = self.define(node, s, i, j);
        self.memo.borrow_mut().insert((node, s, i, j), ball);
        ball
    }

    fn define(&self, node: usize, s: usize, i: usize, j: usize) -> Ball {
        let id = ValueId(node as u32);
        let op = self.graph.op(id);
        let operands = self.graph.operands(id);
        let operand = |k: usize| operands[k].index();
        // An operand's element; an extent of 1 broadcasts.
        let x = |k: usize, i: usize, j: usize| {
            let [d0, d1] = self.extents(operand(k));
            self.at(operand(k), s, i.min(d0 - 1), j.min(d1 - 1))
        };
        match op {
            Op::Load { from } => (self.given)(*from, s, i, j),
            Op::Fill { number, .. } => Ball { v: number.0, e: self.eps * number.0.abs() },
            Op::Elementwise { function: Elementwise::Unary(unary), .. } => self.unary(*unary, x(0, i, j)),
            Op::Elementwise { function: Elementwise::Binary(binary), .. } => {
                self.binary(*binary, x(0, i, j), x(1, i, j))
            }
            Op::Elementwise { function: Elementwise::MaskSlice { axis, start, end, inside, outside }, .. } => {
                let index = if *axis == InnerAxis::D0 { i } else { j } as u32;
                self.constant(if *start <= index && index < *end { inside.0 } else { outside.0 })
            }
            Op::Reduce { reduction: r, .. } => {
                let size = self.extents(operand(0))[r.axis.index()];
                let every = r.every.map_or(size, |every| every as usize);
                let element = |n: usize| match r.axis {
                    InnerAxis::D0 => x(0, i * every + n, j),
                    InnerAxis::D1 => x(0, i, j * every + n),
                };
                self.reduce(r.reduce, (0..every).map(element).collect())
            }
            Op::Product { product, .. } => self.product(*product, (operand(0), operand(1)), &x, i, j, operands.len()),
            Op::Rearrange { to: Rearrange::Transpose, .. } => x(0, j, i),
            Op::Rearrange { to: Rearrange::Reshape(_), .. } => {
                let flat = i * self.extents(node)[1] + j;
                let d1 = self.extents(operand(0))[1];
                x(0, flat / d1, flat % d1)
            }
            Op::OverBlocks { over, .. } => self.across(over, operand(0), s, i, j),
            // What was saved or stored, and the scores of a selection.
            _ => x(0, i, j),
        }
    }

    fn across(&self, row: &RowOp, x: usize, s: usize, i: usize, j: usize) -> Ball {
        let lane = |of: &dyn Fn(Ball) -> Ball| (0..self.blocks).map(|s| of(self.at(x, s, i, j))).collect::<Vec<_>>();
        let here = self.at(x, s, i, j);
        match row {
            RowOp::Reduce(reduce) => self.reduce(*reduce, lane(&|x| x)),
            RowOp::Softmax(scale) => {
                let scale = Ball::rounded(scale.bind(&self.model).expect("a scale"), 0.0, self.eps);
                let scaled = |x: Ball| self.times(scale, x);
                let largest = self.reduce(Reduce::Max, lane(&scaled));
                let term = |x: Ball| self.unary(Unary::Exp, self.plus(scaled(x), Ball { v: -largest.v, ..largest }));
                self.over(term(here), self.reduce(Reduce::Sum, lane(&term)))
            }
            RowOp::Normalize(norm) => {
                let norm = match norm {
                    Norm::L1 => self.reduce(Reduce::Sum, lane(&|x| Ball { v: x.v.abs(), ..x })),
                    Norm::L2 => self.reduce(Reduce::L2Norm, lane(&|x| x)),
                };
                if norm.v == 0.0 && norm.e < 1e-30 { Ball::exact(0.0) } else { self.over(here, norm) }
            }
            RowOp::Conv1d(taps) => {
                let term = |k: usize| self.times(self.constant(taps.at(k, i, j)), self.at(x, s - k, i, j));
                self.reduce(Reduce::Sum, (0..taps.len().min(s + 1)).map(term).collect())
            }
        }
    }

    fn product(
        &self,
        product: ProductOp,
        (a, b): (usize, usize),
        x: &dyn Fn(usize, usize, usize) -> Ball,
        i: usize,
        j: usize,
        operands: usize,
    ) -> Ball {
        let [heads, inner] = self.extents(a);
        let [b0, b1] = self.extents(b);
        let sum = |n: usize, term: &dyn Fn(usize) -> Ball| self.reduce(Reduce::Sum, (0..n).map(term).collect());
        match product {
            ProductOp::Gemv => sum(inner, &|k| self.times(x(0, 0, k), x(1, 0, k))),
            ProductOp::Gemm => sum(inner, &|k| self.times(x(1, i, k), x(0, j, k))),
            ProductOp::Kron(axes) => {
                let (xi, yi) = if axes[0] { (i / b0, i % b0) } else { (i, i) };
                let (xj, yj) = if axes[1] { (j / b1, j % b1) } else { (j, j) };
                self.times(x(0, xi, xj), x(1, yi, yj))
            }
            ProductOp::LearnedQuery(scale) => {
                assert_eq!(operands, 3);
                let latent = |h: usize, r: usize| sum(inner, &|d| self.times(x(1, h * inner + d, r), x(0, h, d)));
                let head = |h: usize| sum(b1, &|r| self.times(x(2, h * inner + j, r), latent(h, r)));
                let scale = Ball::rounded(scale.bind(&self.model).expect("a scale"), 0.0, self.eps);
                self.times(scale, sum(heads, &head))
            }
        }
    }

    fn plus(&self, a: Ball, b: Ball) -> Ball {
        Ball::rounded(a.v + b.v, a.e + b.e, self.eps)
    }

    fn times(&self, a: Ball, b: Ball) -> Ball {
        Ball::rounded(a.v * b.v, a.v.abs() * b.e + b.v.abs() * a.e + a.e * b.e, self.eps)
    }

    fn over(&self, a: Ball, b: Ball) -> Ball {
        if b.v.abs() <= 2.0 * b.e {
            return Ball::UNKNOWN;
        }
        let q = a.v / b.v;
        Ball::rounded(q, (a.e + q.abs() * b.e) / (b.v.abs() - b.e), self.eps)
    }

    fn unary(&self, unary: Unary, x: Ball) -> Ball {
        let exp = |x: Ball| Ball::rounded(x.v.exp(), x.v.exp() * x.e.exp_m1(), 8.0 * self.eps);
        let logistic = |a: f64, b: f64| {
            let power = exp(self.plus(self.times(self.constant(b), x), self.constant(a)));
            // A power that overflows makes the quotient 0.
            self.over(Ball::exact(1.0), self.plus(Ball::exact(1.0), power))
        };
        match unary {
            Unary::Copy => x,
            Unary::Relu(a, b) => self.decide(x, self.constant(a.0), |d| d >= 0.0, x, self.constant(b.0)),
            Unary::Sigmoid(a, b) => logistic(a.0, b.0),
            Unary::Silu(a, b) => self.times(x, logistic(a.0, b.0)),
            Unary::Affine(a, b) => self.plus(self.times(self.constant(b.0), x), self.constant(a.0)),
            Unary::Abs => Ball { v: x.v.abs(), ..x },
            Unary::Exp => exp(x),
            Unary::Log if x.v.abs() <= 2.0 * x.e || x.v <= 0.0 => Ball::UNKNOWN,
            Unary::Log => Ball::rounded(x.v.ln(), x.e / (x.v - x.e), 8.0 * self.eps),
        }
    }

    /// A constant as the machine has it.
    pub fn constant(&self, x: f64) -> Ball {
        Ball::rounded(x, 0.0, self.eps)
    }

    fn decide(&self, x: Ball, y: Ball, holds: impl Fn(f64) -> bool, then: Ball, or: Ball) -> Ball {
        let d = x.v - y.v;
        // What rounding could turn round may be either.
        if d.is_nan() || d.abs() <= 4.0 * (x.e + y.e) {
            Ball::UNKNOWN
        } else if holds(d) {
            then
        } else {
            or
        }
    }

    fn binary(&self, binary: Binary, x: Ball, y: Ball) -> Ball {
        let extreme =
            |v: f64| if x.is_unknown() || y.is_unknown() { Ball::UNKNOWN } else { Ball { v, e: x.e.max(y.e) } };
        match binary {
            Binary::Maximum => extreme(x.v.max(y.v)),
            Binary::Minimum => extreme(x.v.min(y.v)),
            Binary::Multiply => self.times(x, y),
            Binary::Add(a, b) => self.plus(self.times(self.constant(a.0), x), self.times(self.constant(b.0), y)),
            Binary::Where(comparison) => {
                let holds = |d: f64| match comparison {
                    Comparison::Equal => d == 0.0,
                    Comparison::NotEqual => d != 0.0,
                    Comparison::Greater => d > 0.0,
                    Comparison::GreaterEqual => d >= 0.0,
                    Comparison::Less => d < 0.0,
                    Comparison::LessEqual => d <= 0.0,
                };
                self.decide(x, y, holds, Ball::exact(0.0), self.constant(-1e30))
            }
        }
    }

    /// A reduction in any order.
    fn reduce(&self, reduce: Reduce, numbers: Vec<Ball>) -> Ball {
        if numbers.iter().any(|x| x.is_unknown()) {
            return Ball::UNKNOWN;
        }
        let n = numbers.len() as f64;
        let sum = |of: &dyn Fn(Ball) -> Ball| {
            let terms: Vec<Ball> = numbers.iter().map(|x| of(*x)).collect();
            let (v, size) = terms.iter().fold((0.0, 0.0), |(v, size), x| (v + x.v, size + x.v.abs()));
            Ball::rounded(v, terms.iter().map(|x| x.e).sum::<f64>() + n * self.eps * size, self.eps)
        };
        let worst = numbers.iter().map(|x| x.e).fold(0.0, f64::max);
        match reduce {
            Reduce::Sum => sum(&|x| x),
            Reduce::Mean => self.over(sum(&|x| x), Ball::exact(n)),
            Reduce::Max => Ball { v: numbers.iter().map(|x| x.v).fold(f64::NEG_INFINITY, f64::max), e: worst },
            Reduce::Min => Ball { v: numbers.iter().map(|x| x.v).fold(f64::INFINITY, f64::min), e: worst },
            Reduce::L2Norm => {
                let square = sum(&|x| self.times(x, x));
                let root = square.v.max(0.0).sqrt();
                let e = if square.v > 2.0 * square.e { square.e / root } else { (square.v + square.e).sqrt() };
                Ball::rounded(root, e, self.eps)
            }
        }
    }
}
