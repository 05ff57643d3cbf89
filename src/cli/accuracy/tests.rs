//! The limits: rounding as a device does is within them, and faults exceed them.

use std::path::Path;

use serde_json::Value;
use tilewright_graph::models::keys::Keys;
use tilewright_graph::models::{Accept, Llama, Model};
use tilewright_megakernel::weights::{SharedBytes, WeightTensor, Weights};

use super::*;
use crate::checkpoint::{Checkpoint, value_of_folder};

/// Logits of a step by the reference machine, on these weights.
fn logits(case: &AccuracyCase, spec: &ModelSpec, weights: &dyn Weights, numbers: StepNumerics) -> Vec<f32> {
    let options = LowerOptions { kv: numbers.kv, ..case.options() };
    let program = lower(spec, &|_| DType::BF16, Target::host(2), &options).expect("a program");
    let placed = schedule(program, TYPICAL_CONTEXT).expect("a schedule");
    let mut machine = Machine::new(placed, weights, 2).expect("a machine");
    machine.set_operands(numbers.operands);
    case.logits(spec, &mut machine).expect("logits")
}

/// The numbers that a step computes with.
#[derive(Clone, Copy)]
struct StepNumerics {
    /// The type of keys and values.
    kv: DType,
    /// The rounding of operands.
    operands: Option<fn(f32) -> f32>,
}

impl StepNumerics {
    /// Keys and values in bf16, and operands of this rounding.
    const fn rounded(operands: fn(f32) -> f32) -> StepNumerics {
        StepNumerics { kv: DType::BF16, operands: Some(operands) }
    }
}

const EXACT: StepNumerics = StepNumerics { kv: DType::F32, operands: None };
const ROUND: StepNumerics = StepNumerics::rounded(|x| bf16::from_f32(x).to_f32());
const TRUNCATE: StepNumerics = StepNumerics::rounded(|x| f32::from_bits(x.to_bits() & 0xffff_0000));

/// A different rounding of the same size.
const OTHER: StepNumerics = StepNumerics::rounded(|x| bf16::from_f32(x * 1.37).to_f32() / 1.37);

/// The error of each row.
fn errors(spec: &ModelSpec, found: &[f32], expected: &[f32]) -> Vec<f64> {
    let rows = found.chunks_exact(spec.vocab).zip(expected.chunks_exact(spec.vocab));
    rows.map(|(found, expected)| relative(found, expected)).collect()
}

/// Weights with one tensor changed.
struct Changed<'w>(&'w dyn Weights, &'static str, WeightTensor);

impl Weights for Changed<'_> {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        if name == self.1 { Some(self.2.clone()) } else { self.0.tensor(name) }
    }
}

/// A checkpoint with biases of q, k and v: as drawn.
struct Biased<'w>(&'w Checkpoint);

impl Weights for Biased<'_> {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        let drawn = |name: &str| {
            let rows = self.0.tensor(&name.replace(".bias", ".weight"))?.shape()[0];
            let bias = Uniform::with_deviation(0.5).bf16(name, SEED, rows);
            WeightTensor::new(DType::BF16, vec![rows], SharedBytes::aligned_copy(bytemuck::cast_slice(&bias))).ok()
        };
        self.0.tensor(name).or_else(|| name.ends_with("_proj.bias").then(|| drawn(name)).flatten())
    }
}

/// A weight with a zero first tile, eight rows of 32 columns; or a bias of zeros.
fn without(weights: &dyn Weights, name: &'static str) -> WeightTensor {
    let whole = weights.tensor(name).expect("a tensor");
    let mut elements = whole.as_bf16().expect("bf16").to_vec();
    let columns = if whole.shape().len() == 1 { 1 } else { whole.shape()[1] };
    let is_first = |at: usize| whole.shape().len() == 1 || (at / columns < 8 && at % columns < 32);
    (0..elements.len()).filter(|&at| is_first(at)).for_each(|at| elements[at] = bf16::ZERO);
    let bytes = SharedBytes::aligned_copy(bytemuck::cast_slice(&elements));
    WeightTensor::new(DType::BF16, whole.shape().to_vec(), bytes).expect("as many bytes")
}

/// The model of a folder, with biases on q, k and v.
fn with_biases(folder: &Path) -> ModelSpec {
    let Value::Object(config) = value_of_folder(folder).expect("a configuration") else { panic!("an object") };
    let model = Model::read(&mut Keys::new("", config), &Accept::ALL).expect("a family");
    let page = Llama { qkv_bias: true, ..model.as_llama().expect("Llama's block").clone() };
    ModelSpec::new(page.graph("biased").expect("a graph"), model.decoder().max_positions).expect("a model")
}

/// Other roundings of the same size are within the limits, for prompts and for rows with drawn
/// history. Truncation, a missing bias and a missing tile exceed them.
#[test]
fn roundings_are_within_the_bound_and_faults_beyond() {
    let page_tokens = LowerOptions::for_context(1).page_tokens;
    let mut beyond = 0;
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    for model in ["tiny-llama", "tiny-qwen3"] {
        let checkpoint = Checkpoint::open(&models.join(model), &mut |_| ()).expect("the model opens");
        let spec = with_biases(&models.join(model));
        let biased = Biased(&checkpoint);
        let cases = [((0..300).collect(), true), ((0..32).map(|row| 1 + row % 17).collect(), false)];
        for (positions, prompt) in cases {
            let case = AccuracyCase { positions, page_tokens, prompt };
            let expected = logits(&case, &spec, &biased, EXACT);
            let of = |weights: &dyn Weights, numbers| errors(&spec, &logits(&case, &spec, weights, numbers), &expected);
            let limits = limits(&of(&biased, ROUND));
            let holds = |what: &str, errors: &[f64], near: bool| {
                let found = worst_and_mean(errors);
                assert_eq!(is_near(errors, limits), near, "{model}, prompt {prompt}, {what}: {found:?} of {limits:?}");
            };
            holds("another rounding", &of(&biased, OTHER), true);
            // If roundings are far below the limit, so is truncation.
            let truncated = of(&biased, TRUNCATE);
            holds("truncation", &truncated, worst_and_mean(&truncated)[0] <= LIMIT);
            for name in ["model.layers.1.self_attn.k_proj.bias", "model.layers.1.mlp.up_proj.weight"] {
                holds(name, &of(&Changed(&biased, name, without(&biased, name)), ROUND), false);
            }
            beyond += u32::from(limits[0] > LIMIT && !is_near(&truncated, limits));
        }
    }
    assert!(beyond >= 2, "{beyond} cases in which truncation is found out");
}
