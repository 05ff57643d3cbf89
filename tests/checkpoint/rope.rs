//! Rotary frequencies against values computed elsewhere.

use serde_json::{Value, json};
use tilewright::checkpoint::ModelConfig;

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    head_dim: usize,
    max_position_embeddings: usize,
    rope_parameters: Value,
    /// The single-precision values of the reference implementation, as bits.
    bits: Vec<u32>,
    /// An evaluation of the papers' formulas in double precision.
    inv_freq: Vec<f64>,
    scale: f64,
}

#[derive(serde::Deserialize)]
struct Table {
    cases: Vec<Case>,
}

fn table() -> Vec<Case> {
    serde_json::from_str::<Table>(include_str!("../data/rope.json")).unwrap().cases
}

fn config(case: &Case) -> Value {
    json!({
        "model_type": "llama", "vocab_size": 32, "hidden_size": 64, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "rms_norm_eps": 1e-5, "head_dim": case.head_dim,
        "max_position_embeddings": case.max_position_embeddings,
    })
}

fn read(config: &Value) -> ModelConfig {
    ModelConfig::from_json(config.to_string().as_bytes()).unwrap()
}

#[test]
fn every_rule_agrees_with_the_reference_and_with_the_formula() {
    let mut exact = 0;
    let mut total = 0;
    let mut worst = 0.0f64;
    for case in table() {
        let mut config = config(&case);
        config["rope_parameters"] = case.rope_parameters;
        let spec = read(&config).spec;
        let rope = &spec.graph().parts().ropes[0];
        assert_eq!(rope.frequencies.len(), case.bits.len(), "{}", case.name);
        assert_eq!(rope.scale, case.scale as f32, "{}", case.name);
        for ((found, bits), formula) in rope.frequencies.iter().zip(&case.bits).zip(&case.inv_freq) {
            let reference = f32::from_bits(*bits);
            let against_reference = (f64::from(*found) / f64::from(reference) - 1.0).abs();
            let against_formula = (f64::from(*found) / formula - 1.0).abs();
            exact += usize::from(found.to_bits() == *bits);
            total += 1;
            worst = worst.max(against_reference);
            // A last bit may differ in the power; the interpolation between nearly equal terms can
            // magnify it.
            assert!(against_reference < 5e-7, "{}: {found} {reference}", case.name);
            assert!(against_formula < 2e-6, "{}: {found} {formula}", case.name);
        }
    }
    println!("{exact} of {total} frequencies equal to the bit, worst relative difference {worst:.2e}");
    assert!(exact * 10 >= total * 8, "{exact} of {total}");
}

#[test]
fn the_older_spelling_means_the_same() {
    for case in table() {
        let mut new = config(&case);
        new["rope_parameters"] = case.rope_parameters.clone();
        let mut inner = case.rope_parameters.as_object().unwrap().clone();
        let theta = inner.remove("rope_theta").unwrap();
        let rule = inner.remove("rope_type").unwrap();
        for (key, both) in [("type", false), ("rope_type", false), ("type", true)] {
            let mut scaling = inner.clone();
            scaling.insert(key.to_owned(), rule.clone());
            if both {
                scaling.insert("rope_type".to_owned(), rule.clone());
            }
            let mut old = config(&case);
            old["rope_theta"] = theta.clone();
            old["rope_scaling"] = if rule == "default" { Value::Null } else { scaling.into() };
            assert_eq!(read(&old), read(&new), "{}", case.name);
        }
    }
}

#[test]
fn without_any_key_the_base_is_ten_thousand() {
    let case = table().remove(0);
    assert_eq!(case.rope_parameters["rope_theta"], 10_000.0);
    let silent = read(&config(&case));
    let mut stated = config(&case);
    stated["rope_theta"] = json!(10_000);
    assert_eq!(silent, read(&stated));
}
