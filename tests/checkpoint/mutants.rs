//! Thousands of damaged files: each is refused with an error or opens as a checkpoint that can be
//! used. None panics.
//!
//! `TILEWRIGHT_SEED` gives another run; every run prints its seed and how many mutants of each file
//! were accepted.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use safetensors::SafeTensors;
use serde_json::{Value, json};
use tilewright::checkpoint::{Checkpoint, CheckpointError, HeaderError};
use tilewright_kernels::naive;
use tilewright_layout::DType;
use tilewright_megakernel::weights::Weights;

use crate::folder::{Folder, SHARDS, byte_fallback_tokenizer, join, split};

/// SplitMix64.
pub struct Rng(u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

pub fn seed() -> u64 {
    std::env::var("TILEWRIGHT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// Damages bytes without regard to what they mean.
fn mutate_bytes(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let mut mutant = bytes.to_vec();
    let a = rng.below(bytes.len());
    let b = rng.below(bytes.len());
    let begin = a.min(b);
    let end = a.max(b);
    match rng.below(6) {
        0 => (0..=rng.below(4)).for_each(|_| {
            let at = rng.below(mutant.len());
            mutant[at] ^= 1 << rng.below(8);
        }),
        1 => mutant.truncate(a),
        2 => drop(mutant.splice(begin..begin, bytes[begin..end].to_vec())),
        3 => drop(mutant.drain(begin..end.min(begin + 1 + rng.below(16)))),
        4 => mutant[a] = rng.next() as u8,
        _ => {
            let tokens: [&[u8]; 9] = [b"{", b"}", b",", b"\"", b"-", b"0", b"null", b"\\u", b"\xff"];
            drop(mutant.splice(a..a, rng.pick(&tokens).to_vec()));
        }
    }
    mutant
}

/// Replaces, removes, renames, adds or swaps one value somewhere in a JSON document.
pub fn mutate_json(rng: &mut Rng, document: &Value) -> Value {
    let mut mutant = document.clone();
    let count = nodes(&mutant);
    let target = rng.below(count);
    let donor = nth(&mut mutant, &mut rng.below(count)).cloned().unwrap_or_default();
    let strange = [
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(-1),
        json!(1),
        json!(2),
        json!(3.5),
        json!(1e308),
        json!(""),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1u64 << 31),
        json!(1u64 << 53),
        json!([]),
        json!({}),
        json!("../x"),
        json!("\u{0}"),
        json!([1, 2]),
        json!({"a": 1}),
        json!("BF16"),
        json!("F4"),
        donor,
    ];
    let replacement = rng.pick(&strange).clone();
    let action = rng.below(4);
    let Some(value) = nth(&mut mutant, &mut { target }) else {
        return mutant;
    };
    match value {
        Value::Object(map) if action > 0 && !map.is_empty() => {
            let keys: Vec<_> = map.keys().cloned().collect();
            let old = map.remove(rng.pick(&keys)).unwrap_or_default();
            match action {
                1 => {}
                2 => drop(map.insert(format!("{}x", rng.pick(&keys)), old)),
                _ => drop(map.insert(rng.pick(&keys).clone(), replacement)),
            }
        }
        Value::Array(list) if action > 0 && !list.is_empty() => {
            let at = rng.below(list.len());
            let other = rng.below(list.len());
            match action {
                1 => drop(list.remove(at)),
                2 => list.swap(at, other),
                _ => list.push(replacement),
            }
        }
        Value::Number(number) if action > 0 => {
            let step = *rng.pick(&[-1i64, 1, 2, 1000]);
            *value = number.as_i64().map_or(replacement, |number| json!(number.wrapping_add(step)));
        }
        value => *value = replacement,
    }
    mutant
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum(),
        _ => 0usize,
    }
}

/// The value that is the `n`-th in depth-first order.
fn nth<'v>(value: &'v mut Value, n: &mut usize) -> Option<&'v mut Value> {
    if *n == 0 {
        return Some(value);
    }
    *n -= 1;
    match value {
        Value::Array(list) => list.iter_mut().find_map(|value| nth(value, n)),
        Value::Object(map) => map.values_mut().find_map(|value| nth(value, n)),
        _ => None,
    }
}

