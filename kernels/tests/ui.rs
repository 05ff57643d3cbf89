//! Mistakes about a tensor's layout and a ring's stages that do not compile, and the compiler's
//! messages.
//!
//! Each file of `tile_ui/fail` and `ring_ui` is one mistake; its `.stderr` beside it is the
//! message. To accept new messages, run with `TRYBUILD=overwrite`.

#[test]
fn misuse_of_tensors_and_rings_does_not_compile() {
    let cases = trybuild::TestCases::new();
    // A case that runs makes trybuild build, not only check: constants of generic code are
    // evaluated then. What the crate stands on is built once for all cases.
    cases.pass("tests/tile_ui/pass/*.rs");
    cases.compile_fail("tests/tile_ui/fail/*.rs");
    cases.compile_fail("tests/ring_ui/*.rs");
}
