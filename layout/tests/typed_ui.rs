//! Programs that must not compile, and what the compiler says about them.
//!
//! Each file of `ui/fail` is one mistake; its `.stderr` beside it is the message. To accept new
//! messages, run with `TRYBUILD=overwrite`.

#[test]
fn illegal_programs_do_not_compile() {
    let cases = trybuild::TestCases::new();
    // A case that runs makes trybuild build, not only check: constants of generic code are
    // evaluated then.
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
