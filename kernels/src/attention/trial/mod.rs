//! Trials of the attention kernels: problems at random, the oracle in f64, how far a result may be
//! off.
//!
//! | file | what it holds |
//! |---|---|
//! | `cache` | keys and values in memory: in pages or not, NaN wherever no token lies |
//! | `bound` | the definition in f64, and the bound of the error with its derivation |
//! | `custom` | score functions of one's own |
//! | `decode`, `prefill`, `merge` | a problem, and the launch that computes it |
//!
//! [`KvTransport`] lists every [`KvFamily`](crate::kv::KvFamily) that the kernels take.

mod bound;
mod cache;
mod custom;
mod decode;
mod draws;
mod merge;
mod prefill;

use tilewright_codegen::ir::Needs;
use tilewright_codegen::trial::{Draw, Shipped};

use super::decode::{Decode, Layout};
use super::prefill::{Kv, Prefill, QueryLayout};
use super::{MergeRows, ScoreVariant};
use crate::kv::{CpAsync, Tma};
use crate::shipped_entry::ShippedEntry;

pub use custom::CustomCase;
pub use decode::DecodeCase;
pub use draws::KvTransport;
pub use prefill::{PrefillCase, PrefillKernel};

/// The shapes with which the kernels are shipped.
const DECODE: Decode = Decode {
    depth: 128,
    value_depth: None,
    group: 4,
    layout: Layout::Dense,
    tile: 16,
    scores: ScoreVariant::NONE,
    lse: false,
};
const PREFILL: Prefill = Prefill {
    depth: 128,
    value_depth: None,
    group: 4,
    causal: true,
    queries: QueryLayout::Ragged,
    kv: Kv::Ragged,
    scores: ScoreVariant::NONE,
    lse: false,
};

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let kernels = [
        ShippedEntry {
            name: "decode_attention",
            needs: Needs::Sm80,
            record: |arch| DECODE.record::<CpAsync<2>>(arch),
            draw: |arch, seed| drawn(seed, |draws| DecodeCase::draw(&KvTransport::POINTERS, &[16], draws)).trial(arch),
        },
        ShippedEntry {
            name: "decode_attention_maps",
            needs: Needs::Sm90,
            record: |arch| DECODE.record::<Tma<2>>(arch),
            draw: |arch, seed| {
                // Two blocks' worth of memory, which not every architecture has.
                let tiles: &[u32] = if Needs::Sm90a.met_by(arch) { &[16, 32] } else { &[16] };
                drawn(seed, |draws| DecodeCase::draw(&KvTransport::MAPS, tiles, draws)).trial(arch)
            },
        },
        ShippedEntry {
            name: "prefill_attention",
            needs: Needs::Sm80,
            record: |arch| PREFILL.record::<CpAsync<2>>(arch),
            draw: |arch, seed| {
                drawn(seed, |draws| PrefillCase::draw(&KvTransport::POINTERS.map(PrefillKernel::Warps), draws))
                    .trial(arch)
            },
        },
        ShippedEntry {
            name: "prefill_attention_maps",
            needs: Needs::Sm90,
            record: |arch| PREFILL.record::<Tma<2>>(arch),
            draw: |arch, seed| {
                drawn(seed, |draws| PrefillCase::draw(&KvTransport::MAPS.map(PrefillKernel::Warps), draws)).trial(arch)
            },
        },
        ShippedEntry {
            name: "prefill_attention_wgmma",
            needs: Needs::Sm90a,
            record: |_| PREFILL.record_hopper(),
            draw: |arch, seed| drawn(seed, |draws| PrefillCase::draw(&[PrefillKernel::Hopper], draws)).trial(arch),
        },
        ShippedEntry {
            name: "merge_attention",
            needs: Needs::Sm80,
            record: |arch| MergeRows { depth: 128, lse: true }.record(arch),
            draw: merge::draw,
        },
    ];
    kernels.into_iter().map(|kernel| Box::new(kernel) as Box<dyn Shipped>).collect()
}

/// Draws a case from two random sources of a seed: the first determines the kernel, the second
/// everything else. 4096 seeds share 64 kernels, since a device compiles one more slowly than it
/// runs many launches.
fn drawn<T>(seed: u64, case: impl FnOnce([&mut Draw; 2]) -> T) -> T {
    const SEEDS: u64 = 4096;
    const KERNELS: u64 = 64;
    let mut made = Draw::new(seed / SEEDS * KERNELS + seed % KERNELS);
    case([&mut made, &mut Draw::new(seed)])
}
