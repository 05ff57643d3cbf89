//! Rotary frequencies: the rule that `config.json` states, evaluated in single precision.
//!
//! The formulas, and the order in which single-precision operations round, are those of
//! `modeling_rope_utils.py` in the library transformers (5.x), so that the frequencies agree with
//! it within one unit in the last place. The rules come from: rotary embeddings, Su et al.,
//! arXiv:2104.09864; linear scaling, Chen et al., arXiv:2306.15595; yarn, Peng et al.,
//! arXiv:2309.00071; longrope, Ding et al., arXiv:2402.13753; llama3, the reference code of Llama 3.1.

use std::f64::consts::PI;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::fault::{KeyFault, quote};
use super::keys::{Keys, Otherwise, RealBound};
use crate::graph::RopeTable;

/// The scaling of a model's rotation beyond the positions of its training.
#[derive(Clone, Debug, PartialEq)]
enum Scaling {
    Default,
    LongRope { factors: Vec<f64>, attention_factor: f64 },
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

/// What a family's rotation is where keys are absent, and the keys that only some families have.
#[derive(Clone, Copy, Debug)]
pub(super) struct RopeDefaults {
    /// The base of the wavelengths.
    pub theta: f64,
    /// The part of each head that rotates; `None`: all of it, whatever the keys say.
    pub partial: Option<f64>,
    /// The length of the first training, where the family has a key for it beside the rotation's and
    /// the rule longrope, which needs it.
    pub original: Option<u32>,
    /// The whole rule.
    pub rule: DefaultRule,
}

impl RopeDefaults {
    /// Those that most families have.
    pub const COMMON: RopeDefaults =
        RopeDefaults { theta: 10_000.0, partial: None, original: None, rule: DefaultRule::Plain };
}

/// The rule where a configuration has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefaultRule {
    /// No scaling.
    Plain,
    /// That of gpt-oss.
    GptOss,
}

impl DefaultRule {
    fn parameters(self) -> Map<String, Value> {
        match self {
            DefaultRule::Plain => Map::new(),
            DefaultRule::GptOss => {
                let rule = serde_json::json!({
                    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
                    "original_max_position_embeddings": 4096,
                });
                rule.as_object().cloned().unwrap_or_default()
            }
        }
    }
}

/// What stands beside the object with the rule.
#[derive(Clone, Copy, Debug)]
struct Outer {
    theta: Option<f64>,
    partial: Option<f64>,
    original: Option<usize>,
}

/// The object with the rule.
#[derive(Clone, Debug)]
struct RuleObject {
    /// Its key.
    key: &'static str,
    value: Value,
    outer: Outer,
}

/// A table for a configuration with faults.
const NO_TABLE: RopeTable = RopeTable { frequencies: Vec::new(), scale: 1.0 };

/// Part of a head.
const PARTIAL: RealBound = RealBound::Above(0.0, 1.0);

/// Takes the rotation's keys, in either spelling, and evaluates the rule for heads of `head_dim`
/// dimensions.
pub(super) fn read(keys: &mut Keys, defaults: &RopeDefaults, head_dim: usize, positions: Positions) -> RopeTable {
    let theta = keys.optional_real("rope_theta", THETA);
    let partial = defaults.partial.and_then(|_| keys.optional_real("partial_rotary_factor", PARTIAL));
    let original = defaults.original.map(|absent| {
        let otherwise = Otherwise { absent: Some(absent as usize), null: None };
        keys.integer("original_max_position_embeddings", LENGTH, otherwise)
    });
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
    let (key, value) = match (new, old) {
        (Some(value), _) => ("rope_parameters", value),
        (None, Some(value)) => ("rope_scaling", value),
        (None, None) => ("rope_parameters", Value::Object(defaults.rule.parameters())),
    };
    let rule = RuleObject { key, value, outer: Outer { theta, partial, original } };
    read_object(keys, rule, defaults, head_dim, positions)
}

