//! Mixtures of experts: from a router's logits to the weighted sum of the chosen experts' results.

use tilewright_codegen::device::{Arg, Stream};
use tilewright_kernels::activation::Activation;
use tilewright_kernels::epilogue::Epilogue;
use tilewright_kernels::gemm::grouped::{GroupedBuffer, GroupedProblem};
use tilewright_kernels::route::{RouterKind, RouterShape, SortShape, SumShape};
use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use super::recipe::{FiniteRouter, GroupedProduct, Recipe};
use super::tensor::Operand;
use super::{OpError, Ops, Tensor};

/// `out = residual + Σⱼ weightⱼ · downⱼ · (activation(gateⱼ · x) ⊙ upⱼ · x)` for each row, over the
/// experts j that its logits choose.
///
/// Choices are sorted by expert on the device, and each expert multiplies the rows that chose it.
/// Results of the gates and of the experts are rounded to bf16. Operands are contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Moe<'t> {
    /// `[.., hidden]` bfloat16: rows.
    pub x: &'t Tensor,
    /// The rows of `x` with a number for each expert, float32.
    pub logits: &'t Tensor,
    /// How logits become choices and weights.
    pub router: RouterKind,
    /// `[experts]` float32, added to the scores of a sigmoid router for the choice alone.
    pub correction: Option<&'t Tensor>,
    /// Experts of a row, 1 to 32.
    pub top_k: u32,
    /// The activation of gates.
    pub activation: Activation,
    /// `[experts, 2 · inner, hidden]` bfloat16: gates first, then the values that they multiply.
    pub gate_up: &'t Tensor,
    /// `[experts, 2 · inner]` bfloat16.
    pub gate_up_bias: Option<&'t Tensor>,
    /// `[experts, hidden, inner]` bfloat16.
    pub down: &'t Tensor,
    /// `[experts, hidden]` bfloat16.
    pub down_bias: Option<&'t Tensor>,
    /// As `out`.
    pub residual: Option<&'t Tensor>,
    /// As `x`, or float32.
    pub out: &'t Tensor,
    /// Float32 of [`Ops::moe_workspace`] elements or more.
    pub workspace: &'t Tensor,
}

const OP: &str = "moe";
/// Experts at most.
const MOST_EXPERTS: usize = 1024;
/// Experts of a row at most.
const MOST_TOP_K: u32 = 32;
/// Groups of experts at most.
const MOST_GROUPS: u32 = 32;
/// Elements that hidden and inner extents are multiples of.
const MULTIPLE: usize = 8;
/// Elements that parts of the workspace begin at multiples of: 256 bytes.
const PART: usize = 64;
/// Warps of a block that chooses experts, and of one that adds their results.
const ROUTER_WARPS: u32 = 4;
const SUM_WARPS: u32 = 8;

/// The sizes of a layer of experts.
#[derive(Clone, Copy)]
struct MoeSize {
    choices: usize,
    experts: usize,
    hidden: usize,
    inner: usize,
}

impl MoeSize {
    /// Where the parts of the workspace end, in elements: ids, weights, order, offsets, gated rows,
    /// results.
    fn ends(self) -> [usize; 6] {
        let MoeSize { choices, experts, hidden, inner } = self;
        let halves = |width: usize| choices.saturating_mul(width.div_ceil(2));
        let mut end = 0usize;
        [choices, choices, choices, experts.saturating_add(1), halves(inner), halves(hidden)].map(|elements| {
            end = end.saturating_add(elements.div_ceil(PART).saturating_mul(PART));
            end
        })
    }
}

impl Ops {
    /// Elements of the workspace, float32, of layers of experts for `rows` rows.
    pub fn moe_workspace(rows: usize, top_k: usize, experts: usize, hidden: usize, inner: usize) -> usize {
        MoeSize { choices: rows.saturating_mul(top_k), experts, hidden, inner }.ends()[5]
    }

