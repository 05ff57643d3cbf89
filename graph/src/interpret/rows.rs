//! Ops on rows of blocks, by their definitions, for one request and key head.

use tilewright_layout::tensor::Format;

use super::error::RunError;
use super::step::StepRun;
use super::tensor::Tensor;
use crate::graph::Step;
use crate::op::Op;
use crate::rows::{Elementwise, InnerAxis, Norm, ProductOp, Rearrange, Reduce, Reduction, Row, RowOp};

/// `[d0, d1]` elements.
#[derive(Clone, Copy)]
struct Tile<'t> {
    extents: [usize; 2],
    data: &'t [f64],
}

impl Tile<'_> {
    /// An element; an extent of 1 broadcasts.
    fn at(&self, i: usize, j: usize) -> f64 {
        let [d0, d1] = self.extents;
        self.data[i.min(d0 - 1) * d1 + j.min(d1 - 1)]
    }
}

/// A value of one row, or of one for each block.
#[derive(Clone, Copy)]
struct Tiles<'t> {
    extents: [usize; 2],
    data: &'t [f64],
}

impl<'t> Tiles<'t> {
    fn of(tensor: &'t Tensor) -> Tiles<'t> {
        let [.., d0, d1] = tensor.shape[..] else { return Tiles { extents: [0, 0], data: &[] } };
        Tiles { extents: [d0, d1], data: &tensor.data }
    }

    fn elements(self) -> usize {
        self.extents.iter().product()
    }

    fn len(self) -> usize {
        self.data.len() / self.elements().max(1)
    }

    /// The tile of a block; one tile is the same for every block.
    fn tile(self, block: usize) -> Tile<'t> {
        let first = block.min(self.len().saturating_sub(1)) * self.elements();
        Tile { extents: self.extents, data: &self.data[first..first + self.elements()] }
    }
}

/// A reduction of numbers in order.
fn reduce(reduce: Reduce, numbers: impl Iterator<Item = f64>) -> f64 {
    let mut count = 0.0;
    let numbers = numbers.inspect(|_| count += 1.0);
    match reduce {
        Reduce::Sum => numbers.fold(0.0, |a, b| a + b),
        Reduce::Max => numbers.fold(f64::NEG_INFINITY, f64::max),
        Reduce::Min => numbers.fold(f64::INFINITY, f64::min),
        Reduce::L2Norm => numbers.fold(0.0, |a, b| a + b * b).sqrt(),
        Reduce::Mean => numbers.fold(0.0, |a, b| a + b) / count,
    }
}

fn elements([d0, d1]: [usize; 2], at: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..d0 * d1).map(|index| at(index / d1, index % d1)).collect()
}

