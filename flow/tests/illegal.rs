//! Flows that must not compile, and what the compiler says about them: each illegal row of the
//! tables of operators, by name.
//!
//! Each file of `ui` is one mistake; its `.stderr` beside it is the message. To accept new
//! messages, run with `TRYBUILD=overwrite`.

#[test]
fn illegal_flows_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
