//! Checks that the rows contain every number of the first results, whose files in
//! `benches/results/` have other forms.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use tilewright::results::{ResultRow, Results};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results")
}

/// Returns the old files: name and text.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder()).expect("benches/results") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            found.push((name, fs::read_to_string(&path).expect("text")));
        }
    }
    found.sort();
    assert!(found.len() >= 28, "{} files", found.len());
    found
}

fn rows() -> Results {
    Results::open(&folder().join("rows")).expect("rows")
}

/// Returns the numbers of a line: digits with a point and an exponent; `1,234` is one number.
fn numbers(text: &str) -> Vec<f64> {
    let mut found = Vec::new();
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = 0;
    while at < bytes.len() {
        if !digit(at) {
            at += 1;
            continue;
        }
        let start = at;
        let groups = |at: usize| (1..=3).all(|i| digit(at + i)) && !digit(at + 4);
        while digit(at)
            || (bytes[at..].first() == Some(&b'.') && digit(at + 1))
            || (bytes[at..].first() == Some(&b',') && groups(at))
        {
            at += 1;
        }
        let exponent = bytes[at..].first() == Some(&b'e');
        let signed = exponent && matches!(bytes.get(at + 1), Some(b'-' | b'+'));
        if exponent && digit(at + 1 + usize::from(signed)) {
            at += 1 + usize::from(signed);
            while digit(at) {
                at += 1;
            }
        }
        let token: String = text[start..at].chars().filter(|c| *c != ',').collect();
        // A list such as `1.2.3` is no number; its parts are.
        match token.parse() {
            Ok(number) => found.push(number),
            Err(_) => found.extend(token.split('.').filter_map(|part| part.parse::<f64>().ok())),
        }
    }
    found
}

/// Returns all numbers of a row, including those within its texts.
fn numbers_of_row(row: &ResultRow) -> Vec<f64> {
    let mut found = numbers(&row.suite);
    for text in [Some(&row.variant), Some(&row.who), row.verdict.as_ref(), row.remark.as_ref()].into_iter().flatten() {
        found.extend(numbers(text));
    }
    found.extend(row.shape.values().map(|extent| *extent as f64));
    found.extend(row.values.values().map(|value| value.abs()));
    found.extend(row.values.keys().flat_map(|name| numbers(name)));
    found.extend(&row.samples_us);
    found.extend([row.median_us, row.best_us, row.error].into_iter().flatten());
    found.extend([row.bytes, row.operations].into_iter().flatten().map(|count| count as f64));
    found
}

/// Whether a number is one of these, perhaps in another unit: seconds, milliseconds or nanoseconds
/// for microseconds.
fn is_among(number: f64, found: &[f64]) -> bool {
    let equal = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1e-300);
    found.iter().any(|&value| [1.0, 1e3, 1e-3, 1e6].iter().any(|unit| equal(number * unit, value)) || number == value)
}

/// Returns numbers of the old files that are in no row and no remark: file, line, number.
fn lost(sources: &[(String, String)], results: &Results) -> Vec<(String, usize, f64)> {
    let mut lost = Vec::new();
    for (name, text) in sources {
        let mut by_line: HashMap<usize, Vec<f64>> = HashMap::new();
        let mut all: Vec<f64> = Vec::new();
        for (call, row) in results.rows.iter().map(|found| (results.call(found), &found.1)) {
            if call.source.as_deref() != Some(name.as_str()) {
                continue;
            }
            let [first, last] = row.lines.expect("a converted row names its lines");
            let mut found = numbers_of_row(row);
            found.extend(numbers(&call.device));
            for line in first..=last {
                by_line.entry(line as usize).or_default().extend(&found);
            }
            all.extend(found);
        }
        let remarks: HashMap<usize, &str> = results
            .calls
            .iter()
            .filter(|call| call.source.as_deref() == Some(name.as_str()))
            .flat_map(|call| &call.remarks)
            .map(|remark| (remark.line as usize, remark.text.as_str()))
            .collect();
        for (line, text) in text.lines().enumerate().map(|(at, text)| (at + 1, text)) {
            if remarks.get(&line).is_some_and(|remark| *remark == text.trim_end()) {
                continue;
            }
            // Lines that set a table up (a header, the setting of a trial) are in the rows that
            // follow.
            let there = by_line.get(&line).unwrap_or(&all);
            let missing = numbers(text).into_iter().filter(|number| !is_among(*number, there));
            lost.extend(missing.map(|number| (name.clone(), line, number)));
        }
    }
    lost
}

#[test]
fn every_number_of_every_old_result_is_in_the_rows() {
    let lost = lost(&sources(), &rows());
    assert!(lost.is_empty(), "{} numbers lost: {:?}", lost.len(), &lost[..lost.len().min(30)]);
}