/// Uses everything that an accepted checkpoint promises.
fn assert_usable(checkpoint: &Checkpoint) {
    let spec = checkpoint.spec();
    assert!(spec.heads.is_multiple_of(spec.kv_heads) && spec.head_dim.is_multiple_of(2));
    let rope = &spec.graph().parts().ropes[0];
    assert_eq!(rope.rotated(), spec.head_dim);
    assert!(rope.frequencies.iter().all(|freq| freq.is_finite()) && rope.scale.is_finite());
    let tensors = spec.tensors();
    assert_eq!(checkpoint.tensors().len() + checkpoint.quantized_modules().len(), tensors.len());
    for expected in tensors {
        if let Some(matrix) = checkpoint.quantized(&expected.name) {
            assert_eq!([matrix.n(), matrix.k()], *expected.shape);
            let weights = naive::dequantize::<f32>(&matrix);
            assert!(weights.iter().all(|w| !w.is_nan()));
            continue;
        }
        let tensor = checkpoint.tensor(&expected.name).unwrap();
        let count = match tensor.dtype() {
            DType::F32 => tensor.as_f32().unwrap().len(),
            DType::F16 => tensor.as_f16().unwrap().len(),
            DType::BF16 => tensor.as_bf16().unwrap().len(),
            other => panic!("{other} is no type of weights"),
        };
        assert_eq!((tensor.shape(), count), (expected.shape.as_slice(), expected.shape.iter().product()));
    }
    assert!(checkpoint.eos_ids().iter().all(|&id| (id as usize) < spec.vocab));
    let tokenizer = checkpoint.tokenizer();
    // A damaged tokenizer may refuse a text, in words; what it gives must have rows in the
    // embedding.
    let Ok(ids) = tokenizer.encode("the thing é\n 界 a") else { return };
    assert!(ids.iter().all(|&id| (id as usize) < spec.vocab));
    let mut stream = tokenizer.stream();
    let pieces: Result<String, _> = ids.iter().map(|&id| stream.push(id)).collect();
    if let (Ok(pieces), Ok(rest), Ok(whole)) = (pieces, stream.finish(), tokenizer.decode(&ids)) {
        assert_eq!(pieces + &rest, whole);
    }
}

/// Opens mutants of one file of a folder.
pub struct Campaign {
    pub seed: u64,
    pub counts: BTreeMap<&'static str, (usize, usize)>,
}

impl Campaign {
    pub fn run(
        &mut self,
        name: &'static str,
        folder: &Folder,
        file: &str,
        mutants: usize,
        mut mutate: impl FnMut(&mut Rng) -> Vec<u8>,
    ) {
        let original = folder.read(file);
        for case in 0..mutants {
            let mut rng = Rng(self.seed ^ (case as u64) << 32 ^ name.len() as u64);
            let mutant = mutate(&mut rng);
            folder.write(file, &mutant);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let outcome = folder.open();
                if let Ok(checkpoint) = &outcome {
                    assert_usable(checkpoint);
                }
                if file == "model.safetensors" {
                    assert_agrees_with_the_formats_reader(&mutant, &outcome);
                }
                outcome.is_ok()
            }));
            let Ok(accepted) = outcome else {
                let text = String::from_utf8_lossy(&mutant[..mutant.len().min(4000)]).into_owned();
                panic!("{name}: mutant {case} of seed {} fails: {text}", self.seed);
            };
            let (all, fine) = self.counts.entry(name).or_default();
            *all += 1;
            *fine += usize::from(accepted);
        }
        folder.write(file, original);
    }

    fn bytes(&mut self, name: &'static str, folder: &Folder, file: &str, mutants: usize) {
        let original = folder.read(file);
        self.run(name, folder, file, mutants, |rng| mutate_bytes(rng, &original));
    }

    pub fn json(&mut self, name: &'static str, folder: &Folder, file: &str, mutants: usize) {
        let original: Value = serde_json::from_slice(&folder.read(file)).unwrap();
        self.run(name, folder, file, mutants, |rng| mutate_json(rng, &original).to_string().into_bytes());
    }

    /// Prints the counts and gives the number of mutants.
    pub fn report(&self) -> usize {
        println!("seed {}", self.seed);
        for (name, (all, accepted)) in &self.counts {
            println!("{all:6} mutants of {name}: {accepted} accepted");
        }
        self.counts.values().map(|(all, _)| all).sum()
    }
}

/// Checks that the format's own reader reads the same bytes from every file that opens, and refuses
/// every file with a bad header, except for defects that it does not check.
fn assert_agrees_with_the_formats_reader(file: &[u8], outcome: &Result<Checkpoint, CheckpointError>) {
    // That reader's sum of offsets may overflow.
    let theirs = catch_unwind(|| SafeTensors::deserialize(file)).ok().and_then(Result::ok);
    match outcome {
        Ok(checkpoint) => {
            let theirs = theirs.expect("the format's own reader refuses what was opened");
            for (name, tensor) in checkpoint.tensors() {
                assert_eq!(tensor.bytes().as_ref(), theirs.tensor(name).unwrap().data(), "{name}");
            }
        }
        Err(CheckpointError::Header { source, .. }) => match source {
            HeaderError::Dtype { .. } | HeaderError::UnknownField { .. } | HeaderError::Field { .. } => {}
            HeaderError::Json(error) if error.to_string().contains("appears twice") => {}
            _ => assert!(theirs.is_none(), "refused here, read by the format's own reader: {source}"),
        },
        Err(_) => {}
    }
}

