//! The fuzz target of programs, on stable Rust: whatever still parses gets a report, and nothing
//! panics.
//!
//! Inputs are the stored corpus (`tests/corpus/programs`) and generated programs, changed as trees
//! and as bytes. A plain run takes seconds; `TILEWRIGHT_LONG=1` runs fifty times as many,
//! `TILEWRIGHT_SEED` another sequence.

use serde_json::{Number, Value};
use tilewright_megakernel::program::Program;
use tilewright_megakernel::validate::{Placed, validate};

use crate::layered::Shape;
use tilewright_megakernel::testing::Rng;
use tilewright_megakernel::testing::generate::valid;

/// Damaged files of each kind of damage in a plain run.
const TREES: usize = 8_000;
const BYTES: usize = 2_000;
/// The factor of cases in a long run.
const LONG: usize = 50;

/// The files of the corpus, by name.
fn corpus() -> Vec<(String, String)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/programs");
    let entries = std::fs::read_dir(folder).expect("the corpus").map(|entry| entry.expect("a file").path());
    let mut files: Vec<(String, String)> = entries
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).expect("UTF-8"))
        })
        .collect();
    files.sort();
    files
}

/// The kind of each stored file: a valid program, a program that the validator refuses, or not a
/// program.
#[test]
fn stored_programs_keep_their_verdicts() {
    let mut verdicts = String::new();
    for (name, text) in corpus() {
        let verdict = match Program::from_json(&text) {
            Ok(program) => Placed::new(program).map_or_else(|rejected| rejected.to_string(), |_| "valid".to_owned()),
            Err(_) => "not a program".to_owned(),
        };
        assert_eq!(verdict.lines().count(), 1, "{name}: {verdict}");
        let first = verdict.split(['(', ',', '`']).next().unwrap_or_default().trim().to_owned();
        verdicts.push_str(&format!("{name}: {first}\n"));
    }
    insta::assert_snapshot!(verdicts, @r"
    deadlock.json: the program is not valid: program: deadlock
    empty.json: the program has no queues; schedule it before it is loaded
    huge-numbers.json: the program is not valid: buffer b1
    nested.json: not a program
    pool-write-after-read.json: valid
    race.json: the program is not valid: buffer b1
    truncated.json: not a program
    two-copies.json: valid
    unknown-op.json: not a program
    ");
}

#[test]
fn damaged_program_files_are_refused_or_reported_and_never_panic() {
    let seed = std::env::var("TILEWRIGHT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let times = if std::env::var_os("TILEWRIGHT_LONG").is_some() { LONG } else { 1 };
    let trees_of = TREES * times;
    let bytes_of = BYTES * times;
    let mut rng = Rng::new(seed);
    let layered = Shape { layers: 1, ..Shape::small(3) };
    let mut seeds = vec![layered.program(true, true), layered.program(false, false), crate::twins::valid()];
    seeds.extend((0..12).map(|_| valid(&mut rng)));
    let generated = seeds.iter().map(|program| program.to_json().unwrap());
    let texts: Vec<String> = generated.chain(corpus().into_iter().map(|(_, text)| text)).collect();
    let trees: Vec<Value> = texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
    let mut parsed = 0;
    let mut accepted = 0;
    let mut read = |text: &str| {
        if let Ok(program) = Program::from_json(text) {
            let report = validate(&program);
            parsed += 1;
            accepted += usize::from(report.is_valid());
            // The text and the types are total too.
            assert!(report.to_string().starts_with('['));
            assert_eq!(Placed::new(program.clone()).is_ok(), report.is_valid() && program.queues.is_some());
        }
    };
    for at in 0..trees_of {
        let mut tree = trees[at % trees.len()].clone();
        for _ in 0..rng.within(1, 3) {
            damage(&mut tree, &mut rng);
        }
        read(&tree.to_string());
    }
    for at in 0..bytes_of {
        let mut bytes = texts[at % texts.len()].clone().into_bytes();
        for _ in 0..rng.within(1, 4) {
            let place = rng.below(bytes.len().max(1));
            match rng.below(4) {
                0 => bytes.truncate(place.max(1)),
                1 => bytes.extend_from_within(place..),
                _ => bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 1 << rng.below(8)),
            }
        }
        read(&String::from_utf8_lossy(&bytes));
    }
    println!("seed {seed}: {} damaged files, {parsed} parsed, {accepted} of them accepted", trees_of + bytes_of);
    assert!(parsed > 2_000, "the damage should often be within the schema: {parsed}");
    assert!(accepted < parsed, "some damage must be found");
}

/// Changes a random number, array, string or object; most often a number, to one that its type can
/// hold.
fn damage(tree: &mut Value, rng: &mut Rng) {
    let wanted: fn(&Value) -> bool = match rng.below(20) {
        0..14 => Value::is_number,
        14..17 => |value| value.as_array().is_some_and(|items| !items.is_empty()),
        17..19 => Value::is_string,
        _ => Value::is_object,
    };
    let mut left = rng.below(count(tree, wanted).max(1));
    change_nth(tree, wanted, &mut left, rng);
}

fn children(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![],
    }
}

