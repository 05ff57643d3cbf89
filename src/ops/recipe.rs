//! What a kernel of an op is made for, and its launches.

use half::{bf16, f16};
use tilewright_codegen::device::{Arg, DeviceError, Kernel, Stream};
use tilewright_codegen::ir::{self, Arch, Limit};
use tilewright_codegen::trial::TrialElement;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::attention::MergeRows;
use tilewright_kernels::attention::decode::Decode;
use tilewright_kernels::attention::prefill::Prefill;
use tilewright_kernels::elementwise::{Types, gated_all};
use tilewright_kernels::embed::{EmbedShape, TableOrder, embed_rows};
use tilewright_kernels::gemm::{
    Argument, GemmBuffer, GemmDevice, GemmOutput, GemmProblem, GemmRefusal, HopperChoice, PlannedLaunch, WarpChoice,
    choose, choose_warps, hopper_steps, plan, warp_step,
};
use tilewright_kernels::kv::CpAsync;
use tilewright_kernels::mma::InputType;
use tilewright_kernels::norm::{NormKind, NormShape, add_rms_norm_rows, rms_norm_rows};
use tilewright_kernels::rope::{RopeShape, rope_rows};
use tilewright_kernels::sample::{argmax_rows, sample_rows};
use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use super::OpError;
use super::packed::PackedProduct;
use super::planned::with_arguments;

/// Warps of a block that reads logits.
const LOGIT_WARPS: u32 = 32;
/// Warps of a block that rotates heads or copies rows.
const ROW_WARPS: u32 = 4;
/// Warps at most that normalise a row.
const MOST_NORM_WARPS: u32 = 16;
/// Elements of a row for each warp that normalises it.
const NORM_WARP_ELEMENTS: u32 = 256;
/// Tiles of keys, and of values, on their way where a prefill copies them by `cp.async`.
pub(super) const PREFILL_STAGES: u32 = 2;

/// All that a kernel is specialised for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Recipe {
    Norm { width: u32, stride: u32, x: Float, added: Option<Float>, weight: Float, out: Float, eps: u32 },
    Gated { activation: Activation, types: [Float; 3], vector: u32 },
    Embedding { width: u32, ids: u32, out: Float },
    Rope { heads: u32, dim: u32, x: Float, out: Float },
    Argmax,
    Sample,
    Linear(PackedProduct),
    Gemm(Box<Product>),
    Decode(Decode),
    Prefill(Prefill),
    MergeAttention(MergeRows),
}

/// A matrix product: what it multiplies, and what it may use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Product {
    pub problem: GemmProblem,
    /// Type of A and B.
    pub input: DType,
    /// Type of the result.
    pub out: DType,
    /// Whether there is room for partial sums.
    pub splits: bool,
    /// Bytes that all addresses are multiples of.
    pub aligned: u32,
}

/// A launch, loaded.
#[derive(Debug)]
pub(super) struct Step {
    pub kernel: Kernel,
    pub grid: u32,
    pub arguments: Vec<Argument>,
}

impl Recipe {
    /// The launches, one after the other. Where there is one kernel, its caller knows grid and
    /// arguments.
    pub fn plan(&self, arch: Arch, sms: u32) -> Result<Vec<PlannedLaunch>, OpError> {
        let kernel = match self {
            &Recipe::Norm { width, stride, x, added, weight, out, eps } => {
                let warps = width.div_ceil(NORM_WARP_ELEMENTS).clamp(1, MOST_NORM_WARPS);
                let eps = f32::from_bits(eps);
                let shape = NormShape { width, stride, x, weight, out, eps, kind: NormKind::Rms, warps };
                match added {
                    Some(added) => add_rms_norm_rows(arch, shape, added),
                    None => rms_norm_rows(arch, shape),
                }
            }
            &Recipe::Gated { activation, types: [a, b, out], vector } => {
                gated_all(arch, activation, Types { a, b, out, vector })
            }
            &Recipe::Embedding { width, ids, out } => {
                let table = TableOrder::Rows(width);
                embed_rows(arch, EmbedShape { table, out, warps: ROW_WARPS, scale: 1.0, shard: Some(ids), norm: None })
            }
            &Recipe::Rope { heads, dim, x, out } => {
                let shape =
                    RopeShape { heads, dim, norm: None, together: false, pages: None, x, out, warps: ROW_WARPS };
                rope_rows(arch, shape)
            }
            Recipe::Argmax => argmax_rows(arch, LOGIT_WARPS),
            Recipe::Sample => sample_rows(arch, LOGIT_WARPS),
            Recipe::Linear(product) => return Ok(vec![product.plan(arch, sms)?]),
            Recipe::Gemm(product) => return Ok(product.plan(arch, sms)?),
            &Recipe::Decode(decode) => decode_kernel(arch, decode),
            Recipe::Prefill(prefill) if arch == Arch::Sm90a => prefill.record_hopper(),
            Recipe::Prefill(prefill) => prefill.record::<CpAsync<PREFILL_STAGES>>(arch),
            Recipe::MergeAttention(merge) => merge.record(arch),
        };
        Ok(vec![single(kernel)])
    }
}