#[test]
fn no_mutant_of_a_configuration_panics() {
    let mut campaign = Campaign { seed: seed(), counts: BTreeMap::new() };
    let folder = Folder::synthetic();
    campaign.json("config.json, values", &folder, "config.json", 1500);
    campaign.bytes("config.json, bytes", &folder, "config.json", 500);
    campaign.json("generation_config.json, values", &folder, "generation_config.json", 300);
    campaign.bytes("generation_config.json, bytes", &folder, "generation_config.json", 300);
    let shipped = Folder::copy_of("tiny-qwen3");
    campaign.json("config.json of tiny-qwen3, values", &shipped, "config.json", 200);
    assert!(campaign.report() >= 2800);
    assert!(campaign.counts.values().all(|(all, accepted)| 0 < *accepted && accepted < all));
}

#[test]
fn no_mutant_of_the_weights_panics() {
    let mut campaign = Campaign { seed: seed(), counts: BTreeMap::new() };
    let folder = Folder::synthetic();
    let file = "model.safetensors";
    let bytes = folder.read(file);
    let (header, data) = split(&bytes);
    let header = Value::Object(header);
    let text = header.to_string();
    campaign.bytes("weights, bytes", &folder, file, 800);
    campaign.run("weights, values of the header", &folder, file, 1500, |rng| {
        join(&mutate_json(rng, &header).to_string(), data)
    });
    campaign.run("weights, bytes of the header", &folder, file, 500, |rng| {
        join(&String::from_utf8_lossy(&mutate_bytes(rng, text.as_bytes())), data)
    });
    campaign.run("weights, length of the header", &folder, file, 100, |rng| {
        let mut mutant = bytes.clone();
        let length = [rng.next(), rng.next() % 10_000, u64::MAX, 0, 100_000_001][rng.below(5)];
        mutant[..8].copy_from_slice(&length.to_le_bytes());
        mutant
    });
    let sharded = Folder::sharded();
    let index = "model.safetensors.index.json";
    campaign.json("index, values", &sharded, index, 500);
    campaign.bytes("index, bytes", &sharded, index, 300);
    campaign.bytes("second file of weights, bytes", &sharded, SHARDS[1], 300);
    assert!(campaign.report() >= 4000);
    assert!(campaign.counts.values().all(|(all, accepted)| accepted < all));
    assert!(campaign.counts["weights, bytes"].1 > 0, "flipping a weight's bit is not an error");
}

#[test]
fn no_mutant_of_a_tokenizer_panics() {
    let mut campaign = Campaign { seed: seed(), counts: BTreeMap::new() };
    let folder = Folder::synthetic();
    campaign.json("byte-level tokenizer, values", &folder, "tokenizer.json", 1000);
    campaign.bytes("byte-level tokenizer, bytes", &folder, "tokenizer.json", 300);
    // Few of the vocabulary's values matter; the rest of the file gets its share.
    folder.edit("config.json", |config| config["vocab_size"] = json!(270));
    folder.edit_tensors(|tensors| {
        let embedding = tensors.get_mut("model.embed_tokens.weight").unwrap();
        (embedding.1, embedding.2) = (vec![270, 8], vec![0; 270 * 8 * 2]);
    });
    folder.write("tokenizer.json", byte_fallback_tokenizer().to_string());
    campaign.json("byte-fallback tokenizer, values", &folder, "tokenizer.json", 400);
    let mut frame = byte_fallback_tokenizer();
    let model = frame.as_object_mut().unwrap().remove("model").unwrap();
    campaign.run("byte-fallback tokenizer, values but the vocabulary", &folder, "tokenizer.json", 600, |rng| {
        let mut mutant = mutate_json(rng, &frame);
        if let Some(mutant) = mutant.as_object_mut() {
            mutant.insert("model".to_owned(), model.clone());
        }
        mutant.to_string().into_bytes()
    });
    let shipped = Folder::copy_of("tiny-llama");
    campaign.bytes("tokenizer of tiny-llama, bytes", &shipped, "tokenizer.json", 100);
    assert!(campaign.report() >= 2400);
    assert!(campaign.counts.values().all(|(all, accepted)| accepted < all));
    assert!(campaign.counts["byte-fallback tokenizer, values but the vocabulary"].1 > 0);
}
