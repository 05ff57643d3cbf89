//! The lowering options of a place: pages, splits, and the storage of keys and values.

use tilewright_layout::DType;
use tilewright_megakernel::lower::LowerOptions;

use super::place::Place;

/// Tokens of one page.
pub(super) const PAGE_TOKENS: usize = 16;

/// Tokens of one page on a device, which reads them in larger runs.
pub(super) const DEVICE_PAGE_TOKENS: usize = 64;

/// Splits of attention on the host: fixed, since sums of another split round otherwise. With it,
/// logits are the same bit for bit whatever the batch, the chunks of a prompt and the number of
/// cores.
pub(super) const SPLITS: usize = 4;

/// The lowering options of a place's programs, for sequences of `context` tokens.
pub(super) fn lowering_options(place: &Place, context: usize, sampling: bool) -> LowerOptions {
    let base = LowerOptions::for_context(context);
    match place {
        Place::Host { .. } => LowerOptions { page_tokens: PAGE_TOKENS, splits: Some(SPLITS), ..base },
        Place::Gpu(gpu) => {
            let devices = gpu.devices;
            LowerOptions { page_tokens: DEVICE_PAGE_TOKENS, kv: DType::BF16, sampling, devices, ..base }
        }
    }
}
