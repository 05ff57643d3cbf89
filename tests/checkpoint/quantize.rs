//! Quantising: what is written opens, decodes by another decoder to the same numbers, is near what
//! it was, and appears whole or not at all.

use std::fs;
use std::ops::ControlFlow::{Break, Continue};

use half::bf16;
use serde_json::{Value, json};
use tilewright::checkpoint::{Checkpoint, QuantizeError, Scheme, quantize};
use tilewright_kernels::naive;
use tilewright_megakernel::weights::Weights;

use crate::folder::{Folder, shipped, split};

fn make(model: &Folder, scheme: Scheme, group: Option<usize>) -> (Folder, Result<(), QuantizeError>) {
    let out = Folder::empty();
    let made = quantize(model.path("").as_path(), &out.path("made"), scheme, group, &mut |_| Continue(()));
    (out, made.map(drop))
}

/// A tensor of a file: shape and bytes.
fn tensor<'f>(header: &Value, data: &'f [u8], name: &str) -> (Vec<usize>, &'f [u8]) {
    let info = &header[name];
    let shape = serde_json::from_value(info["shape"].clone()).unwrap();
    let [begin, end]: [usize; 2] = serde_json::from_value(info["data_offsets"].clone()).unwrap();
    (shape, &data[begin..end])
}

/// The weights of a module by the published layout: a stream of codes of `bits` bits along K,
/// offset by half their count, or elements of e4m3; times the scale of the column's share of the
/// scales.
fn decoded(file: &[u8], module: &str, k: usize) -> Vec<f64> {
    let (header, data) = split(file);
    let header = Value::Object(header);
    let (shape, scales) = tensor(&header, data, &format!("{module}.weight_scale"));
    let n = shape[0];
    let groups = shape[1];
    let scale = |row: usize, column: usize| {
        let at = 2 * (row * groups + column * groups / k);
        bf16::from_le_bytes([scales[at], scales[at + 1]]).to_f64()
    };
    let place = |at: usize| (at / k, at % k);
    if header.get(format!("{module}.weight_packed")).is_none() {
        let (_, codes) = tensor(&header, data, &format!("{module}.weight"));
        let number = |code: u8| {
            let exponent = i32::from(code >> 3 & 15);
            let mantissa = f64::from(code & 7);
            let magnitude =
                if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
            if code >= 128 { -magnitude } else { magnitude }
        };
        return (0..n * k).map(|at| number(codes[at]) * scale(place(at).0, place(at).1)).collect();
    }
    let (packed, bytes) = tensor(&header, data, &format!("{module}.weight_packed"));
    let bits = if packed[1] * 8 == k { 4 } else { 8 };
    assert_eq!(packed, [n, (k * bits).div_ceil(32)]);
    let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
    let code = |row: usize, column: usize| {
        let bit = column * bits;
        let code = words[row * packed[1] + bit / 32] >> (bit % 32) & ((1 << bits) - 1);
        f64::from(code) - f64::from(1u32 << (bits - 1))
    };
    (0..n * k).map(|at| code(place(at).0, place(at).1) * scale(place(at).0, place(at).1)).collect()
}

fn relative(found: &[f64], expected: &[f64]) -> f64 {
    let difference: f64 = found.iter().zip(expected).map(|(a, b)| (a - b).powi(2)).sum();
    (difference / expected.iter().map(|w| w * w).sum::<f64>()).sqrt()
}

#[test]
fn what_is_written_decodes_to_the_same_numbers_and_is_near_what_it_was() {
    // Scheme, group, and the relative L2 that rounding of such weights stays below.
    let cases = [
        (Scheme::W4A16, Some(32), 0.11),
        (Scheme::W4A16, None, 0.13),
        (Scheme::W8A16, Some(64), 0.008),
        (Scheme::Fp8, None, 0.03),
    ];
    for model in ["tiny-llama", "tiny-qwen3"] {
        let dense = Checkpoint::open(&shipped(model), &mut |_| ()).unwrap();
        for (scheme, group, limit) in cases {
            let (out, made) = make(&Folder::copy_of(model), scheme, group);
            made.unwrap();
            let file = out.read("made/model.safetensors");
            let checkpoint = Checkpoint::open(&out.path("made"), &mut |_| ()).unwrap();
            assert_eq!(checkpoint.quantized_modules().len(), 7 * checkpoint.spec().layers);
            assert!(checkpoint.notes().is_empty(), "activations are not quantised");
            for (name, tensor) in checkpoint.tensors() {
                assert_eq!(tensor.bytes().as_ref(), dense.tensor(name).unwrap().bytes().as_ref(), "{name}");
            }
            for (name, matrix) in checkpoint.quantized_modules() {
                let read = naive::dequantize::<f64>(matrix);
                let module = name.strip_suffix(".weight").unwrap();
                assert!(read == decoded(&file, module, matrix.k()), "{model} {scheme} {name}");
                let before = dense.tensor(name).unwrap();
                let before: Vec<f64> = before.as_bf16().unwrap().iter().map(|w| w.to_f64()).collect();
                let error = relative(&read, &before);
                assert!(error < limit, "{model} {scheme} {group:?} {name}: {error}");
            }
        }
    }
}

