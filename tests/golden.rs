//! Every golden vector by the value API, through the same runner as `tilewright layout check`.

use std::path::Path;

use tilewright::cli::layout::check;

/// Runs a file of `tests/golden` and gives how many cases passed.
fn run(name: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let tally = check::run(&path).unwrap();
    assert!(
        tally.failed == 0,
        "{name}: {} passed, {} failed\n{}",
        tally.passed,
        tally.failed,
        tally.failures.join("\n")
    );
    tally.passed
}

#[test]
fn layout_cases() {
    assert_eq!(run("layout_cases.jsonl"), 9617);
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
    assert_eq!(run("error_cases.jsonl"), 271);
}

#[test]
fn quirk_cases_are_refused_or_right() {
    assert_eq!(run("quirk_cases.jsonl"), 60);
}

#[test]
fn mojo_cases_that_agree() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mojo_cases.jsonl");
    let tally = check::run(&path).unwrap();
    assert!(tally.failed == 0, "{tally}");
    assert_eq!(tally.passed, 508, "{tally}");
}