    /// A layer of experts.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other, or a choice that no kernel makes.
    pub fn moe(&self, stream: &Stream, moe: &Moe<'_>) -> Result<(), OpError> {
        let operand = |name, tensor| Operand::new(OP, name, tensor);
        let [x, logits, out] = [("x", moe.x), ("logits", moe.logits), ("out", moe.out)].map(|(n, t)| operand(n, t));
        let [gate_up, down] = [operand("gate_up", moe.gate_up), operand("down", moe.down)];
        for operand in [x, gate_up, down] {
            operand.is(&[DType::BF16], "bfloat16")?;
        }
        logits.is(&[DType::F32], "float32")?;
        out.is(&[DType::BF16, DType::F32], "bfloat16 or float32")?;
        let [of_x, of_logits] = [x.rows()?, logits.rows()?];
        let (rows, hidden, experts) = (of_x.rows, of_x.width as usize, of_logits.width as usize);
        let leading = moe.x.shape().iter().rev().skip(1).rev().copied();
        logits.has(&leading.chain([experts]).collect::<Vec<_>>(), "it must be the rows of x and experts,")?;
        let &[of_gate_up, two_inner, columns] = moe.gate_up.shape() else {
            return Err(gate_up.shape("it must be [experts, 2 inner, hidden]"));
        };
        if [of_gate_up, columns] != [experts, hidden] || two_inner == 0 || !two_inner.is_multiple_of(2 * MULTIPLE) {
            let expected = format!("it must be [{experts}, 2 inner, {hidden}], inner a multiple of {MULTIPLE}");
            return Err(gate_up.shape(expected));
        }
        let inner = two_inner / 2;
        if hidden == 0 || !hidden.is_multiple_of(MULTIPLE) {
            return Err(x.shape(format!("its last axis must be a multiple of {MULTIPLE}")));
        }
        if !(1..=MOST_EXPERTS).contains(&experts) {
            return Err(logits.shape(format!("there must be 1 to {MOST_EXPERTS} experts")));
        }
        down.has(&[experts, hidden, inner], "it must be [experts, hidden, inner],")?;
        out.has(moe.x.shape(), "it must be as x,")?;
        let residual = moe.residual.map(|residual| operand("residual", residual));
        if let Some(residual) = residual {
            residual.has(moe.x.shape(), "it must be as x,")?;
            residual.is(&[moe.out.dtype()], "the type of out")?;
        }
        let of_biases = [("gate_up_bias", moe.gate_up_bias, two_inner), ("down_bias", moe.down_bias, hidden)];
        for (name, bias, width) in of_biases {
            let Some(bias) = bias.map(|bias| operand(name, bias)) else { continue };
            bias.has(&[experts, width], "it must have a row for each expert,")?;
            bias.is(&[DType::BF16], "bfloat16")?;
            bias.contiguous()?;
        }
        self.check_router(moe, experts)?;
        for operand in [Some(x), Some(gate_up), Some(down), Some(out), residual].into_iter().flatten() {
            operand.contiguous()?;
            operand.aligned()?;
        }
        logits.contiguous()?;
        let choices = rows.checked_mul(moe.top_k).ok_or_else(|| x.shape("it has more than 2^32 choices of experts"))?;
        let size = MoeSize { choices: choices as usize, experts, hidden, inner };
        let ends = size.ends();
        let workspace = operand("workspace", moe.workspace);
        workspace.is(&[DType::F32], "float32")?;
        workspace.contiguous()?;
        workspace.aligned()?;
        if moe.workspace.elements() < ends[5] {
            return Err(workspace.shape(format!("it must have {} elements", ends[5])));
        }
        if rows == 0 {
            return Ok(());
        }

        let part = |at: usize, dtype: DType, shape: &[usize]| {
            let first = at.checked_sub(1).map_or(0, |before| ends[before]);
            Tensor::new(moe.workspace.buffer().slice(4 * first..4 * ends[at])?, dtype, shape)
        };
        let ids = part(0, DType::U32, &[size.choices])?;
        let weights = part(1, DType::F32, &[size.choices])?;
        let order = part(2, DType::U32, &[size.choices])?;
        let offsets = part(3, DType::U32, &[experts + 1])?;
        let gated = part(4, DType::BF16, &[size.choices, inner])?;
        let results = part(5, DType::BF16, &[size.choices, hidden])?;

        let [hidden, experts, inner] = [hidden as u32, experts as u32, inner as u32];
        let router = RouterShape { experts, chosen: moe.top_k, kind: moe.router, warps: ROUTER_WARPS };
        let to = if moe.out.dtype() == DType::F32 { Float::F32 } else { Float::Bf16 };
        let sum = SumShape {
            width: hidden,
            chosen: moe.top_k,
            y: Float::Bf16,
            out: to,
            residual: moe.residual.is_some(),
            inverse: false,
            warps: SUM_WARPS,
        };
        let up = GroupedProblem::new(experts, choices, inner, hidden).gather(moe.top_k);
        let up = up.epilogue(Epilogue { bias: moe.gate_up_bias.is_some(), ..Epilogue::gate(moe.activation) });
        let back = GroupedProblem::new(experts, choices, hidden, inner).scatter();
        let back = back.epilogue(Epilogue { bias: moe.down_bias.is_some(), ..Epilogue::default() });
        let product = |problem| Recipe::Grouped(GroupedProduct { problem, input: DType::BF16, out: DType::BF16 });
        // All kernels are there before the first launch: an error launches nothing.
        let route = self.steps(Recipe::Route(FiniteRouter(router)))?;
        let sort = self.steps(Recipe::Sort(SortShape { experts, first: 0, inverse: false }))?;
        let products = [self.steps(product(up))?, self.steps(product(back))?];
        let sum = self.steps(Recipe::WeightedSum(sum))?;

        let mut args: Vec<Arg<'_>> = vec![rows.into(), Arg::from(moe.logits.buffer())];
        args.extend(moe.correction.map(|correction| Arg::from(correction.buffer())));
        args.extend([&ids, &weights].map(|tensor| Arg::from(tensor.buffer())));
        for step in route.iter() {
            step.kernel.launch(stream, rows.div_ceil(ROUTER_WARPS), &args)?;
        }
        let args = [choices.into(), ids.buffer().into(), offsets.buffer().into(), order.buffer().into()];
        for step in sort.iter() {
            step.kernel.launch(stream, 1, &args)?;
        }
        let operands = [(moe.x, moe.gate_up, moe.gate_up_bias, &gated), (&gated, moe.down, moe.down_bias, &results)];
        for (steps, (a, b, bias, c)) in products.iter().zip(operands) {
            let tensor = |of: GroupedBuffer| match of {
                GroupedBuffer::A => Some(a),
                GroupedBuffer::B => Some(b),
                GroupedBuffer::Offsets => Some(&offsets),
                GroupedBuffer::Order => Some(&order),
                GroupedBuffer::C => Some(c),
                GroupedBuffer::Bias => bias,
                GroupedBuffer::AScale | GroupedBuffer::BScale | GroupedBuffer::Residual => None,
            };
            for step in steps.iter() {
                step.launch_grouped(stream, tensor)?;
            }
        }
        let arrays = [Some(&results), Some(&weights), moe.residual, Some(moe.out)];
        let args: Vec<Arg<'_>> = arrays.into_iter().flatten().map(|tensor| Arg::from(tensor.buffer())).collect();
        for step in sum.iter() {
            step.kernel.launch(stream, rows, &args)?;
        }
        Ok(())
    }