fn count(value: &mut Value, wanted: fn(&Value) -> bool) -> usize {
    usize::from(wanted(value)) + children(value).into_iter().map(|child| count(child, wanted)).sum::<usize>()
}

/// Changes the place that has `left` wanted places before it; whether it was found.
fn change_nth(value: &mut Value, wanted: fn(&Value) -> bool, left: &mut usize, rng: &mut Rng) -> bool {
    if wanted(value) {
        if *left == 0 {
            change(value, rng);
            return true;
        }
        *left -= 1;
    }
    children(value).into_iter().any(|child| change_nth(child, wanted, left, rng))
}

fn change(value: &mut Value, rng: &mut Rng) {
    match value {
        Value::Number(number) => {
            let old = number.as_u64().unwrap_or(1);
            let small = [0, 1, 2, 3, 5, 8, 64, old.saturating_add(1), old.saturating_sub(1), u64::from(u32::MAX)];
            let huge: [Number; 5] = [(-1).into(), u64::MAX.into(), (1u64 << 40).into(), (1u64 << 62).into(), 7.into()];
            *number = if rng.chance(75) { small[rng.below(small.len())].into() } else { huge[rng.below(5)].clone() };
        }
        Value::Array(items) => {
            let a = rng.below(items.len());
            let b = rng.below(items.len());
            match rng.below(4) {
                0 => drop(items.remove(a)),
                1 => items.push(items[a].clone()),
                2 => items.truncate(a),
                _ => items.swap(a, b),
            }
        }
        Value::String(text) => {
            let words = ["", "weight", "activation", "kv_pool", "output", "i32", "f32", "u8", "x0", "h"];
            *text = words[rng.below(words.len())].to_owned();
        }
        Value::Object(fields) if rng.chance(50) => {
            let name = fields.keys().nth(rng.below(fields.len().max(1))).cloned();
            name.and_then(|name| fields.remove(&name));
        }
        Value::Object(fields) => drop(fields.insert("unknown".into(), Value::Null)),
        Value::Null | Value::Bool(_) => *value = Value::from(3),
    }
}

/// Unknown fields of a target are additions of a later version; unknown fields anywhere else are
/// refused.
#[test]
fn additive_fields_load() {
    let text = crate::twins::valid().to_json().unwrap();
    let added = text.replacen("\"sms\":2", "\"sms\":2,\"clusters\":4", 1);
    assert_ne!(added, text);
    assert!(validate(&Program::from_json(&added).unwrap()).is_valid());
    let refused = text.replacen("\"label\":\"left\"", "\"label\":\"left\",\"priority\":1", 1);
    assert_ne!(refused, text);
    let error = Program::from_json(&refused).unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(source.contains("priority"), "{source}");
}

#[test]
fn json_roundtrip() {
    let program = crate::twins::valid();
    let text = program.to_json().unwrap();
    let again = Program::from_json(&text).unwrap();
    assert_eq!(again.to_json().unwrap(), text);
    assert_eq!(validate(&again), validate(&program));
}
