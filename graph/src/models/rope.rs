//! Rotary frequencies: the rule that `config.json` states, evaluated in single precision.
//!
//! The formulas, and the order in which single-precision operations round, are those of
//! `modeling_rope_utils.py` in the library transformers (5.x), so that the frequencies agree with
//! it within one unit in the last place. The rules come from: rotary embeddings, Su et al.,
//! arXiv:2104.09864; linear scaling, Chen et al., arXiv:2306.15595; yarn, Peng et al.,
//! arXiv:2309.00071; llama3, the reference code of Llama 3.1.

use std::f64::consts::PI;

use serde_json::{Map, Value};

use super::fault::{KeyFault, quote};
use super::keys::{Keys, Otherwise, RealBound};
use crate::graph::RopeTable;

/// The scaling of a model's rotation beyond the positions of its training.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scaling {
    Default,
    Linear { factor: f64 },
    Llama3 { factor: f64, low_freq_factor: f64, high_freq_factor: f64, original: f64 },
    Yarn(Yarn),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Yarn {
    factor: f64,
    original: f64,
    beta_fast: f64,
    beta_slow: f64,
    attention_factor: f64,
    truncate: bool,
}

const RULES: &str = "default, linear, llama3, yarn, or dynamic within the positions of the training";
const FACTOR: RealBound = RealBound::AtLeast(1.0, 1e6);
const POSITIVE: RealBound = RealBound::Above(0.0, 1e6);
const THETA: RealBound = RealBound::Above(1.0, 1e30);

/// Lengths of sequences.
#[derive(Clone, Copy, Debug)]
pub(super) struct Positions {
    /// The positions in the configuration.
    pub trained: usize,
    /// The most positions that sequences may have.
    pub max: usize,
}

/// The default of `rope_theta` if `config.json` does not set it.
const DEFAULT_THETA: f64 = 10_000.0;

/// Takes the rotation's keys, in either spelling, and evaluates the rule for heads of `head_dim`
/// dimensions.
pub(super) fn read(keys: &mut Keys, head_dim: usize, positions: Positions) -> RopeTable {
    let outer_theta = keys.optional_real("rope_theta", THETA);
    let old = keys.take_value("rope_scaling");
    let new = keys.take_value("rope_parameters");
    if let (Some(old), Some(new)) = (&old, &new)
        && old != new
    {
        let first = quote(old);
        let second = quote(new);
        let first_key = "rope_scaling".to_owned();
        let second_key = "rope_parameters".to_owned();
        keys.faults.push(KeyFault::Disagree { first_key, first, second_key, second });
    }
    let (key, prefix, value) = match (new, old) {
        (Some(value), _) => ("rope_parameters", "rope_parameters.", value),
        (None, Some(value)) => ("rope_scaling", "rope_scaling.", value),
        (None, None) => ("rope_parameters", "rope_parameters.", Value::Object(Map::new())),
    };
    let Value::Object(map) = value else {
        keys.wrong_type(key, &value, "an object");
        return RopeTable { frequencies: Vec::new(), scale: 1.0 };
    };
    let mut inner = Keys::new(prefix, map);
    let inner_theta = inner.optional_real("rope_theta", THETA);
    if let (Some(outer), Some(nested)) = (outer_theta, inner_theta)
        && outer != nested
    {
        let first_key = "rope_theta".to_owned();
        let second_key = inner.name("rope_theta");
        let first = format!("{outer:?}");
        let second = format!("{nested:?}");
        inner.faults.push(KeyFault::Disagree { first_key, first, second_key, second });
    }
    let partial = inner.optional_real("partial_rotary_factor", RealBound::AtLeast(0.0, 1.0));
    if let Some(part) = partial.filter(|&part| part != 1.0) {
        inner.unsupported("partial_rotary_factor", &part.into(), "rotates a part of each head only", "1");
    }
    let scaling = read_scaling(&mut inner, positions);
    let faults = inner.finish(&[]);
    let sound = faults.is_empty() && keys.faults.is_empty();
    keys.faults.extend(faults);
    if !sound {
        return RopeTable { frequencies: Vec::new(), scale: 1.0 };
    }
    evaluate(inner_theta.or(outer_theta).unwrap_or(DEFAULT_THETA), head_dim, scaling)
}

