//! The choice as kernels: a block for each row.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_codegen::build::{Builder, Global, Ptr, Scalar, Val, block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use super::key::{chosen, largest};
use super::{Logits, SampleScratch, SamplingParams, argmax, sample};
use crate::naive::{Sampling, SamplingError};
use crate::pdl::trigger_and_wait;
use crate::warps::ConsumerWarps;

/// Keys of a lane whose loads are in flight together.
const TOGETHER: u32 = 8;

/// The sampling request of a row, as the device reads it. All zeros is a greedy choice.
///
/// ```
/// use tilewright_kernels::{naive::Sampling, sample::Request};
/// let sampling = Sampling::new(0.8, Some(40), 0.95, 7)?;
/// let request = Request::new(&sampling, 3, 1);
/// assert_eq!((request.top_k, request.step, request.row), (40, 3, 1));
/// assert_eq!(request.sampling()?, sampling);
/// # Ok::<(), tilewright_kernels::naive::SamplingError>(())
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Request {
    /// Key of the random numbers.
    pub seed: u64,
    /// The step.
    pub step: u64,
    /// 0: the likeliest token.
    pub temperature: f32,
    /// The share of the weights that is enough.
    pub top_p: f32,
    /// Tokens that may be chosen.
    pub top_k: u32,
    /// The row, for the random numbers.
    pub row: u32,
}

impl Request {
    /// The request for a step of a row's sampling.
    pub fn new(sampling: &Sampling, step: u64, row: u32) -> Request {
        let top_k = sampling.top_k().map_or(u32::MAX, |k| u32::try_from(k).unwrap_or(u32::MAX));
        let temperature = sampling.temperature();
        let top_p = sampling.top_p();
        Request { seed: sampling.seed(), step, temperature, top_p, top_k, row }
    }

    /// The sampling that is asked for.
    ///
    /// # Errors
    /// If a number of a choice at random is outside of its range.
    pub fn sampling(&self) -> Result<Sampling, SamplingError> {
        if self.temperature == 0.0 {
            return Ok(Sampling::GREEDY);
        }
        let top_k = Some(self.top_k).filter(|&k| k != u32::MAX).map(|k| k as usize);
        Sampling::new(self.temperature, top_k, self.top_p, self.seed)
    }

    /// The choice that a request in memory asks for.
    pub fn load(at: Ptr<'_, Global, u8>) -> SamplingParams<'_> {
        SamplingParams {
            temperature: field(at, offset_of!(Request, temperature)),
            top_k: field(at, offset_of!(Request, top_k)),
            top_p: field(at, offset_of!(Request, top_p)),
            seed: field(at, offset_of!(Request, seed)),
            step: field(at, offset_of!(Request, step)),
            row: field(at, offset_of!(Request, row)),
        }
    }
}

/// A field of a request.
fn field<'k, T: Scalar>(at: Ptr<'k, Global, u8>, offset: usize) -> Val<'k, T> {
    at.at(offset).cast::<T>().load()
}

/// The kernel `sample`: `tokens[r]` (u32) by `logits[r, ..count]`, f32 in rows of `stride`, and
/// `requests[r]`, for the row r of block r; [`NO_TOKEN`](super::NO_TOKEN) where the largest logit is
/// infinite. Parameters: `count` (at most 2¹⁸), `stride`, `logits`, `requests`, `tokens`. `warps` is
/// 1 to 32.
pub fn sample_rows(arch: Arch, warps: u32) -> Kernel {
    record("sample", arch, block(warps * 32), |k| {
        let consumers = ConsumerWarps::new(k, warps);
        let scratch = SampleScratch::new(k.shared("scratch", SampleScratch::BYTES / 8));
        let logits = row(k);
        let request = k.global::<u8>("requests").at(k.block_id() * size_of::<Request>() as u32);
        let tokens = k.global::<u32>("tokens");
        let best = argmax(consumers, scratch, logits);
        let token = sample(consumers, scratch, logits, best, Request::load(request));
        k.when(k.tid().eq(0), || tokens.at(k.block_id()).store(token));
    })
}

/// The kernel `argmax`: `tokens[r]` (u32) is the largest of `logits[r, ..count]`, f32 in rows of
/// `stride`, for the row r of block r; [`NO_TOKEN`](super::NO_TOKEN) where that is infinite.
/// Parameters: `count`, `stride`, `logits`, `tokens`. `warps` is 1 to 32.
pub fn argmax_rows(arch: Arch, warps: u32) -> Kernel {
    record("argmax", arch, block(warps * 32), |k| {
        let consumers = ConsumerWarps::new(k, warps);
        let scratch = SampleScratch::new(k.shared("scratch", SampleScratch::ARGMAX_BYTES / 8));
        let logits = row(k);
        let tokens = k.global::<u32>("tokens");
        let best = argmax(consumers, scratch, logits);
        k.when(k.tid().eq(0), || tokens.at(k.block_id()).store(best));
    })
}

/// The kernel `best`: `tokens[r]` (u32) is the number encoded in the largest of `keys[r, ..count]`,
/// u64, which a product left of its logits
/// ([`GemvEpilogue::best`](crate::gemv::GemvEpilogue)), for the row r of block r, a warp;
/// [`NO_TOKEN`](super::NO_TOKEN) where the encoded logit is infinite. Parameters: `count`, at least
/// 1, `keys`, `tokens`.
pub fn best_rows(arch: Arch) -> Kernel {
    record("best", arch, block(32), |k| {
        let count = k.param::<u32>("count");
        trigger_and_wait(k);
        let keys = k.global::<u64>("keys").at(k.block_id().mul_wide(count));
        let tokens = k.global::<u32>("tokens");
        let best = k.var(0u64);
        k.for_step(0, count, 32 * TOGETHER, |first: Val<'_, u32>| {
            // Behind the last the last again.
            let key = |at: u32| keys.at((first + k.lane() + 32 * at).min(count - 1)).load();
            let all: Vec<Val<'_, u64>> = (0..TOGETHER).map(key).collect();
            best.set(all.into_iter().fold(best.get(), |best, key| best.max(key)));
        });
        let token = chosen(largest(best.get(), 32));
        k.when(k.lane().eq(0), || tokens.at(k.block_id()).store(token));
    })
}

/// The logits of the block's row.
pub(super) fn row(k: &Builder) -> Logits<'_> {
    let count = k.param::<u32>("count");
    let stride = k.param::<u32>("stride");
    trigger_and_wait(k);
    Logits { at: k.global::<f32>("logits").at(k.block_id().mul_wide(stride)), count }
}