/// An op on one row of its operands.
fn inner(op: &Op, extents: [usize; 2], operands: &[Tile<'_>], scale: f64) -> Vec<f64> {
    let x = operands[0];
    match op {
        Op::Elementwise { function, .. } => elements(extents, |i, j| match *function {
            Elementwise::Unary(unary) => unary.apply(x.at(i, j)),
            Elementwise::Binary(binary) => binary.apply(x.at(i, j), operands[1].at(i, j)),
            Elementwise::MaskSlice { axis, start, end, inside, outside } => {
                let index = [i, j][axis.index()];
                if (start as usize..end as usize).contains(&index) { inside.0 } else { outside.0 }
            }
        }),
        Op::Reduce { reduction, .. } => {
            let Reduction { reduce: kind, axis, every } = *reduction;
            let every = every.map_or(x.extents[axis.index()], |every| every as usize);
            elements(extents, |i, j| match axis {
                InnerAxis::D0 => reduce(kind, (0..every).map(|n| x.at(i * every + n, j))),
                InnerAxis::D1 => reduce(kind, (0..every).map(|n| x.at(i, j * every + n))),
            })
        }
        Op::Product { product, .. } => multiplied(*product, extents, operands, scale),
        Op::Rearrange { to: Rearrange::Transpose, .. } => elements(extents, |i, j| x.at(j, i)),
        // A reshape and what is stored have the elements of their operand.
        _ => x.data.to_vec(),
    }
}

fn multiplied(product: ProductOp, extents: [usize; 2], operands: &[Tile<'_>], scale: f64) -> Vec<f64> {
    let [x, y] = [operands[0], operands[1]];
    let dot = |n: usize, terms: &dyn Fn(usize) -> f64| reduce(Reduce::Sum, (0..n).map(terms));
    match product {
        ProductOp::Gemv => elements(extents, |_, _| dot(x.extents[1], &|k| x.at(0, k) * y.at(0, k))),
        ProductOp::Gemm => elements(extents, |a, b| dot(x.extents[1], &|k| y.at(a, k) * x.at(b, k))),
        ProductOp::Kron([d0, d1]) => elements(extents, |i, j| {
            let (xi, yi) = if d0 { (i / y.extents[0], i % y.extents[0]) } else { (i, i) };
            let (xj, yj) = if d1 { (j / y.extents[1], j % y.extents[1]) } else { (j, j) };
            x.at(xi, xj) * y.at(yi, yj)
        }),
        ProductOp::LearnedQuery(_) => {
            let (w_k, [heads, dim], rank) = (operands[2], x.extents, y.extents[1]);
            elements(extents, |_, j| {
                let of_head = |h: usize| {
                    let latent = |r: usize| dot(dim, &|i| y.at(h * dim + i, r) * x.at(h, i));
                    dot(rank, &|r| w_k.at(h * dim + j, r) * latent(r))
                };
                scale * dot(heads, &of_head)
            })
        }
    }
}

/// An op over all blocks: one tile for [`RowOp::Reduce`], else one for each block.
fn across(op: &RowOp, x: Tiles<'_>, scale: f64) -> Vec<f64> {
    let blocks = x.len();
    let width = x.extents[1];
    let lane = |i: usize, j: usize| (0..blocks).map(move |block| x.tile(block).at(i, j));
    let one = |of: &dyn Fn(usize, usize) -> f64| elements(x.extents, of);
    let each = |of: &dyn Fn(usize, usize, usize) -> f64| -> Vec<f64> {
        (0..blocks).flat_map(|block| elements(x.extents, |i, j| of(block, i, j))).collect()
    };
    match op {
        RowOp::Reduce(_) if blocks == 0 => one(&|_, _| 0.0),
        RowOp::Reduce(kind) => one(&|i, j| reduce(*kind, lane(i, j))),
        RowOp::Softmax(_) => {
            let largest = one(&|i, j| reduce(Reduce::Max, lane(i, j).map(|x| scale * x)));
            let term = |x: f64, i: usize, j: usize| (scale * x - largest[i * width + j]).exp();
            let sums = one(&|i, j| reduce(Reduce::Sum, lane(i, j).map(|x| term(x, i, j))));
            each(&|block, i, j| term(x.tile(block).at(i, j), i, j) / sums[i * width + j])
        }
        RowOp::Normalize(norm) => {
            let norms = one(&|i, j| match norm {
                Norm::L1 => reduce(Reduce::Sum, lane(i, j).map(f64::abs)),
                Norm::L2 => reduce(Reduce::L2Norm, lane(i, j)),
            });
            each(&|block, i, j| match norms[i * width + j] {
                0.0 => 0.0,
                norm => x.tile(block).at(i, j) / norm,
            })
        }
        RowOp::Conv1d(taps) => each(&|block, i, j| {
            let terms = (0..taps.len().min(block + 1)).map(|k| taps.at(k, i, j) * x.tile(block - k).at(i, j));
            reduce(Reduce::Sum, terms)
        }),
    }
}

/// The place of each score in the order of a selection: the larger first, then the earlier; NaN is
/// last.
fn ranks(scores: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let key = |place: usize| if scores[place].is_nan() { f64::NEG_INFINITY } else { scores[place] };
    let nan_last = |place: usize| scores[place].is_nan();
    order.sort_by(|a, b| {
        let larger = key(*b).partial_cmp(&key(*a)).unwrap_or(std::cmp::Ordering::Equal);
        nan_last(*a).cmp(&nan_last(*b)).then(larger).then(a.cmp(b))
    });
    let mut ranks = vec![0.0; scores.len()];
    order.into_iter().enumerate().for_each(|(rank, place)| ranks[place] = rank as f64);
    ranks
}

impl StepRun<'_> {
    /// The result of an op on rows: its rows, then the inner extents.
    pub(super) fn rows(&self, step: &Step<'_>) -> Result<Tensor, RunError> {
        let inputs = self.blocks.ok_or(RunError::Blocks)?;
        let row = step.results.first().and_then(Row::of).ok_or(RunError::Blocks)?;
        let extents = row.shape.bind(&inputs.model)?;
        let rows = if matches!(row.format, Format::Batched | Format::Parameter) { 1 } else { inputs.blocks };
        let scale = match step.op {
            Op::OverBlocks { over: RowOp::Softmax(scale), .. }
            | Op::Product { product: ProductOp::LearnedQuery(scale), .. } => scale.bind(&inputs.model)?,
            _ => 1.0,
        };
        let operands: Vec<Tiles<'_>> = step.op.operands().iter().map(|(_, id)| Tiles::of(self.value(*id))).collect();
        let data = match step.op {
            Op::Load { from } => {
                let data = (inputs.load)(*from);
                let expected = rows * extents.iter().product::<usize>();
                if data.len() != expected {
                    return Err(RunError::Source { name: from.name(), found: data.len(), expected });
                }
                data
            }
            Op::Fill { number, .. } => vec![number.0; extents.iter().product::<usize>() * rows],
            Op::OverBlocks { over, .. } => across(over, operands[0], scale),
            Op::Select { .. } => ranks(operands[0].data),
            op => {
                let of_block = |block| operands.iter().map(|tiles| tiles.tile(block)).collect::<Vec<_>>();
                (0..rows).flat_map(|block| inner(op, extents, &of_block(block), scale)).collect()
            }
        };
        Ok(Tensor { shape: vec![rows, extents[0], extents[1]], data })
    }
}
