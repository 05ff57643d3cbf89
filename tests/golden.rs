//! Every golden vector by the value API, through the same runner as `tilewright layout check`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value as Json, json};
use tilewright::cli::layout::SkipReason;
use tilewright::cli::layout::check::{self, Tally};
use tilewright::cli::layout::verdict::Verdict;

fn tally(name: &str) -> Tally {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let tally = check::run(&path).unwrap();
    assert!(tally.failed == 0, "{name}: {tally}");
    tally
}

/// Runs a file of `tests/golden`, none of whose cases may be skipped, and gives how many passed.
fn run(name: &str) -> usize {
    let tally = tally(name);
    assert!(tally.skipped.is_empty(), "{name}: {tally}");
    tally.passed
}

#[test]
fn layout_cases() {
    assert_eq!(run("layout_cases.jsonl"), 9607);
}

#[test]
fn swizzle_cases() {
    assert_eq!(run("swizzle_cases.jsonl"), 1798);
}

#[test]
fn fragments_of_matrix_atoms() {
    assert_eq!(run("mma_fragments.jsonl"), 52);
}

#[test]
fn error_cases_are_refused() {
    assert_eq!(run("error_cases.jsonl"), 256);
}

/// Cases that CuTe refuses without need: each with the result that the law gives, and the reason.
#[test]
fn divergences_have_the_result_of_the_law_and_a_reason() {
    assert_eq!(run("divergence_cases.jsonl"), 15);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/divergence_cases.jsonl");
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        assert!(case["because"].as_str().is_some_and(|reason| !reason.is_empty()), "{line}");
        assert!(case.get("error").is_some(), "{line}");
    }
}

#[test]
fn quirk_cases_are_refused_or_right() {
    assert_eq!(run("quirk_cases.jsonl"), 70);
}

#[test]
fn mojo_cases_agree_or_have_a_reason() {
    let tally = tally("mojo_cases.jsonl");
    assert_eq!(tally.passed, 634, "{tally}");
    let skipped = BTreeMap::from([
        (SkipReason::Unknown, 11),
        (SkipReason::Helper, 10),
        (SkipReason::Nothing, 2),
        (SkipReason::NestedTile, 2),
        (SkipReason::Drawing, 1),
    ]);
    assert_eq!(tally.skipped, skipped, "{tally}");
}

/// The page has the counts of the run, and a line for every reason and no other.
#[test]
fn the_page_has_the_table_of_mojo_cases() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/layout.md")).unwrap();
    let section = page.split("\n## Mojo's tests\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let tally = tally("mojo_cases.jsonl");
    let skipped: usize = tally.skipped.values().sum();
    let sums = format!("{} of the {} cases at hand agree", tally.passed, tally.passed + skipped);
    assert!(section.contains(&sums), "the page must say `{sums}`");
    let table: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let expected: Vec<String> = tally
        .skipped
        .iter()
        .map(|(reason, count)| format!("| {count} | {} | {} |", reason.cases(), reason.why()))
        .collect();
    assert_eq!(table, expected);
}

/// A comparison that another expectation passes as well would compare nothing.
#[test]
fn no_mojo_case_agrees_with_another_expectation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mojo_cases.jsonl");
    let mut compared = 0;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        if !matches!(check::verdict(&case), Some(Verdict::Pass)) {
            continue;
        }
        compared += 1;
        for last in [false, true] {
            let mut wrong = case.clone();
            falsify(&mut wrong["expected"], last);
            assert!(matches!(check::verdict(&wrong), Some(Verdict::Fail(_))), "{wrong} passes as well as {case}");
        }
    }
    assert_eq!(compared, 634);
}

/// Another value of the same form: the first or the last number, truth value or text changed.
fn falsify(value: &mut Json, last: bool) {
    match value {
        Json::Bool(truth) => *truth = !*truth,
        Json::Number(number) => *value = json!(number.as_i64().unwrap() + 1),
        Json::String(text) => text.push('!'),
        Json::Array(items) => match if last { items.last_mut() } else { items.first_mut() } {
            Some(item) => falsify(item, last),
            None => items.push(json!(0)),
        },
        Json::Object(fields) => falsify(&mut fields["shape"], last),
        Json::Null => panic!("no case expects nothing"),
    }
}

#[test]
fn a_case_of_another_convention_is_skipped_for_its_reason() {
    let reason = |name: &str, args: Json| match check::verdict(&json!({ "fn": name, "args": args, "expected": 1 })) {
        Some(Verdict::Skip(reason)) => Some(reason),
        _ => None,
    };
    assert_eq!(reason("shape_div", json!({ "a": 6, "b": 4 })), Some(SkipReason::Rounded));
    assert_eq!(reason("shape_div", json!({ "a": 8, "b": 8 })), None);
    assert_eq!(reason("depth", json!({ "t": [[1, 2], [3, 4]] })), Some(SkipReason::Depth));
    assert_eq!(reason("depth", json!({ "t": [1, 2] })), None);
    assert_eq!(reason("no such function", json!({})), Some(SkipReason::NoCounterpart));
}

/// A file of cases is input: whatever stands in it, there is a verdict.
#[test]
fn no_broken_mojo_case_panics() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mojo_cases.jsonl");
    let odd = [json!(0), json!(-1), json!(7), json!(1i64 << 40), json!(i64::MAX), json!([]), json!("x"), Json::Null];
    let mut verdicts = 0;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        for place in places(&case["args"], "/args") {
            for value in &odd {
                let mut broken = case.clone();
                *broken.pointer_mut(&place).unwrap() = value.clone();
                verdicts += usize::from(check::verdict(&broken).is_some());
            }
        }
        for number in ["", "0", "9", "18446744073709551615"] {
            let mut broken = case.clone();
            broken["fn"] = json!(case["fn"].as_str().unwrap().replace(|letter: char| letter.is_ascii_digit(), number));
            verdicts += usize::from(check::verdict(&broken).is_some());
        }
    }
    assert!(verdicts > 10_000, "{verdicts}");
}

/// The pointers to everything inside of a value.
fn places(value: &Json, path: &str) -> Vec<String> {
    let inner: Vec<String> = match value {
        Json::Array(items) => {
            items.iter().enumerate().flat_map(|(i, item)| places(item, &format!("{path}/{i}"))).collect()
        }
        Json::Object(fields) => {
            fields.iter().flat_map(|(name, field)| places(field, &format!("{path}/{name}"))).collect()
        }
        _ => Vec::new(),
    };
    [vec![path.to_owned()], inner].concat()
}
