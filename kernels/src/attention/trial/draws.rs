//! Random choices that the trials of decode and prefill share.

use half::bf16;
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{Draw, Trial};

use crate::attention::decode::Decode;
use crate::attention::prefill::Prefill;
use crate::attention::{ScoreModifier, ScoreVariant, WithScores};
use crate::kv::{CpAsync, KvFamily, Staged, Tma};

/// The transport of keys and values, as a value.
#[derive(Clone, Copy, Debug)]
pub struct KvTransport {
    /// Whether they are given as tensor maps.
    pub tensor_map: bool,
    pub(super) decode: fn(&WithScores<'_, Decode>, Arch) -> Kernel,
    /// Records the kernel with persistent blocks, if the family supports it.
    pub(super) staying: Option<fn(&WithScores<'_, Decode>, Arch) -> Kernel>,
    pub(super) prefill: fn(&WithScores<'_, Prefill>, Arch) -> Kernel,
}

impl KvTransport {
    /// The transport of a family.
    pub const fn of<F: KvFamily>() -> KvTransport {
        KvTransport {
            tensor_map: F::TENSOR_MAP,
            decode: |decode, arch| decode.record::<F>(arch),
            staying: None,
            prefill: |prefill, arch| prefill.record::<F>(arch),
        }
    }

    /// The transport of a family whose decode kernel may have persistent blocks.
    pub const fn staying<F: KvFamily>() -> KvTransport {
        KvTransport { staying: Some(|decode, arch| decode.record_staying::<F>(arch)), ..KvTransport::of::<F>() }
    }

    /// Whether the decode kernel may have persistent blocks.
    pub const fn can_stay(&self) -> bool {
        self.staying.is_some()
    }

    /// The transports that take pointers.
    pub const POINTERS: [KvTransport; 6] = [
        KvTransport::of::<CpAsync<2>>(),
        KvTransport::staying::<CpAsync<3>>(),
        KvTransport::of::<Staged<1, true>>(),
        KvTransport::of::<Staged<2, true>>(),
        KvTransport::of::<Staged<1, false>>(),
        KvTransport::of::<Staged<2, false>>(),
    ];

    /// The transports that take tensor maps.
    pub const MAPS: [KvTransport; 2] = [KvTransport::staying::<Tma<2>>(), KvTransport::staying::<Tma<3>>()];
}

/// Queries above 0, whose scores against keys of −∞ are all −∞.
pub(super) fn positive(queries: &mut [bf16]) {
    queries.iter_mut().for_each(|q| *q = bf16::from_f32(q.to_f32().abs() + 0.5));
}

/// Draws one of these.
pub(super) fn one_of<T: Copy>(draw: &mut Draw, all: &[T]) -> T {
    all[draw.between(0..=all.len() as u32 - 1) as usize]
}

/// Tokens of a page: any number, or for tensor maps, whose boxes are whole groups of eight rows, a
/// multiple of eight.
pub(super) fn page_tokens(draw: &mut Draw, tensor_map: bool) -> u32 {
    if tensor_map { 8 * one_of(draw, &[1, 2, 3, 4, 8, 11, 32]) } else { one_of(draw, &[1, 2, 5, 7, 16, 24, 64, 100]) }
}

/// Modifiers that a kernel is recorded with; none in half of the cases.
pub(super) fn variant(made: &mut Draw) -> ScoreVariant {
    let any = made.between(0..=1) == 1;
    let [soft_cap, window, sinks] = [0, 1, 2].map(|_| made.between(0..=1) == 1);
    if any { ScoreVariant { soft_cap, window, sinks } } else { ScoreVariant::NONE }
}

/// Values for the modifiers of a kernel: caps below most scores, among them, and above all; windows
/// of a token, within a tile, of whole tiles, and any.
pub(super) fn modifier(draw: &mut Draw, scores: ScoreVariant) -> ScoreModifier {
    let soft_cap = one_of(draw, &[0.25, 1.0, 30.0]);
    let windows = [1, draw.between(2..=40), 64 * draw.between(1..=3), draw.between(1..=300)];
    let window = one_of(draw, &windows);
    ScoreModifier { soft_cap: scores.soft_cap.then_some(soft_cap), window: scores.window.then_some(window) }
}

/// A sink of each head, where the kernel takes them: below, among and above the scores.
pub(super) fn sinks(draw: &mut Draw, scores: ScoreVariant, heads: u32) -> Option<Vec<f32>> {
    scores.sinks.then(|| (0..heads).map(|_| one_of(draw, &[f32::NEG_INFINITY, -3.0, 0.0, 1.5, 40.0])).collect())
}

/// Passes the scale, the values of the modifiers and the sinks, in the order of the parameters.
pub(super) fn scored(trial: Trial, scale: f64, modifier: ScoreModifier, sinks: Option<&[f32]>) -> Trial {
    let trial = trial.pass((scale * std::f64::consts::LOG2_E) as f32);
    let trial = modifier.soft_cap.into_iter().fold(trial, Trial::pass);
    let mut trial = modifier.window.into_iter().fold(trial, Trial::pass);
    match sinks {
        None => trial,
        Some(sinks) => {
            let sinks = trial.input("sinks", sinks);
            trial.pass(sinks)
        }
    }
}
