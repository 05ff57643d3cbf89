//! A fuzz target on stable Rust: whatever bytes a file of results holds, the page and the report
//! are made or the file is refused. The corpus is `tests/data/results`; `TILEWRIGHT_LONG=1` runs 50
//! times the cases.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Number, Value};

use super::board::Board;
use super::page;
use crate::cli::report;
use crate::results::{Call, Results};

/// Files of the corpus.
fn corpus() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/results");
    let files = fs::read_dir(folder).expect("the corpus").map(|file| file.expect("a file").path());
    let mut texts: Vec<String> = files.map(|file| fs::read_to_string(file).expect("text")).collect();
    texts.sort();
    assert!(texts.len() >= 3);
    texts
}

/// Makes everything that is made of results. Returns whether the text was read.
fn make(text: &str) -> bool {
    let mut results = Results::default();
    if let Err(error) = results.add(text, "fuzz.jsonl") {
        assert!(!error.to_string().is_empty() && !error.to_string().contains('\n'), "{error}");
        return false;
    }
    let start = Instant::now();
    let page = page::page(&Board::new(&results)).expect("a page");
    assert!(page.ends_with("</html>"));
    assert!(!page.contains("NaN"), "a number that is none is shown");
    let report = report::page::page(&results);
    assert!(report.starts_with("# Benchmarks") && !report.contains("NaN"));
    if let Ok(chart) = report::chart::chart(&results) {
        assert!(chart.ends_with("</svg>\n") && !chart.contains("NaN") && !chart.contains("inf"));
    }
    assert!(start.elapsed() < Duration::from_secs(30), "{} rows took {:?}", results.rows.len(), start.elapsed());
    true
}

/// Numbers at the ends of their ranges.
const ENDS: [f64; 12] = [0.0, -1.0, 1.0, 1e-300, 1e-9, 1e15, 1e30, -1e30, 1e200, 1.7e308, 4.5e15, 1.8e19];

/// Replaces the `at`-th number of a value.
fn replace(value: &mut Value, at: &mut usize, by: &Number) {
    match value {
        Value::Number(number) => {
            if *at == 0 {
                *number = by.clone();
            }
            *at = at.wrapping_sub(1);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, at, by)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, at, by)),
        _ => {}
    }
}

/// A change of a file: a number of a line replaced, a field left out, a byte replaced, a piece cut
/// out or doubled.
#[derive(Clone, Debug)]
enum FileChange {
    Number { line: usize, at: usize, end: usize },
    Count { line: usize, at: usize, count: u64 },
    Without { line: usize, field: usize },
    Byte { at: usize, byte: u8 },
    Cut { at: usize, length: usize },
    Double { line: usize, times: usize },
}

fn change() -> impl Strategy<Value = FileChange> {
    let place = any::<usize>;
    prop_oneof![
        4 => (place(), 0..20usize, 0..ENDS.len()).prop_map(|(line, at, end)| FileChange::Number { line, at, end }),
        4 => (place(), 0..20usize, prop_oneof![Just(u64::MAX), Just(0), any::<u64>()])
            .prop_map(|(line, at, count)| FileChange::Count { line, at, count }),
        2 => (place(), place()).prop_map(|(line, field)| FileChange::Without { line, field }),
        1 => (place(), any::<u8>()).prop_map(|(at, byte)| FileChange::Byte { at, byte }),
        1 => (place(), 0..60usize).prop_map(|(at, length)| FileChange::Cut { at, length }),
        1 => (place(), 1..40usize).prop_map(|(line, times)| FileChange::Double { line, times }),
    ]
}