#[test]
fn a_changed_number_and_a_missing_row_are_found() {
    let sources = sources();
    let whole = rows();
    let at = whole.rows.iter().position(|(_, row)| row.suite == "timeline" && row.values.len() > 5).expect("a level");
    let mut changed = whole.clone();
    let length = changed.rows[at].1.values.get_mut("length_us").expect("a length");
    *length += 0.01;
    assert_eq!(lost(&sources, &changed).len(), 1);
    let mut less = whole.clone();
    less.rows.retain(|(_, row)| row.suite != "sample");
    assert!(lost(&sources, &less).len() > 50);
    let mut unsaid = whole;
    unsaid.calls.iter_mut().for_each(|call| call.remarks.clear());
    assert!(lost(&sources, &unsaid).len() > 100);
}

/// A table has columns: figures with gaps of two spaces or more between them.
#[test]
fn no_remark_is_a_line_of_a_table() {
    for call in rows().calls {
        for remark in call.remarks {
            let columns = remark.text.trim().split("  ").filter(|part| !part.trim().is_empty());
            let figures = columns.filter(|part| part.trim().parse::<f64>().is_ok()).count();
            assert!(figures < 2, "{} line {}: {}", call.id, remark.line, remark.text);
        }
    }
}

#[test]
fn a_copy_names_the_row_that_it_is_of() {
    let results = rows();
    let mut copies = 0;
    for (call, row) in &results.rows {
        let Some(name) = &row.copy_of else { continue };
        copies += 1;
        let full = results.rows.iter().find(|other| {
            let same_source = results.call(other).source.as_ref() == Some(name);
            let same = other.1.is_same_measurement(row) && other.1.copy_of.is_none() && same_source;
            let near = |a: Option<f64>, b: Option<f64>| a.zip(b).is_none_or(|(a, b)| (a - b).abs() <= 0.0051);
            same && near(row.median_us, other.1.median_us) && near(row.error, other.1.error)
        });
        assert!(full.is_some(), "{}: {} {}", results.calls[*call].id, row.suite, row.shape_line());
    }
    assert!(copies > 90, "{copies}");
}

#[test]
fn rows_are_read_as_they_were_written() {
    let results = rows();
    let mut text = Vec::new();
    results.write(&mut text).expect("writes");
    let mut again = Results::default();
    again.add(&String::from_utf8(text).expect("UTF-8"), "again").expect("reads");
    assert_eq!(again.calls, results.calls);
    assert_eq!(again.rows.len(), results.rows.len());
}

#[test]
fn a_malformed_file_is_refused_in_one_sentence() {
    let mut results = Results::default();
    let error = results.add("{\"suite\": \"gemm\", \"sutie\": 1}", "typo.jsonl").expect_err("an unknown field");
    assert_eq!(
        error.to_string(),
        "line 1 of `typo.jsonl` is neither a call nor a row; docs/dashboard.md has the schema"
    );
    let error = Results::open(Path::new("no/such/folder")).expect_err("no file");
    assert_eq!(error.to_string(), "results `no/such/folder` cannot be read");
}

/// Every field with a number is bounded, so that no view has an axis without an end.
#[test]
fn numbers_that_no_measurement_has_are_refused_by_name() {
    let line = |fields: &str| format!(r#"{{"suite": "gemm", "who": "tilewright", {fields}}}"#);
    let refused = [
        (r#""median_us": 1.7e308"#, "`median_us` is 1.7e308, expected microseconds, 0 or from 1e-9 to 1e15"),
        (r#""best_us": -1"#, "`best_us` is -1e0, expected microseconds, 0 or from 1e-9 to 1e15"),
        (r#""samples_us": [1.0, 1e200]"#, "`samples_us` is 1e200, expected microseconds, 0 or from 1e-9 to 1e15"),
        (r#""median_us": 1e-300"#, "`median_us` is 1e-300, expected microseconds, 0 or from 1e-9 to 1e15"),
        (r#""joules": 1e31"#, "`joules` is 1e31, expected a number from 0 to 1e30"),
        (r#""error": -0.5"#, "`error` is -5e-1, expected a number from 0 to 1e30"),
        (r#""values": {"wait_us": 1e300}"#, "`values.wait_us` is 1e300, expected a number from -1e30 to 1e30"),
    ];
    for (fields, words) in refused {
        let error = Results::default().add(&line(fields), "rows.jsonl").expect_err(fields);
        assert_eq!(error.to_string(), format!("line 1 of `rows.jsonl`: {words}"));
    }
    let call = r#"{"call": {"id": "a", "date": "2026-01-01", "device": "D", "command": "c", "read_peak": -1}}"#;
    let error = Results::default().add(call, "rows.jsonl").expect_err("a rate");
    assert_eq!(error.to_string(), "line 1 of `rows.jsonl`: `read_peak` is -1e0, expected a number from 0 to 1e30");
    let kept = line(r#""median_us": 1e15, "best_us": 0, "samples_us": [1e-9], "error": 1e30"#);
    Results::default().add(&kept, "rows.jsonl").expect("the ends of the ranges");
}
