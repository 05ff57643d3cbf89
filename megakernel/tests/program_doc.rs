//! The page on programs is true: its sample is a valid program, and it describes every op and every
//! kind.

use tilewright_megakernel::program::{BufferKind, JsonError, Op, Program, VERSION};
use tilewright_megakernel::validate::validate;

const PAGE: &str = include_str!("../../docs/program.md");

fn sample() -> &'static str {
    PAGE.split("```json").nth(1).and_then(|rest| rest.split("```").next()).expect("the page has a sample")
}

#[test]
fn the_sample_is_a_valid_program() {
    let program = Program::from_json(sample()).expect("the sample is of the schema");
    let report = validate(&program);
    assert!(report.is_valid(), "{report}");
    assert_eq!(program.tasks.len(), 2);
}

#[test]
fn every_op_and_every_kind_is_described() {
    for name in Op::names() {
        assert!(PAGE.contains(&format!("\n### `{name}`\n")), "op `{name}` has no section");
    }
    for kind in BufferKind::ALL {
        assert!(PAGE.contains(&format!("| `{kind}` |")), "buffer kind `{kind}` has no row");
    }
}

#[test]
fn other_formats_versions_and_fields_are_refused_with_a_reason() {
    let version = format!("\"version\": {VERSION}");
    let text = |from: &str, to: &str| {
        assert!(sample().contains(from), "{from}");
        Program::from_json(&sample().replacen(from, to, 1))
    };
    let error = |from: &str, to: &str| text(from, to).expect_err("refused");
    assert!(matches!(error(&version, "\"version\": 2"), JsonError::Version { found: 2 }));
    assert!(matches!(error("tilewright.program", "soup"), JsonError::Format { .. }));
    assert!(matches!(error("\"queues\"", "\"queue\""), JsonError::Syntax(_)), "an unknown field of the program");
    assert!(matches!(error("\"kind\"", "\"space\": \"smem\", \"kind\""), JsonError::Syntax(_)), "of a buffer");
    assert!(matches!(error("\"label\"", "\"priority\": 1, \"label\""), JsonError::Syntax(_)), "of a task");
    assert!(matches!(error("\"src\"", "\"stride\": 1, \"src\""), JsonError::Syntax(_)), "of an op");
    // A version of the future may have other fields; the version explains more than the first of
    // them.
    let future = sample().replacen(&version, "\"version\": 9", 1).replacen("\"queues\"", "\"lanes\"", 1);
    assert!(matches!(Program::from_json(&future), Err(JsonError::Version { found: 9 })));
    // Hardware may be described in more detail.
    assert!(text("\"arch\"", "\"clock_ghz\": 1.98, \"arch\"").is_ok());
    assert!(Program::from_json("").is_err());
}
