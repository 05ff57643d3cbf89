//! Trials of the attention kernels: problems at random, the oracle in f64, how far a result may be
//! off.
//!
//! | file | what it holds |
//! |---|---|
//! | `cache` | keys and values in memory: in pages or not, NaN wherever no token lies |
//! | `bound` | the definition in f64, and the bound of the error with its derivation |
//! | `decode`, `prefill` | a problem, and the launch that computes it |
//!
//! [`KvTransport`] lists every [`KvFamily`] that the kernels take.

mod bound;
mod cache;
mod decode;
mod prefill;

pub use decode::DecodeCase;
pub use prefill::{PrefillCase, PrefillKernel};

use half::bf16;
use tilewright_codegen::ir::{Arch, Kernel, Needs};
use tilewright_codegen::trial::{Draw, Shipped, Trial};

use super::decode::{Decode, Layout};
use super::prefill::{Kv, Prefill, QueryLayout};
use super::{ScoreModifier, ScoreVariant};
use crate::kv::{CpAsync, KvFamily, Staged, Tma};
use crate::shipped::ShippedEntry;

/// How keys and values travel, as a value.
#[derive(Clone, Copy, Debug)]
pub struct KvTransport {
    /// Whether they are given as tensor maps.
    pub tensor_map: bool,
    decode: fn(&Decode, Arch) -> Kernel,
    /// Where no registers take turns.
    staying: Option<fn(&Decode, Arch) -> Kernel>,
    prefill: fn(&Prefill, Arch) -> Kernel,
}

impl KvTransport {
    /// The transport of a family.
    pub const fn of<F: KvFamily>() -> KvTransport {
        let decode = Decode::record::<F>;
        let prefill = Prefill::record::<F>;
        KvTransport { tensor_map: F::TENSOR_MAP, decode, staying: None, prefill }
    }

    /// The transport of a family whose decode kernel may have persistent blocks.
    pub const fn staying<F: KvFamily>() -> KvTransport {
        KvTransport { staying: Some(Decode::record_staying::<F>), ..KvTransport::of::<F>() }
    }

    /// Whether the decode kernel may have persistent blocks.
    pub const fn can_stay(&self) -> bool {
        self.staying.is_some()
    }

    /// Those that take pointers.
    pub const POINTERS: [KvTransport; 6] = [
        KvTransport::of::<CpAsync<2>>(),
        KvTransport::staying::<CpAsync<3>>(),
        KvTransport::of::<Staged<1, true>>(),
        KvTransport::of::<Staged<2, true>>(),
        KvTransport::of::<Staged<1, false>>(),
        KvTransport::of::<Staged<2, false>>(),
    ];

    /// Those that take tensor maps.
    pub const MAPS: [KvTransport; 2] = [KvTransport::staying::<Tma<2>>(), KvTransport::staying::<Tma<3>>()];
}

/// Queries above 0, whose scores against keys of −∞ are all −∞.
fn positive(queries: &mut [bf16]) {
    queries.iter_mut().for_each(|q| *q = bf16::from_f32(q.to_f32().abs() + 0.5));
}

/// One of these.
fn one_of<T: Copy>(draw: &mut Draw, all: &[T]) -> T {
    all[draw.between(0..=all.len() as u32 - 1) as usize]
}

/// Tokens of a page: any number, or for tensor maps, whose boxes are whole groups of eight rows, a
/// multiple of eight.
fn page_tokens(draw: &mut Draw, tensor_map: bool) -> u32 {
    if tensor_map { 8 * one_of(draw, &[1, 2, 3, 4, 8, 11, 32]) } else { one_of(draw, &[1, 2, 5, 7, 16, 24, 64, 100]) }
}

/// Modifiers that a kernel is recorded with, as often as not none.
fn variant(made: &mut Draw) -> ScoreVariant {
    let any = made.between(0..=1) == 1;
    let [soft_cap, window] = [0, 1].map(|_| made.between(0..=1) == 1);
    if any { ScoreVariant { soft_cap, window } } else { ScoreVariant::NONE }
}

/// Values for the modifiers of a kernel: caps below most scores, among them, and above all; windows
/// of a token, within a tile, of whole tiles, and any.
fn modifier(draw: &mut Draw, scores: ScoreVariant) -> ScoreModifier {
    let soft_cap = one_of(draw, &[0.25, 1.0, 30.0]);
    let windows = [1, draw.between(2..=40), 64 * draw.between(1..=3), draw.between(1..=300)];
    let window = one_of(draw, &windows);
    ScoreModifier { soft_cap: scores.soft_cap.then_some(soft_cap), window: scores.window.then_some(window) }
}

/// Passes the scale and the values of the modifiers, in the order of the parameters.
fn scored(trial: Trial, scale: f64, modifier: ScoreModifier) -> Trial {
    let trial = trial.pass((scale * std::f64::consts::LOG2_E) as f32);
    let trial = modifier.soft_cap.into_iter().fold(trial, Trial::pass);
    modifier.window.into_iter().fold(trial, Trial::pass)
}

/// What the kernels are shown with.
const DECODE: Decode = Decode { depth: 128, group: 4, layout: Layout::Dense, tile: 16, scores: ScoreVariant::NONE };
const PREFILL: Prefill = Prefill {
    depth: 128,
    group: 4,
    causal: true,
    queries: QueryLayout::Ragged,
    kv: Kv::Ragged,
    scores: ScoreVariant::NONE,
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
    ];
    kernels.into_iter().map(|kernel| Box::new(kernel) as Box<dyn Shipped>).collect()
}

/// Two sources of a seed: what the kernel is made for comes of the first, everything else of the
/// second. Of each 4096 seeds 64 kernels are made, since compiling one takes a device longer than
/// many launches.
fn drawn<T>(seed: u64, case: impl FnOnce([&mut Draw; 2]) -> T) -> T {
    const SEEDS: u64 = 4096;
    const KERNELS: u64 = 64;
    let mut made = Draw::new(seed / SEEDS * KERNELS + seed % KERNELS);
    case([&mut made, &mut Draw::new(seed)])
}