/// Takes the rotations of layers with full attention and of those with a window, which have keys of
/// their own.
pub(super) fn read_by_kind(
    keys: &mut Keys,
    defaults: [&RopeDefaults; 2],
    head_dim: usize,
    positions: Positions,
) -> [RopeTable; 2] {
    const KEY: &str = "rope_parameters";
    let thetas = ["rope_theta", "rope_local_base_freq"].map(|key| keys.optional_real(key, THETA));
    let scaling = keys.take_value("rope_scaling");
    let mut nested = match keys.take_value(KEY) {
        None => Map::new(),
        Some(Value::Object(map)) => map,
        Some(other) => {
            keys.wrong_type(KEY, &other, "an object");
            Map::new()
        }
    };
    let mut full = nested.remove("full_attention").filter(|value| !value.is_null());
    if let (Some(full), Some(scaling)) = (&full, &scaling)
        && full != scaling
    {
        let first_key = "rope_scaling".to_owned();
        let second_key = format!("{KEY}.full_attention");
        keys.faults.push(KeyFault::Disagree { first_key, first: quote(scaling), second_key, second: quote(full) });
    }
    full = full.or(scaling);
    let local = nested.remove("sliding_attention").filter(|value| !value.is_null());
    keys.faults.extend(Keys::new("rope_parameters.", nested).finish(&[]));
    let mut read = |name: &'static str, value: Option<Value>, theta: Option<f64>, defaults: &RopeDefaults| {
        let value = value.unwrap_or_else(|| Value::Object(Map::new()));
        let rule = RuleObject { key: name, value, outer: Outer { theta, partial: None, original: None } };
        read_object(keys, rule, defaults, head_dim, positions)
    };
    [
        read("rope_parameters.full_attention", full, thetas[0], defaults[0]),
        read("rope_parameters.sliding_attention", local, thetas[1], defaults[1]),
    ]
}

/// Takes the object with the rule.
fn read_object(
    keys: &mut Keys,
    rule: RuleObject,
    defaults: &RopeDefaults,
    head_dim: usize,
    positions: Positions,
) -> RopeTable {
    let RuleObject { key, value, outer } = rule;
    let Value::Object(map) = value else {
        keys.wrong_type(key, &value, "an object");
        return NO_TABLE;
    };
    let mut inner = Keys::new(format!("{key}."), map);
    let stated_theta = inner.optional_real("rope_theta", THETA);
    let theta = agreed(&mut inner, "rope_theta", outer.theta, stated_theta).unwrap_or(defaults.theta);
    let rotated = match defaults.partial {
        None => {
            let partial = inner.optional_real("partial_rotary_factor", RealBound::AtLeast(0.0, 1.0));
            if let Some(part) = partial.filter(|&part| part != 1.0) {
                inner.unsupported("partial_rotary_factor", &part.into(), "rotates a part of each head only", "1");
            }
            head_dim
        }
        Some(absent) => {
            let partial = inner.optional_real("partial_rotary_factor", PARTIAL);
            let partial = agreed(&mut inner, "partial_rotary_factor", outer.partial, partial).unwrap_or(absent);
            rotated(&mut inner, head_dim, partial)
        }
    };
    if let Some(outer) = outer.original {
        let key = "original_max_position_embeddings";
        let otherwise = Otherwise { absent: Some(None), null: Some(None) };
        let nested: Option<usize> = inner.integer(key, LENGTH, otherwise);
        if let Some(nested) = nested.filter(|&nested| nested != outer) {
            let first_key = key.to_owned();
            let second_key = inner.name(key);
            let (first, second) = (outer.to_string(), nested.to_string());
            inner.faults.push(KeyFault::Disagree { first_key, first, second_key, second });
        }
    }
    let scaling = read_scaling(&mut inner, outer.original, rotated, positions);
    let faults = inner.finish(&[]);
    let sound = faults.is_empty() && keys.faults.is_empty();
    keys.faults.extend(faults);
    if sound { evaluate(theta, rotated, &scaling) } else { NO_TABLE }
}

/// A length in positions.
const LENGTH: RangeInclusive<u32> = 1..=i32::MAX.unsigned_abs();

