//! Products: of rows and a matrix that lies row by row, or of the packed weights that the decode
//! machine streams.

use half::bf16;
use tilewright_codegen::ir::Arch;
use tilewright_kernels::activation::SoftCap;
use tilewright_kernels::embed::TableOrder;
use tilewright_kernels::epilogue::{Epilogue, ResultFunctions};
use tilewright_kernels::gemm::{self, Argument, GemmBuffer as Of, GemmDevice, GemmProblem, PlannedLaunch};
use tilewright_kernels::gemv::{GemvEpilogue, hopper, hopper::WeightRows};
use tilewright_kernels::quant::Widen;
use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use super::activations::{Begun, Multiply, NormActivations, OutputProjection, PackedProduct, ProductInput};
use super::launch::{Launch, LaunchArg, LaunchGrid, LaunchMemory, Scratch};
use super::plan::{LogitsPlan, MOST_ALONE};
use super::planner::{GraphPlanner, number_of};
use crate::program::{BufferId, Quantised};
use crate::vm::Unsupported;
use crate::vm::resident::{PackedStrips, Rows as Streamed};

/// Bytes that the addresses of buffers are multiples of.
pub(super) const ALIGNED: u32 = 256;
/// Blocks of a cluster of which an H200 holds as many as its SMs make.
const MOST_BLOCKS: u32 = 2;
/// Elements that a row of packed weights has a multiple of, where nothing lies after it.
const WHOLE: u32 = 32;

