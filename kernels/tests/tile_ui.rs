//! What the compiler knows of a tensor's layout, it refuses; and what it says.
//!
//! Each file of `tile_ui` is one mistake; its `.stderr` beside it is the message. To accept new messages, run with
//! `TRYBUILD=overwrite`.

#[test]
fn misuse_of_tensors_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/tile_ui/*.rs");
}
