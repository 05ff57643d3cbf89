//! Misuse of rings must not compile, and what the compiler says about it.
//!
//! Each file of `ring_ui` is one mistake; its `.stderr` beside it is the message. To accept new messages, run with
//! `TRYBUILD=overwrite`.

#[test]
fn misuse_of_rings_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ring_ui/*.rs");
}