impl GraphPlanner<'_> {
    /// A product of all rows, bf16.
    pub(crate) fn product(&mut self, product: &ProductInput) -> Result<(), Unsupported> {
        let rows = self.plan.rows;
        let to = self.scratch(product.to, u64::from(rows) * u64::from(product.results.results()) * 2);
        let multiply = product.multiply(rows, to);
        let launches = match self.packed_of(&multiply) {
            Some(packed) => vec![self.multiply_activations(packed, product.a)?],
            None => {
                self.prepare(product.a)?;
                self.multiply_rows(&multiply)?
            }
        };
        self.plan.launches.extend(launches);
        Ok(())
    }

    /// A product of packed weights, in which the norm of its activations ends that the launch
    /// before may begin; else that has a launch.
    pub(super) fn multiply_activations(
        &mut self,
        mut packed: PackedProduct,
        a: NormActivations,
    ) -> Result<Launch, Unsupported> {
        let scaled = packed.finish.ending_norm();
        match a {
            NormActivations::Norm(norm) if scaled.check(&packed.plan).is_ok() && self.begin_norm(norm)? => {
                (packed.finish, packed.eps) = (scaled, Some(norm.eps));
            }
            NormActivations::Scratch(_) | NormActivations::Norm(_) | NormActivations::Stream(_) => {
                self.prepare(a)?;
            }
        }
        Ok(self.multiply_packed(&packed))
    }

    /// A product of all rows is added to the residual stream, which makes `out`: by the product, or
    /// else by the norm that comes next.
    pub(crate) fn add_product(
        &mut self,
        a: NormActivations,
        layer: (BufferId, Option<BufferId>),
        [residual, out]: [BufferId; 2],
    ) -> Result<(), Unsupported> {
        let a = self.prepare(a)?;
        let rows = self.plan.rows;
        let [features, _] = self.extents(layer.0)?;
        let layers = &[layer][..];
        let results = features.into();
        let to = LaunchMemory::Scratch(Scratch::Residual);
        let a_memory = LaunchMemory::Scratch(a);
        let functions = ResultFunctions::default();
        let product = Multiply { rows, a: a_memory, layers, results, functions, to, wide: true, added: true };
        let Some(packed) = self.packed_of(&product) else {
            self.complete()?;
            self.product(&ProductInput {
                a: NormActivations::Scratch(a),
                layers,
                results,
                functions,
                to: Scratch::Added,
            })?;
            return self.add(residual, out);
        };
        self.whole(residual, Scratch::Residual)?;
        self.heads.remove(&residual);
        self.residual(out, [rows, features]);
        self.begin(out, Begun::Product(Box::new(packed)));
        Ok(())
    }

    /// The logits of rows that are asked for.
    pub(crate) fn logits(
        &mut self,
        layer: (BufferId, Option<BufferId>),
        soft_cap: Option<SoftCap>,
    ) -> Result<(), Unsupported> {
        let rows = self.plan.rows;
        let [vocab, k] = self.extents(layer.0)?;
        if !k.is_multiple_of(8) {
            let what = "columns of the residual stream";
            let found = k as usize;
            return Err(Unsupported::Number { what, found, expected: "a multiple of 8" });
        }
        let mut of = |rows, a| {
            let layers = &[layer][..];
            let results = vocab.into();
            let to = LaunchMemory::Logits;
            let functions = ResultFunctions { soft_cap, ..ResultFunctions::default() };
            self.multiply(&Multiply { rows, a, layers, results, functions, to, wide: true, added: false })
        };
        let of_row = of(1, LaunchMemory::NormedRow)?;
        let of_all = of(rows, LaunchMemory::Scratch(Scratch::Normed))?;
        self.head = Some(OutputProjection { layer, soft_cap });
        match self.plan.logits.replace(LogitsPlan { vocab, width: k, of_row, of_all }) {
            None => Ok(()),
            Some(_) => Err(Unsupported::Launch { what: "a second output projection" }),
        }
    }

    /// The launches of a product.
    pub(super) fn multiply(&mut self, product: &Multiply) -> Result<Vec<Launch>, Unsupported> {
        match self.packed_of(product) {
            Some(packed) => Ok(vec![self.multiply_packed(&packed)]),
            None => self.multiply_rows(product),
        }
    }

    /// A product whose weights lie packed; none where another kernel multiplies: one of many rows
    /// by weights of bf16, and one by codes whose places are not columns.
    pub(super) fn packed_of(&mut self, product: &Multiply) -> Option<PackedProduct> {
        let form = |layer: &(BufferId, _)| self.buffer(layer.0).quantised;
        let is_dense = product.layers.iter().all(|layer| form(layer).is_none());
        let is_read = product.layers.iter().all(|layer| form(layer).is_none_or(Quantised::has_whole_steps));
        let goes = self.arch == Arch::Sm90a && is_read && (product.rows <= MOST_ALONE || !is_dense);
        let packed = self.packed.filter(|_| goes)?;
        let layers: Vec<BufferId> = product.layers.iter().map(|(weight, _)| *weight).collect();
        let streams = match (product.results, &layers[..]) {
            (WeightRows::InOrder(_), &[weight]) => vec![Streamed::Matrix(weight)],
            (WeightRows::Gated(_), &[gate, up]) => vec![Streamed::Interleaved(gate, up)],
            (WeightRows::Groups { group, kv_heads, dim }, &[q, k, v]) => {
                let [group, kv_heads, dim] = [group, kv_heads, dim].map(|extent| extent as usize);
                let of = |kv_head| Streamed::Group { weights: [q, k, v], kv_head, kv_heads, group, dim };
                (0..kv_heads).map(of).collect()
            }
            _ => return None,
        };
        let strips = packed.find(self.program, &streams)?;
        if strips.strip.codes().is_some_and(|codes| !codes.is_of_whole_steps())
            || !strips.strip.k().is_multiple_of(WHOLE)
        {
            return None;
        }
        let choose = |fits: &dyn Fn(&hopper::HopperPlan) -> bool| {
            let most = [self.multiprocessors, MOST_BLOCKS];
            hopper::choose_for(product.rows, product.results, strips.strip, most, fits)
        };
        // A sum that is added to the residual stream may begin a norm.
        let epilogue = Epilogue { residual: true, ..Epilogue::default() };
        let begins = GemvEpilogue { wide: true, normed: Some(Float::F32), ..epilogue.into() };
        let tuning = Some(()).filter(|()| product.added).and_then(|()| choose(&|plan| begins.check(plan).is_ok()));
        let tuning = tuning.or_else(|| choose(&|_| true))?;
        let shape = [product.results.packed(), strips.strip.k()];
        let set = self.products.iter().rev().find(|set| set.shape == shape);
        let plan = |tuning| hopper::HopperPlan::new(product.rows, product.results, strips.strip, tuning);
        let plan = set.and_then(|set| plan(set.applied(tuning)).ok()).or_else(|| plan(tuning).ok())?;
        let bias = self.bias(product.layers);
        let epilogue = Epilogue { residual: product.added, ..product.epilogue(bias) };
        let finish = GemvEpilogue { wide: product.wide, ..epilogue.into() };
        Some(PackedProduct { strips, plan, finish, a: product.a, to: product.to, bias, eps: None })
    }

    pub(super) fn multiply_packed(&mut self, product: &PackedProduct) -> Launch {
        let PackedProduct { strips: PackedStrips { first, len, .. }, plan, finish, a, to, bias, eps } = *product;
        let key = (plan, finish);
        if !self.packed_steps.contains_key(&key) {
            let step = hopper::step(self.arch, &plan, finish, self.multiprocessors);
            let kernel = number_of(&mut self.plan.kernels, step.kernel.clone());
            self.packed_steps.insert(key, (kernel, step));
        }
        let (kernel, step) = self.packed_steps[&key].clone();
        let memory = |of| match of {
            Of::A => LaunchMemory::Packed { first, len },
            Of::B => a,
            Of::Bias => bias.unwrap_or(to),
            Of::C | Of::AScale | Of::BScale | Of::Residual | Of::Partials => to,
        };
        let mut launch = launch(kernel, step, memory);
        if let Some(eps) = eps {
            launch.args.push(LaunchArg::Pointer(LaunchMemory::Scratch(Scratch::Squares)));
            launch.args.push(LaunchArg::Factor(eps));
        }
        launch
    }

    fn multiply_rows(&mut self, product: &Multiply) -> Result<Vec<Launch>, Unsupported> {
        let (matrix, mut launches) = self.operand(product.layers.iter().map(|(weight, _)| *weight).collect())?;
        let k = match product.layers {
            [(weight, _), ..] => self.extents::<2>(*weight)?[1],
            [] => return Err(Unsupported::Launch { what: "a product without weights" }),
        };
        // A bias has the type of the results.
        let bias = match *product.layers {
            [(_, Some(bias))] if product.wide && self.buffer(bias).dtype == DType::F32 => Some(self.plain(bias)?.0),
            _ => self.bias(product.layers),
        };
        let problem = GemmProblem::new(product.rows, product.results.results(), k).epilogue(product.epilogue(bias));
        let key = (problem, product.wide);
        if !self.steps.contains_key(&key) {
            let target =
                GemmDevice { arch: self.arch, multiprocessors: self.multiprocessors, aligned: ALIGNED, partials: true };
            let steps = match product.wide {
                true => gemm::plan::<bf16, f32>(&problem, target)?,
                false => gemm::plan::<bf16, bf16>(&problem, target)?,
            };
            let kernels = &mut self.plan.kernels;
            let steps = steps.into_iter().map(|step| (number_of(kernels, step.kernel.clone()), step)).collect();
            self.steps.insert(key, steps);
        }
        let steps = self.steps[&key].clone();
        let partial = |step: &PlannedLaunch| step.arguments.contains(&Argument::Pointer(Of::Partials));
        if steps.iter().any(|(_, step)| partial(step)) {
            // Shares of the contraction: at most 16, and as many as their steps have.
            let splits = u64::from(splits_of(&steps));
            self.scratch(Scratch::Partials, splits * u64::from(problem.m) * u64::from(problem.b_rows()) * 4);
        }
        let memory = |of| match of {
            Of::A => product.a,
            Of::B => matrix,
            Of::Partials => LaunchMemory::Scratch(Scratch::Partials),
            Of::Bias => bias.unwrap_or(product.to),
            Of::C | Of::AScale | Of::BScale | Of::Residual => product.to,
        };
        launches.extend(steps.into_iter().map(|(kernel, step)| launch(kernel, step, memory)));
        Ok(launches)
    }

    /// A table whose rows have that number of elements: where it lies, and whether it is packed.
    pub(crate) fn table(&mut self, table: BufferId, width: u32) -> Result<(LaunchMemory, TableOrder), Unsupported> {
        match self.packed.and_then(|packed| packed.find(self.program, &[Streamed::Matrix(table)])) {
            Some(PackedStrips { first, len, strip }) if strip.codes().is_none() => {
                Ok((LaunchMemory::Packed { first, len }, TableOrder::Strips(strip)))
            }
            Some(_) | None => Ok((self.matrix(vec![table])?, TableOrder::Rows(width))),
        }
    }

    /// A matrix of weights below each other that a product reads, and the launches that make it of
    /// codes.
    fn operand(&mut self, parts: Vec<BufferId>) -> Result<(LaunchMemory, Vec<Launch>), Unsupported> {
        let is_codes = |part: &&BufferId| self.buffer(**part).quantised.is_some();
        match (parts.iter().find(is_codes), parts.iter().find(|part| !is_codes(part))) {
            (None, _) => Ok((self.matrix(parts)?, Vec::new())),
            (Some(_), None) => self.widened(&parts),
            (Some(&codes), Some(&dense)) => {
                let [first, second] = [codes, dense].map(|part| self.buffer(part).name.clone());
                Err(Unsupported::Mixed { first, second })
            }
        }
    }

    /// A matrix whose parts are codes: each is written below the one before.
    fn widened(&mut self, parts: &[BufferId]) -> Result<(LaunchMemory, Vec<Launch>), Unsupported> {
        let mut first_row = 0u32;
        let mut launches = Vec::new();
        for &part in parts {
            let [rows, k] = self.extents(part)?;
            let Some(form) = self.buffer(part).quantised else { continue };
            let group = form.group.map_or(k, |group| u32::try_from(group).unwrap_or(k).min(k));
            let widen = Widen { code: form.code, k, group, ordered: form.ordered };
            let arch = self.arch;
            let kernel = self.kernel(format!("{widen:?}"), || widen.record(arch));
            number_of(&mut self.plan.codes, part);
            let bytes = u64::from(first_row + rows) * u64::from(k) * 2;
            let out = self.scratch(Scratch::Widened, bytes);
            let order = if form.ordered { LaunchMemory::Order(part) } else { LaunchMemory::Factors(part) };
            let memory = [LaunchMemory::Codes(part), LaunchMemory::Factors(part), order, out];
            let numbers = [rows, first_row].map(LaunchArg::Number);
            let args = memory.into_iter().map(LaunchArg::Pointer).chain(numbers).collect();
            launches.push(Launch { kernel, grid: LaunchGrid::Blocks(widen.blocks(rows)), args });
            first_row += rows;
        }
        Ok((LaunchMemory::Scratch(Scratch::Widened), launches))
    }

    /// The biases of layers below each other, if one has any.
    pub(super) fn bias(&mut self, layers: &[(BufferId, Option<BufferId>)]) -> Option<LaunchMemory> {
        layers.iter().any(|(_, bias)| bias.is_some()).then(|| {
            let of = |&(weight, bias): &(BufferId, _)| (self.buffer(weight).shape[0], bias);
            let parts: Vec<_> = layers.iter().map(of).collect();
            LaunchMemory::Bias(number_of(&mut self.plan.biases, parts))
        })
    }
}

/// A step of a product as a launch.
pub(super) fn launch<B>(kernel: usize, step: PlannedLaunch<B>, memory: impl Fn(B) -> LaunchMemory) -> Launch {
    let arg = |argument: Argument<B>| match argument {
        Argument::Map(of, shape) => LaunchArg::Map(memory(of), shape),
        Argument::Pointer(of) => LaunchArg::Pointer(memory(of)),
        Argument::Number(number) => LaunchArg::Number(number),
    };
    let args = step.arguments.into_iter().map(arg).collect();
    Launch { kernel, grid: LaunchGrid::Blocks(step.grid), args }
}

/// Shares of the contraction that the steps of a product leave: the last number of the reduction.
fn splits_of(steps: &[(usize, PlannedLaunch)]) -> u32 {
    let numbers = steps.iter().rev().map(|(_, step)| &step.arguments).next();
    let is_number = |argument: &Argument| if let Argument::Number(number) = argument { Some(*number) } else { None };
    // `partials`, `c`, then the stride of C, rows, columns and splits.
    numbers.and_then(|all| all.iter().filter_map(is_number).nth(3)).unwrap_or(1)
}