fn apply(text: &str, change: &FileChange) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return String::new();
    }
    let count = lines.len();
    let mut renumber = |line: usize, mut at: usize, number: Option<Number>| {
        let line = &mut lines[line % count];
        if let (Ok(mut value), Some(number)) = (serde_json::from_str::<Value>(line), number) {
            replace(&mut value, &mut at, &number);
            *line = value.to_string();
        }
    };
    match *change {
        FileChange::Number { line, at, end } => renumber(line, at, Number::from_f64(ENDS[end])),
        FileChange::Count { line, at, count } => renumber(line, at, Some(Number::from(count))),
        FileChange::Without { line, field } => {
            let line = &mut lines[line % count];
            if let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(line) {
                let name = fields.keys().nth(field % fields.len().max(1)).cloned();
                name.and_then(|name| fields.remove(&name));
                *line = Value::Object(fields).to_string();
            }
        }
        FileChange::Double { line, times } => {
            let line = lines[line % count].clone();
            lines.extend(std::iter::repeat_n(line, times));
        }
        FileChange::Byte { at, byte } => {
            let mut bytes = text.as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            return String::from_utf8_lossy(&bytes).into_owned();
        }
        FileChange::Cut { at, length } => {
            let mut bytes = text.as_bytes().to_vec();
            let at = at % bytes.len();
            bytes.drain(at..(at + length).min(text.len()));
            return String::from_utf8_lossy(&bytes).into_owned();
        }
    }
    lines.join("\n")
}

#[test]
fn any_file_of_results_is_drawn_or_refused() {
    let corpus = corpus();
    let read = corpus.iter().filter(|text| make(text)).count();
    assert!(read >= 1 && read < corpus.len(), "the corpus has files that are drawn and files that are refused");
    let long = std::env::var_os("TILEWRIGHT_LONG").is_some();
    let mut runner =
        TestRunner::new(Config { cases: if long { 6000 } else { 120 }, ..Config::with_source_file(file!()) });
    let strategy = (0..corpus.len(), proptest::collection::vec(change(), 1..4));
    let outcome = runner.run(&strategy, |(file, changes)| {
        let text = changes.iter().fold(corpus[file].clone(), |text, change| apply(&text, change));
        make(&text);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}\n{runner}"));
}

#[test]
fn any_bytes_are_read_or_refused() {
    let long = std::env::var_os("TILEWRIGHT_LONG").is_some();
    let mut runner =
        TestRunner::new(Config { cases: if long { 50_000 } else { 1000 }, ..Config::with_source_file(file!()) });
    let outcome = runner.run(&proptest::collection::vec(any::<u8>(), 0..400), |bytes| {
        make(&String::from_utf8_lossy(&bytes));
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}\n{runner}"));
}

/// A peer's row without its error used to draw a bar at NaN.
#[test]
fn a_row_without_its_number_is_not_drawn() {
    let mut made = 0;
    for text in corpus() {
        let lines: Vec<&str> = text.lines().collect();
        for line in 0..lines.len() {
            for field in 0..12 {
                made += usize::from(make(&apply(&text, &FileChange::Without { line, field })));
            }
        }
    }
    assert!(made > 100, "{made} of the files were read");
}

/// Every view of 20,000 rows of one shape, two to a call, takes time in proportion to the rows.
#[test]
fn twenty_thousand_rows_of_one_shape_take_seconds() {
    let results = |calls: usize| {
        let mut results = Results::default();
        let mut text = String::new();
        for number in 0..calls {
            let call = Call {
                id: format!("call {number}"),
                date: "2026-01-01".into(),
                device: "NVIDIA H200".into(),
                commit: Some(format!("{number:08x}")),
                ..Call::default()
            };
            text += &serde_json::json!({ "call": call }).to_string();
            let us = 600.0 + number as f64 / 100.0;
            let shape = serde_json::json!({ "hidden": 2048, "layers": 16, "batch": 1, "context": 200 });
            for who in ["tilewright", "pytorch-cuda-graph"] {
                let row = serde_json::json!({ "suite": "decode", "who": who, "shape": shape, "variant": "launches of 200, median of 5",
                    "median_us": us, "bytes": 2_474_905_728u64 });
                text = text + "\n" + &row.to_string();
            }
            text.push('\n');
        }
        results.add(&text, "many.jsonl").expect("rows");
        results
    };
    let seconds = |results: &Results| {
        let start = Instant::now();
        let page = page::page(&Board::new(results)).expect("a page");
        assert!(page.len() > 1000);
        assert!(report::page::page(results).contains("Llama-3.2-1B"));
        start.elapsed().as_secs_f64()
    };
    let few = results(1_000);
    let many = results(10_000);
    let first = seconds(&few);
    let second = seconds(&many);
    println!("2,000 rows: {first:.3} s; 20,000 rows: {second:.3} s");
    // Ten times the rows: ten times the time, and a margin for a busy machine. Quadratic time would
    // be a hundred times.
    assert!(second < 40.0 * first.max(0.05), "{first} s and {second} s");
}
