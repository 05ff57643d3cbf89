//! Groups of rows at random, and the oracle.

use core::array::from_fn;

use tilewright_codegen::trial::{Draw, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::plan::GroupedBuffer;
use super::problem::GroupedProblem;
use super::scales::BLOCK;
use crate::gemm::data::{Drawn, Near, Rounded};
use crate::gemm::plan::PlannedLaunch;
use crate::gemm::trial::near;
use crate::naive;

/// The operands of a grouped product.
#[derive(Clone, Debug)]
pub struct GroupedData<F: Drawn, D> {
    /// The first row of each group, and the end of the last.
    pub offsets: Vec<u32>,
    /// A number for each row, where the problem has an order: each below `rows` once.
    pub order: Vec<u32>,
    /// Rows of A.
    pub a: Vec<F::Stored>,
    /// Weights.
    pub b: Vec<F::Stored>,
    /// The divisors of A and B: one each, or those of blocks.
    pub scales: [Vec<f32>; 2],
    /// A number per row of weights.
    pub bias: Vec<D>,
    /// The residual.
    pub residual: Vec<D>,
}

impl<F: Drawn, D: Rounded> GroupedData<F, D> {
    /// Random numbers for groups of those sizes, which are the problem's groups; rows of A that no
    /// group has are NaN.
    pub fn draw(problem: &GroupedProblem, sizes: &[u32], draw: &mut Draw) -> GroupedData<F, D> {
        let mut offsets = vec![0];
        for size in sizes {
            offsets.push(offsets[offsets.len() - 1] + size);
        }
        let mut order: Vec<u32> = (0..problem.rows).collect();
        for i in (1..problem.rows).rev() {
            order.swap(i as usize, draw.between(0..=i) as usize);
        }
        let depth = problem.k as usize;
        let a_rows = problem.rows.div_ceil(problem.gather.unwrap_or(1)) as usize;
        let mut used = vec![false; a_rows];
        let total = offsets[offsets.len() - 1] as usize;
        for i in 0..total {
            used[source(problem, &order, i)] = true;
        }
        // Few bits make few exponents: all of them shall come up.
        let power = if F::BITS == 8 { 3 } else { 1 };
        let number = |draw: &mut Draw| (F::NEAREST)(draw.unit().powi(power) * F::RANGE);
        let absent = (F::NEAREST)(f64::NAN);
        let a = (0..a_rows * depth).map(|i| if used[i / depth] { number(draw) } else { absent }).collect();
        let b = (0..(problem.groups * problem.b_rows()) as usize * depth).map(|_| number(draw)).collect();
        let blocks = |extent: u32| extent.div_ceil(BLOCK) as usize;
        let halves = (problem.b_rows() / problem.n) as usize;
        let counts = match F::BITS {
            8 => [a_rows, problem.groups as usize * halves * blocks(problem.n)].map(|rows| rows * blocks(problem.k)),
            _ => [1, 1],
        };
        let scale = |draw: &mut Draw| ((1.5 + 0.5 * draw.unit()) / F::RANGE) as f32;
        let scales = counts.map(|count| (0..count).map(|_| scale(draw)).collect());
        let bias = draw.floats((problem.groups * problem.b_rows()) as usize, D::ROUND);
        let residual = draw.floats((problem.rows * problem.n) as usize, D::ROUND);
        GroupedData { offsets, order, a, b, scales, bias, residual }
    }

    /// The result of each row in the order of the groups, and by how much each may be off: bounds as
    /// of [`Data::sums`](crate::gemm::Data::sums) and [`finished`](crate::gemm::Data::finished).
    pub fn expected(&self, problem: &GroupedProblem) -> Vec<Near> {
        self.gated(problem, &|y, up| problem.epilogue.functions.expected(y, up))
    }

    /// As [`expected`](GroupedData::expected), with a function from a sum and, where the product is
    /// gated, what it multiplies to the value between bias and residual: each a value and its error.
    pub fn gated(
        &self,
        problem: &GroupedProblem,
        functions: &dyn Fn([f64; 2], Option<[f64; 2]>) -> [f64; 2],
    ) -> Vec<Near> {
        let (depth, width, columns) = (problem.k as usize, problem.b_rows() as usize, problem.n as usize);
        let a = |m: usize, k: usize| (F::VALUE)(self.a[source(problem, &self.order, m) * depth + k]);
        let b = |g: usize, n: usize, k: usize| (F::VALUE)(self.b[(g * width + n) * depth + k]);
        // Of operands of 8 bits each element is multiplied by the scale of its block.
        let is_blocks = F::BITS == 8;
        let block = BLOCK as usize;
        let steps = depth.div_ceil(block);
        let of_a = |m: usize, k: usize| match is_blocks {
            true => f64::from(self.scales[0][source(problem, &self.order, m) * steps + k / block]),
            false => 1.0,
        };
        let of_b = |g: usize, n: usize, k: usize| {
            let blocks = columns.div_ceil(block);
            let half = (g * (width / columns) + n / columns) * blocks + n % columns / block;
            if is_blocks { f64::from(self.scales[1][half * steps + k / block]) } else { 1.0 }
        };
        let a = |m: usize, k: usize| a(m, k) * of_a(m, k);
        let b = |g: usize, n: usize, k: usize| b(g, n, k) * of_b(g, n, k);
        let sums = naive::grouped(&self.offsets, [width, depth], a, b);
        let sizes = naive::grouped(&self.offsets, [width, depth], |m, k| a(m, k).abs(), |g, n, k| b(g, n, k).abs());
        let cut = |depth: u32| (1.0625 * f64::from(depth) + 2.0) * F::CUT;
        // A scale is a product of two that is rounded; so is each step's sum.
        let unit = match is_blocks {
            true => cut(problem.k.min(BLOCK)) + (steps as f64 + 3.0) * 2f64.powi(-24),
            false => cut(problem.k),
        };
        let scale = match problem.epilogue.scale {
            Some(_) => f64::from(self.scales[0][0] * self.scales[1][0]),
            None => 1.0,
        };
        let mut results = Vec::new();
        for (group, rows) in self.offsets.windows(2).enumerate() {
            let linear = |row: usize, column: usize| {
                let bias = if problem.epilogue.bias { self.bias[group * width + column].value() } else { 0.0 };
                let at = row * width + column;
                let error = unit * sizes[at] * scale + 2f64.powi(-22) * (sums[at].abs() * scale + bias.abs());
                [sums[at] * scale + bias, error]
            };
            for row in rows[0] as usize..rows[1] as usize {
                results.extend((0..columns).map(|column| {
                    let up = problem.epilogue.gated.then(|| linear(row, column + columns));
                    let [mut value, error] = functions(linear(row, column), up);
                    if problem.epilogue.residual {
                        value += self.residual[row * columns + column].value();
                    }
                    (value, error + D::UNIT * (value.abs() + error) + 2f64.powi(-24))
                }));
            }
        }
        results
    }

    /// Rows of results as they lie in memory, at the places that the order gives them; NaN where
    /// nothing is written.
    pub fn placed(&self, problem: &GroupedProblem, results: &[Near]) -> Vec<Near> {
        let columns = problem.n as usize;
        let mut placed = vec![(f64::NAN, 0.0); (problem.rows * problem.n) as usize];
        for (row, values) in results.chunks_exact(columns).enumerate() {
            let to = if problem.scatter { self.order[row] as usize } else { row };
            placed[to * columns..][..columns].copy_from_slice(values);
        }
        placed
    }

    /// The trial of a launch whose result in memory is `placed`; the arguments of a custom epilogue
    /// are not passed.
    ///
    /// # Errors
    /// [`VerifyErrors`] of the kernel.
    pub fn trial(&self, launch: PlannedLaunch<GroupedBuffer>, placed: Vec<Near>) -> Result<Trial, VerifyErrors> {
        let mut trial = Trial::new(verify(launch.kernel)?, launch.grid);
        let before = vec![D::ROUND(f64::NAN); placed.len()];
        let mut placed = Some(placed);
        for argument in launch.arguments {
            trial = argument.pass(trial, |trial, buffer| match buffer {
                GroupedBuffer::A => trial.input("a", &self.a),
                GroupedBuffer::B => trial.input("b", &self.b),
                GroupedBuffer::Offsets => trial.input("offsets", &self.offsets),
                GroupedBuffer::Order => trial.input("order", &self.order),
                GroupedBuffer::AScale => trial.input("a_scale", &self.scales[0]),
                GroupedBuffer::BScale => trial.input("b_scale", &self.scales[1]),
                GroupedBuffer::Bias => trial.input("bias", &self.bias),
                GroupedBuffer::Residual => trial.input("residual", &self.residual),
                GroupedBuffer::C => trial.changed("c", &before, near::<D>(placed.take().unwrap_or_default(), D::UNIT)),
            });
        }
        Ok(trial)
    }
}

/// The row of A that row `i` of the groups is.
fn source(problem: &GroupedProblem, order: &[u32], i: usize) -> usize {
    problem.gather.map_or(i, |divisor| (order[i] / divisor) as usize)
}

/// Sizes of groups that add up to at most `most` rows: of any size, all rows in one group, all but
/// a few groups empty, or as many in each.
pub fn ragged_sizes(draw: &mut Draw, groups: u32, most: u32) -> Vec<u32> {
    let mut sizes = vec![0; groups as usize];
    let pick = |draw: &mut Draw| draw.between(0..=groups - 1) as usize;
    match draw.between(0..=4) {
        0 => sizes[pick(draw)] = draw.between(0..=most),
        1 => sizes.fill(draw.between(0..=most / groups)),
        2 => {
            let few: [usize; 2] = from_fn(|_| pick(draw));
            few.into_iter().for_each(|group| sizes[group] = draw.between(1..=most.max(2) / 2));
        }
        _ => (0..draw.between(0..=most)).for_each(|_| sizes[pick(draw)] += 1),
    }
    sizes
}