/// Takes the rule's name and its parameters.
fn read_scaling(keys: &mut Keys, positions: Positions) -> Scaling {
    let old = keys.take_value("type");
    let new = keys.take_value("rope_type");
    if let (Some(old), Some(new)) = (&old, &new)
        && old != new
    {
        let first_key = keys.name("type");
        let second_key = keys.name("rope_type");
        let first = quote(old);
        let second = quote(new);
        keys.faults.push(KeyFault::Disagree { first_key, first, second_key, second });
    }
    let rule = new.or(old).unwrap_or_else(|| Value::from("default"));
    match rule.as_str() {
        Some("default") => Scaling::Default,
        Some("linear") => Scaling::Linear { factor: keys.real("factor", FACTOR, Otherwise::REQUIRED) },
        Some("llama3") => read_llama3(keys, positions.trained),
        Some("yarn") => Scaling::Yarn(read_yarn(keys, positions.trained)),
        Some("dynamic") => read_dynamic(keys, &rule, positions),
        _ => {
            keys.unsupported("rope_type", &rule, "scales the rotation by another rule", RULES);
            Scaling::Default
        }
    }
}

/// The length of the first training: the rotation's own key, or the model's longest sequence.
fn read_original(keys: &mut Keys, max_positions: usize) -> f64 {
    let original: usize = keys.integer(
        "original_max_position_embeddings",
        1..=i32::MAX.unsigned_abs(),
        Otherwise { absent: Some(max_positions), null: None },
    );
    original as f64
}

/// The rule `dynamic` changes frequencies once a text is longer than the training's positions; up
/// to there it is `default`.
fn read_dynamic(keys: &mut Keys, rule: &Value, positions: Positions) -> Scaling {
    keys.real("factor", FACTOR, Otherwise { absent: Some(1.0), null: Some(1.0) });
    let original = read_original(keys, positions.trained);
    if keys.faults.is_empty() && original < positions.max as f64 {
        let meaning = format!(
            "changes the rotation of texts longer than {original} positions, and the model has {} (--max-context {original} runs it within those)",
            positions.max
        );
        keys.unsupported("rope_type", rule, &meaning, RULES);
    }
    Scaling::Default
}

fn read_llama3(keys: &mut Keys, max_positions: usize) -> Scaling {
    let factor = keys.real("factor", FACTOR, Otherwise::REQUIRED);
    let low_freq_factor = keys.real("low_freq_factor", POSITIVE, Otherwise::REQUIRED);
    let high_freq_factor = keys.real("high_freq_factor", POSITIVE, Otherwise::REQUIRED);
    let original = read_original(keys, max_positions);
    if keys.faults.is_empty() && low_freq_factor >= high_freq_factor {
        let low_key = keys.name("low_freq_factor");
        let high_key = keys.name("high_freq_factor");
        keys.faults.push(KeyFault::Order { low_key, low: low_freq_factor, high_key, high: high_freq_factor });
    }
    Scaling::Llama3 { factor, low_freq_factor, high_freq_factor, original }
}

