//! The form of the reports, and words that they never use.

use insta::assert_snapshot;
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, rows};
use tilewright_codegen::verify::verify;

#[test]
fn a_report_shows_the_kernel_with_each_error_under_its_line_and_the_line_of_rust() {
    let first_line = line!();
    let kernel = record("hasty", Arch::Sm80, block(64), |k| {
        let s = k.shared::<f32>("tile", 32);
        k.when(k.tid().lt(3), || {
            s.at(40).store(1.0);
            k.barrier();
        });
    });
    let errors = verify(kernel).unwrap_err();
    let line = |n: u32| format!("quality.rs:{}", first_line + n);
    let report = errors.to_string().replace(&line(4), "quality.rs:L4").replace(&line(5), "quality.rs:L5");
    assert_snapshot!(report, @"
    kernel `hasty`: 2 errors
    kernel hasty() sm_80 threads(64, 1, 1) {
      shared s0 tile: 128 bytes at 0 align 16
      v0 = shared s0
      v1 = special.tid.x
      v2 = setp.lt.u32 v1, 3
      if v2 {
        st.f32 shared[v0+160], {1.0}
      ^ error: access to bytes 160..164 of `tile`, which has 128: shorten the access or enlarge the allocation (codegen/tests/verify/quality.rs:L4)
        bar.sync 0 64
      ^ error: bar.sync stands where threads of one warp may part: condition v2 of #3 may differ within it; move it out of the branch or make the condition the same for the warp (codegen/tests/verify/quality.rs:L5)
      }
    }
    ");
    let src = errors.errors[0].src.unwrap();
    assert_eq!((src.file(), src.line()), (file!(), first_line + 4));
    assert!(errors.errors[0].to_string().starts_with(&format!("{}:{}: ", src.file(), src.line())));
}

#[test]
fn what_a_library_refuses_is_reported_at_its_callers_line() {
    #[track_caller]
    fn halves(k: &tilewright_codegen::build::Builder, width: u32) {
        if width % 2 == 1 {
            k.refuse(&format_args!("width {width} is odd: halves need a multiple of 2"));
        }
    }
    let line = line!() + 3;
    let kernel = record("halves", Arch::Sm80, block(32), |k| {
        halves(k, 4);
        halves(k, 5);
    });
    let errors = verify(kernel).unwrap_err();
    assert_eq!(errors.errors.len(), 1);
    assert_eq!(errors.errors[0].src.unwrap().line(), line);
    assert!(errors.errors[0].to_string().ends_with("`// refused`: width 5 is odd: halves need a multiple of 2"));
}

#[test]
fn rows_are_documented_in_sentences() {
    for row in rows() {
        let doc = row.doc.concat();
        assert!(doc.trim_end().ends_with(['.', ')']), "{} ends without a full stop: {doc}", row.name);
        assert!(doc.len() > 8, "{} says too little", row.name);
    }
}

/// The Rust names of the library do not help a reader of an error.
#[test]
fn errors_do_not_speak_of_types_of_the_library() {
    let source = include_str!("../../src/verify/error.rs");
    let texts: Vec<&str> = source.lines().filter(|line| line.trim_start().starts_with("#[error(")).collect();
    assert!(texts.len() > 20);
    for text in texts {
        for word in ["ValueId", "StmtId", "Kernel", "VarId", "Ty::", "{:?}", "Operand"] {
            assert!(!text.contains(word), "{text}");
        }
    }
}

/// The longest piece of a format string without a placeholder.
fn longest_literal(text: &str) -> &str {
    text.split(['{', '}', '`']).max_by_key(|piece| piece.len()).unwrap_or_default()
}

/// The text of every error is in some snapshot: no kind without an invalid twin.
#[test]
fn every_kind_of_error_has_a_twin() {
    let twins = [
        include_str!("arith.rs"),
        include_str!("copy.rs"),
        include_str!("flight.rs"),
        include_str!("launch.rs"),
        include_str!("mem.rs"),
        include_str!("mma.rs"),
        include_str!("quality.rs"),
        include_str!("sync.rs"),
        include_str!("types.rs"),
        include_str!("uniform.rs"),
    ];
    let source = include_str!("../../src/verify/error.rs");
    for text in source.lines().filter_map(|line| line.trim_start().strip_prefix("#[error(\"")) {
        let longest = longest_literal(text.split('"').next().unwrap_or_default());
        let shown = text.starts_with("{what}") || twins.iter().any(|twin| twin.contains(longest));
        assert!(shown, "no twin for {text}");
    }
}

/// The texts that go with a choice are written where the rule is: each of them stands in a snapshot
/// too.
#[test]
fn every_illegal_choice_has_a_twin() {
    let rules = [
        include_str!("../../src/verify/arith.rs"),
        include_str!("../../src/verify/copy.rs"),
        include_str!("../../src/verify/mem.rs"),
        include_str!("../../src/verify/mma.rs"),
        include_str!("../../src/verify/sync.rs"),
    ];
    let twins = [
        include_str!("arith.rs"),
        include_str!("copy.rs"),
        include_str!("mem.rs"),
        include_str!("mma.rs"),
        include_str!("sync.rs"),
    ];
    let texts = || rules.iter().flat_map(|rule| rule.split('"').skip(1).step_by(2)).filter(|text| text.len() > 25);
    let missing: Vec<&str> =
        texts().filter(|text| !twins.iter().any(|twin| twin.contains(longest_literal(text)))).collect();
    assert!(missing.is_empty(), "no twin for {missing:#?}");
    assert!(texts().count() > 25, "few texts were found: the rules moved");
}