/// A number that may stand inside of the rule's object, beside it, or in both places.
fn agreed(inner: &mut Keys, key: &str, outer: Option<f64>, nested: Option<f64>) -> Option<f64> {
    if let (Some(outer), Some(nested)) = (outer, nested)
        && outer != nested
    {
        let first_key = key.to_owned();
        let second_key = inner.name(key);
        let first = format!("{outer:?}");
        let second = format!("{nested:?}");
        inner.faults.push(KeyFault::Disagree { first_key, first, second_key, second });
    }
    nested.or(outer)
}

/// The dimensions of a head that rotate, rounded down.
fn rotated(inner: &mut Keys, head_dim: usize, partial: f64) -> usize {
    let rotated = (head_dim as f64 * partial) as usize;
    if rotated < 2 || !rotated.is_multiple_of(2) {
        let meaning = format!("rotates {rotated} of {head_dim} dimensions of a head");
        inner.unsupported("partial_rotary_factor", &partial.into(), &meaning, "an even number of them, 2 at least");
    }
    rotated
}

/// Takes the rule's name and its parameters.
fn read_scaling(keys: &mut Keys, outer: Option<usize>, rotated: usize, positions: Positions) -> Scaling {
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
    // Families with a length of the first training beside the rule have no other rule.
    if let Some(original) = outer {
        return match rule.as_str() {
            Some("default") => Scaling::Default,
            Some("longrope" | "su") => read_longrope(keys, original as f64, rotated, positions),
            _ => {
                keys.unsupported("rope_type", &rule, "scales the rotation by another rule", "default or longrope");
                Scaling::Default
            }
        };
    }
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
    let original: usize =
        keys.integer("original_max_position_embeddings", LENGTH, Otherwise { absent: Some(max_positions), null: None });
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

/// The rule `longrope` has one list of factors for texts within the positions of the first training
/// and one for longer texts. A graph is for texts of one of the two lengths, by the longest
/// sequence that is needed.
fn read_longrope(keys: &mut Keys, original: f64, rotated: usize, positions: Positions) -> Scaling {
    let factor = keys.optional_real("factor", RealBound::Above(0.0, 1e6));
    let stated = keys.optional_real("attention_factor", POSITIVE);
    let [short, long] = ["short_factor", "long_factor"].map(|key| read_factors(keys, key, rotated / 2));
    let factor = factor.unwrap_or(positions.trained as f64 / original);
    let implied = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original.ln()).sqrt() };
    let attention_factor = stated.unwrap_or(implied);
    if keys.faults.is_empty() && !(attention_factor as f32).is_finite() {
        // The logarithm of one position is zero.
        keys.unsupported(
            "original_max_position_embeddings",
            &(original as u64).into(),
            "scales the scores by infinity",
            "2 at least",
        );
    }
    Scaling::LongRope { factors: if positions.max as f64 > original { long } else { short }, attention_factor }
}

/// A list of a factor for each pair of dimensions.
fn read_factors(keys: &mut Keys, key: &str, pairs: usize) -> Vec<f64> {
    let Some(value) = keys.take_value(key) else {
        let key = keys.name(key);
        keys.faults.push(KeyFault::Missing { key });
        return Vec::new();
    };
    let factors: Option<Vec<f64>> = value.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
    let is_sound = |factors: &Vec<f64>| factors.len() == pairs && factors.iter().all(|&factor| POSITIVE.holds(factor));
    factors.filter(is_sound).unwrap_or_else(|| {
        keys.wrong_type(key, &value, "a list of a positive number for each pair of dimensions that rotate");
        Vec::new()
    })
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
fn evaluate(theta: f64, head_dim: usize, scaling: &Scaling) -> RopeTable {
    let plain = || wavelengths(theta, head_dim).map(|length| 1.0 / length);
    match *scaling {
        Scaling::Default => RopeTable { frequencies: plain().collect(), scale: 1.0 },
        Scaling::LongRope { ref factors, attention_factor } => {
            let stretched = wavelengths(theta, head_dim).zip(factors);
            let frequencies = stretched.map(|(length, factor)| 1.0 / (*factor as f32 * length)).collect();
            RopeTable { frequencies, scale: attention_factor as f32 }
        }
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