/// Decode attention, with tiles of 16 tokens where those of the recipe have no room.
fn decode_kernel(arch: Arch, decode: Decode) -> ir::Kernel {
    let kernel = decode.record::<CpAsync<3>>(arch);
    match Limit::SharedPerBlock.allows(arch, kernel.shared_bytes()) {
        true => kernel,
        false => Decode { tile: 16, ..decode }.record::<CpAsync<3>>(arch),
    }
}

fn single(kernel: ir::Kernel) -> PlannedLaunch {
    PlannedLaunch { kernel, grid: 1, arguments: Vec::new(), custom: false }
}

impl Product {
    fn plan(&self, arch: Arch, sms: u32) -> Result<Vec<PlannedLaunch>, GemmRefusal> {
        match (self.input, self.out) {
            (DType::F16, DType::F32) => self.plan_of::<f16, f32>(arch, sms),
            (DType::F16, _) => self.plan_of::<f16, f16>(arch, sms),
            (_, DType::F32) => self.plan_of::<bf16, f32>(arch, sms),
            _ => self.plan_of::<bf16, bf16>(arch, sms),
        }
    }

    fn plan_of<F, D>(&self, arch: Arch, multiprocessors: u32) -> Result<Vec<PlannedLaunch>, GemmRefusal>
    where
        F: InputType<Stored: TrialElement>,
        D: GemmOutput + TrialElement,
    {
        let Product { problem, aligned, .. } = *self;
        if self.splits {
            return plan::<F, D>(problem, GemmDevice { arch, multiprocessors, aligned });
        }
        let whole = choose::<F>(&problem, multiprocessors);
        let by_maps = (arch == Arch::Sm90a && aligned.is_multiple_of(16))
            .then(|| hopper_steps::<F, D>(problem, HopperChoice { splits: 1, ..whole }, multiprocessors));
        if let Some(Ok(steps)) = by_maps {
            return Ok(steps);
        }
        let (shape, _) = choose_warps::<F>(&problem, multiprocessors);
        let elements = (aligned * 8 / F::BITS as u32).max(1);
        let choice = WarpChoice {
            shape,
            stages: 3,
            group: 8,
            splits: 1,
            arch,
            aligned: [elements; 2],
            two_level: problem.two_level::<F>(),
        };
        Ok(vec![warp_step::<F, D>(problem, choice)?])
    }
}

impl Step {
    /// Queues the launch on the buffers that `tensor` names.
    pub fn launch<'t>(
        &self,
        stream: &Stream,
        tensor: impl Fn(GemmBuffer) -> Option<&'t super::Tensor>,
    ) -> Result<(), DeviceError> {
        // A launch names the buffers of its op's operands alone.
        let absent = || DeviceError::Foreign { what: "operand", device: stream.device().properties().name.clone() };
        with_arguments(
            &self.arguments,
            |of, shape| stream.device().tensor_map(tensor(of).ok_or_else(absent)?.buffer(), shape),
            |of| tensor(of).map_or(Arg::Null, |tensor| tensor.buffer().into()),
            |args| self.kernel.launch(stream, self.grid, args),
        )
    }
}