#[test]
fn groups_that_do_not_divide_k_become_smaller_in_entries_of_their_own() {
    let model = Folder::copy_of("tiny-llama");
    let out = Folder::empty();
    let made = quantize(&model.path(""), &out.path("made"), Scheme::W4A16, None, &mut |_| Continue(())).unwrap();
    assert_eq!(made.smaller, [(64, 24)], "K is 192 in six of seven modules of four layers");
    let config: Value = serde_json::from_slice(&out.read("made/config.json")).unwrap();
    let groups = &config["quantization_config"]["config_groups"];
    assert_eq!(groups["group_0"]["weights"]["group_size"], json!(64));
    assert_eq!(groups["group_1"]["targets"], json!(["re:.*\\.down_proj$"]));
}

#[test]
fn it_appears_whole_or_not_at_all() {
    let model = Folder::copy_of("tiny-llama");
    let out = Folder::empty();
    let run = |model: &Folder, group| {
        quantize(&model.path(""), &out.path("made"), Scheme::W4A16, group, &mut |_| Continue(()))
    };
    let left = || fs::read_dir(out.path("")).unwrap().count();
    insta::assert_snapshot!(run(&model, Some(8)).unwrap_err(), @"group is 8; it must be 16 to 65536");
    insta::assert_snapshot!(run(&model, Some(17)).unwrap_err(), @"module model.layers.0.self_attn.q_proj has 192 columns, which share the group 1 with 17; 16 is the least that is written, so give a --group that has a common divisor of 16 at least with it");
    let (_, fp8) = make(&model, Scheme::Fp8, Some(128));
    insta::assert_snapshot!(fp8.unwrap_err(), @"scheme fp8 has a scale a row and no groups; leave --group 128 out");
    model.edit_tensors(|tensors| {
        let down = tensors.get_mut("model.layers.3.mlp.down_proj.weight").unwrap();
        down.2[..2].copy_from_slice(&bf16::NAN.to_le_bytes());
    });
    let error = run(&model, None).unwrap_err();
    assert!(matches!(&error, QuantizeError::Module { module, .. } if module.ends_with("3.mlp.down_proj")), "{error}");
    let mut told = 0;
    let stopped =
        quantize(&Folder::copy_of("tiny-llama").path(""), &out.path("made"), Scheme::W4A16, None, &mut |_| {
            told += 1;
            if told == 2 { Break(()) } else { Continue(()) }
        });
    assert!(matches!(stopped, Err(QuantizeError::Stopped)));
    assert_eq!(left(), 0, "nothing is left of what failed or was stopped");
    run(&Folder::copy_of("tiny-llama"), None).unwrap();
    assert_eq!(left(), 1);
    assert!(matches!(run(&Folder::copy_of("tiny-llama"), None), Err(QuantizeError::Exists { .. })));
    let (_, again) = make(&Folder::copy_of_folder(&out.path("made")), Scheme::W8A16, None);
    insta::assert_snapshot!(again.unwrap_err(), @"the checkpoint has 28 quantised modules already; give its dense form");
}

/// A killed writer leaves a folder that is not locked any more; the next one removes it, and leaves
/// one whose writer lives, and what is not its own.
#[test]
fn folders_of_killed_writers_are_removed_and_those_of_living_ones_stay() {
    let place = Folder::empty();
    let names = [".tilewright-dead.tmp", ".tilewright-alive.tmp", ".tilewright-other"];
    for name in names {
        fs::create_dir(place.path(name)).unwrap();
        place.write(&format!("{name}/model.safetensors"), "part");
    }
    let held = fs::File::open(place.path(names[1])).unwrap();
    held.lock().unwrap();
    quantize(&shipped("tiny-llama"), &place.path("made"), Scheme::Fp8, None, &mut |_| Continue(())).unwrap();
    let left = [names[0], names[1], names[2], "made"].map(|name| place.path(name).exists());
    assert_eq!(left, [false, true, true, true]);
    drop(held);
}
