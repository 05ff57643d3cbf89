//! Kernels on a caller's tensors: a call checks types and shapes, makes the kernel the first time,
//! and queues its launch on the caller's stream.
//!
//! Outputs and workspaces belong to the caller: an op allocates nothing, waits for nothing, and
//! copies nothing, so that its launches can be captured in a CUDA graph once its kernel is there.
//! What an op does not support is an [`OpError`] that names the operand; there is no slower way
//! taken in silence. Numbers in device memory, such as lengths and tables of pages, are not read
//! before the launch: those that lead outside of an operand are not found on a GPU.
//!
//! | op | computes |
//! |---|---|
//! | [`Ops::rms_norm`] | the RMS norm of rows, or of rows to which others are added first |
//! | [`Ops::gated`] | `activation(gate) · up` |
//! | [`Ops::embedding`] | rows of a table |
//! | [`Ops::rope`] | heads, rotated for their positions |
//! | [`Ops::linear`] | `x·wᵀ + bias + residual` of a few rows, with a packed weight |
//! | [`Ops::gemm`] | `activation(A·Bᵀ + bias) + residual` |
//! | [`Ops::grouped_gemm`] | such a product for each group of rows |
//! | [`Ops::moe`] | from a router's logits to the weighted sum of the chosen experts |
//! | [`Ops::attention_decode`] | one query per sequence against its cached keys and values |
//! | [`Ops::attention_prefill`] | the newest queries of sequences, against cached or ragged keys and values |
//! | [`Ops::merge_attention`] | the attention over two sets of tokens, of the results of both |
//! | [`Ops::argmax`], [`Ops::sample`] | the next tokens of rows of logits |
//!
//! ```
//! use tilewright::codegen::device;
//! use tilewright::layout::DType;
//! use tilewright::ops::{Gated, Ops, Tensor};
//!
//! let device = device::open("sim")?; // "cuda:0" for a GPU
//! let stream = device.stream()?;
//! let tensor = |numbers: &[f32]| -> Result<Tensor, Box<dyn std::error::Error>> {
//!     Ok(Tensor::new(stream.buffer(numbers)?.cast()?, DType::F32, &[2, 4])?)
//! };
//! let [gate, up, out] = [tensor(&[1.0; 8])?, tensor(&[2.0; 8])?, tensor(&[0.0; 8])?];
//! let ops = Ops::new(&device)?;
//! ops.gated(&stream, &Gated { activation: Default::default(), gate: &gate, up: &up, out: &out })?;
//! let numbers: Vec<f32> = stream.read(&out.buffer().cast()?)?;
//! assert!(numbers.iter().all(|y| (y - 1.462_117).abs() < 1e-5)); // 2 · silu(1)
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attention;
mod cache;
mod error;
mod gemm;
mod grouped;
mod linear;
mod merge;
mod moe;
mod packed;
pub(crate) mod planned;
mod prefill;
mod recipe;
mod rows;
mod tensor;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tilewright_codegen::device::{Arg, Device, Grid, Kernel, Stream};
use tilewright_codegen::ir::{self, Arch};
use tilewright_codegen::verify::verify;

pub use attention::AttentionDecode;
pub use cache::{KvCache, Scores};
pub use error::OpError;
pub use gemm::Gemm;
pub use grouped::GroupedGemm;
pub use linear::Linear;
pub use merge::MergeAttention;
pub use moe::Moe;
pub use packed::{WeightForm, pack_codes, pack_linear};
pub use prefill::{AttentionPrefill, PrefillKv};
use recipe::{Recipe, Step};
pub use rows::{Embedding, Gated, RmsNorm, Rope};
pub use tensor::{Tensor, spanned};

/// The ops of a device, with the kernels that they have made so far. Shared by threads.
#[derive(Debug)]
pub struct Ops {
    device: Device,
    arch: Arch,
    made: Mutex<HashMap<Recipe, Arc<[Step]>>>,
    /// The kernels of these, as recorded: products of other sizes often have the same.
    loaded: Mutex<Vec<(ir::Kernel, Kernel)>>,
}

impl Ops {
    /// The ops of a device.
    ///
    /// # Errors
    /// [`OpError::Device`] where kernels do not run on it.
    pub fn new(device: &Device) -> Result<Ops, OpError> {
        let properties = device.properties();
        let arch = properties.arch().ok_or_else(|| OpError::Device { name: properties.name.clone() })?;
        Ok(Ops { device: device.clone(), arch, made: Mutex::default(), loaded: Mutex::default() })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Queues the launch of a recipe's one kernel.
    fn launch(&self, stream: &Stream, recipe: Recipe, grid: impl Into<Grid>, args: &[Arg<'_>]) -> Result<(), OpError> {
        let grid = grid.into();
        Ok(self.steps(recipe)?.iter().try_for_each(|step| step.kernel.launch(stream, grid, args))?)
    }

    /// The launches of a recipe: made and loaded the first time.
    fn steps(&self, recipe: Recipe) -> Result<Arc<[Step]>, OpError> {
        if let Some(steps) = self.made.lock().unwrap_or_else(PoisonError::into_inner).get(&recipe) {
            return Ok(Arc::clone(steps));
        }
        // Two threads may make the same kernel; the second one's is dropped.
        let planned = recipe.plan(self.arch, self.device.properties().sms)?;
        let steps = planned.into_iter().map(|launch| {
            Ok(Step { kernel: self.load(launch.kernel)?, grid: launch.grid, arguments: launch.arguments })
        });
        let steps: Arc<[Step]> = steps.collect::<Result<Vec<Step>, OpError>>()?.into();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(made.entry(recipe).or_insert(steps)))
    }

    /// The kernel on the device, loaded once.
    fn load(&self, recorded: ir::Kernel) -> Result<Kernel, OpError> {
        let known = |loaded: &Vec<(ir::Kernel, Kernel)>| {
            loaded.iter().find(|(other, _)| *other == recorded).map(|(_, kernel)| kernel.clone())
        };
        if let Some(kernel) = known(&self.loaded.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(kernel);
        }
        let kernel = self.device.load(&verify(recorded.clone())?)?;
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).push((recorded, kernel.clone()));
        Ok(kernel)
    }
}