fn read_yarn(keys: &mut Keys, max_positions: usize) -> Yarn {
    let factor = keys.real("factor", FACTOR, Otherwise::REQUIRED);
    let original = read_original(keys, max_positions);
    // A value of zero means "not given", as it does to the reference.
    let mut non_zero = |key| keys.optional_real(key, RealBound::AtLeast(0.0, 1e6)).filter(|&value| value != 0.0);
    let beta_fast = non_zero("beta_fast").unwrap_or(32.0);
    let beta_slow = non_zero("beta_slow").unwrap_or(1.0);
    let mscale = non_zero("mscale");
    let mscale_all_dim = non_zero("mscale_all_dim");
    let attention_factor = keys.optional_real("attention_factor", POSITIVE);
    let truncate = keys.boolean("truncate", true);
    if keys.faults.is_empty() && beta_slow >= beta_fast {
        let low_key = keys.name("beta_slow");
        let high_key = keys.name("beta_fast");
        keys.faults.push(KeyFault::Order { low_key, low: beta_slow, high_key, high: beta_fast });
    }
    let magnitude = |m: f64| if factor <= 1.0 { 1.0 } else { 0.1 * m * factor.ln() + 1.0 };
    let attention_factor = attention_factor.unwrap_or_else(|| match (mscale, mscale_all_dim) {
        (Some(m), Some(all)) => magnitude(m) / magnitude(all),
        _ => magnitude(1.0),
    });
    Yarn { factor, original, beta_fast, beta_slow, attention_factor, truncate }
}

/// `theta^(2i/d)` for each pair `i`: the wavelength over 2π, before any scaling.
fn wavelengths(theta: f64, head_dim: usize) -> impl Iterator<Item = f32> {
    (0..head_dim / 2).map(move |pair| {
        let exponent = (2 * pair) as f32 / head_dim as f32;
        // The power is taken in double precision and rounded once: the nearest single-precision
        // number on any machine.
        f64::from(theta as f32).powf(f64::from(exponent)) as f32
    })
}

/// The frequencies of a rule. Every operation on `f32` rounds where the reference's does.
fn evaluate(theta: f64, head_dim: usize, scaling: Scaling) -> RopeTable {
    let plain = || wavelengths(theta, head_dim).map(|length| 1.0 / length);
    match scaling {
        Scaling::Default => RopeTable { frequencies: plain().collect(), scale: 1.0 },
        Scaling::Linear { factor } => {
            RopeTable { frequencies: plain().map(|freq| freq / factor as f32).collect(), scale: 1.0 }
        }
        Scaling::Llama3 { factor, low_freq_factor, high_freq_factor, original } => {
            let stretch = |freq| llama3(freq, factor as f32, low_freq_factor, high_freq_factor, original);
            RopeTable { frequencies: plain().map(stretch).collect(), scale: 1.0 }
        }
        Scaling::Yarn(yarn) => yarn_frequencies(theta, head_dim, yarn),
    }
}

/// Long waves are stretched by the factor, short ones kept, those between interpolated by their
/// turns over the training.
fn llama3(freq: f32, factor: f32, low_freq_factor: f64, high_freq_factor: f64, original: f64) -> f32 {
    let wavelength = freq.recip() * (2.0 * PI) as f32;
    if wavelength > (original / low_freq_factor) as f32 {
        freq / factor
    } else if wavelength < (original / high_freq_factor) as f32 {
        freq
    } else {
        let turns = wavelength.recip() * original as f32;
        let smooth = (turns - low_freq_factor as f32) / (high_freq_factor - low_freq_factor) as f32;
        (1.0 - smooth) * freq / factor + smooth * freq
    }
}

/// Dimensions that turn often keep their frequency, those that turn seldom are stretched, a ramp
/// lies between.
fn yarn_frequencies(theta: f64, head_dim: usize, yarn: Yarn) -> RopeTable {
    let dim = head_dim as f64;
    let correction = |turns: f64| dim * (yarn.original / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln());
    let mut low = correction(yarn.beta_fast);
    let mut high = correction(yarn.beta_slow);
    if yarn.truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(dim - 1.0));
    if low == high {
        high += 0.001;
    }
    let frequency = |(pair, length): (usize, f32)| {
        let ramp = ((pair as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
        let kept = 1.0 - ramp;
        1.0 / (yarn.factor as f32 * length) * (1.0 - kept) + 1.0 / length * kept
    };
    let frequencies = wavelengths(theta, head_dim).enumerate().map(frequency).collect();
    RopeTable { frequencies, scale: yarn.attention_factor as f32 }
}