    /// Checks the choice of experts.
    fn check_router(&self, moe: &Moe<'_>, experts: usize) -> Result<(), OpError> {
        let refused = |name, found: String, expected| Err(OpError::Number { op: OP, name, found, expected });
        if !(1..=MOST_TOP_K.min(experts as u32)).contains(&moe.top_k) {
            return refused("top_k", moe.top_k.to_string(), "it must be 1 to 32 and at most the experts");
        }
        let correction = moe.correction.map(|correction| Operand::new(OP, "correction", correction));
        let RouterKind::Grouped(router) = moe.router else {
            let refusal = |correction: Operand<'_>| Err(correction.shape("only a router of groups is corrected"));
            return correction.map_or(Ok(()), refusal);
        };
        if router.corrected != correction.is_some() {
            let found = if router.corrected { "absent" } else { "given" };
            return refused("correction", found.into(), "it goes with a router that is corrected");
        }
        if let Some(correction) = correction {
            correction.has(&[experts], "it must have a number for each expert,")?;
            correction.is(&[DType::F32], "float32")?;
            correction.contiguous()?;
        }
        let groups = router.groups;
        let of_group = experts as u32 / groups.max(1);
        let divides = (1..=MOST_GROUPS).contains(&groups) && groups.is_power_of_two();
        if !divides || !(experts as u32).is_multiple_of(groups) || (groups > 1 && of_group < 2) {
            let expected = "it must be a power of two up to 32 that divides the experts into groups of 2 or more";
            return refused("expert_groups", groups.to_string(), expected);
        }
        if !(1..=groups).contains(&router.kept) || moe.top_k > router.kept * of_group {
            let expected = "it must be 1 to the number of groups, and keep the experts of a row";
            return refused("kept_groups", router.kept.to_string(), expected);
        }
        if !router.scale.is_finite() {
            return refused("scale", router.scale.to_string(), "it must be finite");
        }
        Ok(())
    }
}
