//! The ops as a CPU runs them near the speed of its memory: bf16, f16 and f32 weights against f32
//! activations, no f32 copy of the weights.
//!
//! **One order of summation.** Every dot product is summed in 16 lanes (element `i` into lane
//! `i mod 16`, by rising `i`), the lanes by halves. Multiplication and addition round separately.
//! So the result of a row depends on nothing but that row: not on the batch, the threads, the tile
//! or the instruction set.
//!
//! **Error.** With `n` terms and `c = (⌈n/16⌉ + 5)·2⁻²⁴`,
//! `|computed − exact| ≤ c / (1 − c) · Σ|x·w|` (Higham, *Accuracy and Stability of Numerical
//! Algorithms*, section 4.2: `⌈n/16⌉ + 5` roundings on the longest way from a term to the sum); the
//! tests hold every form to it.
//!
//! `element` says how weights become f32, `block` and `avx2` compute register blocks, `isa` picks
//! between them; `quant` has the product over packed codes, with an error bound of its own.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod block;
mod element;
mod isa;
mod norm;
mod quant;

pub use element::{ActivationElement, ActivationFormat};
pub use isa::linear;
pub use norm::rms_norm;
pub use quant::{linear_quantized, row_quantized};
