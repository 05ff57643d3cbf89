//! Matrix times few vectors, `y[m, n] = Σ_k x[m, k] · w[n, k]` for batches m of 1 to 64, at the speed of the memory.
//!
//! | file | what it holds |
//! |---|---|
//! | `tiles` | every layout and size: [`Plan`] |
//! | `relay` | the weights in the order in which they are read, and back: [`relay`], [`unrelay`] |
//! | `device` | the kernel on a block: [`produce`] and [`consume`] |
//! | `launch` | the standalone kernel: [`gemv`] |
//! | `trial` | shapes with inputs and what must come out: [`Case`] |
//!
//! The weights are the n8 operand of `mma.m16n8k16`, the activations the m16 operand, so a batch of 16 costs the bytes
//! of a batch of 1. Weights were re-laid once: eight rows make a tile, a tile is cut along k into stages of 16 KiB that
//! one bulk copy brings, and within a stage each lane's 16 bytes lie where no bank is met twice.
//!
//! One warp fetches, the others multiply: they share a stage by its k, and add their sums once a tile. The activations
//! of a pass lie in shared memory; where all of k does not fit there, the block goes over its tiles several times and
//! keeps their sums.
//!
//! # Accuracy
//! Products of `bf16` are exact in f32. A sum of K terms adds rounding errors of at most `γ Σ|x·w|` with
//! `γ = K·u/(1 − K·u)`, u = 2⁻²³ (Higham, Accuracy and Stability, 3.1; the unit is doubled as tensor cores may truncate);
//! a `bf16` result rounds once more, by 2⁻⁸ of its value.

mod device;
mod launch;
mod relay;
mod tiles;
mod trial;

pub use device::{Room, Task, consume, produce};
pub use launch::{Epilogue, gemv};
pub use relay::{relay, unrelay};
pub use tiles::{Octets, Plan, PlanError, ROWS, Tuning, Unit, Weights};
pub use trial::{Case, ShippedGemv};
