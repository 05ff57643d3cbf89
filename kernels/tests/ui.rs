//! Mistakes about a tensor's layout and a ring's stages that do not compile, and the compiler's
//! messages.
//!
//! Each file of `tile_ui/fail` and `ring_ui` is one mistake; its `.stderr` beside it is the
//! message. To accept new messages, run with `TRYBUILD=overwrite`.

/// An error in a constant of a library shows the line of the program that asked for it.
#[test]
fn every_message_names_a_line_of_the_program() {
    for folder in ["tests/tile_ui/fail", "tests/ring_ui"] {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let messages: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "stderr")).collect();
        assert!(messages.len() > 8, "{messages:?}");
        for path in messages {
            let text = std::fs::read_to_string(&path).unwrap();
            // A warning is a part of its own, before an empty line.
            let mut errors = text.split("\n\n").filter(|part| !part.starts_with("warning"));
            assert!(errors.any(|part| part.contains("--> tests/")), "{}: {text}", path.display());
        }
    }
}

#[test]
fn misuse_of_tensors_and_rings_does_not_compile() {
    let cases = trybuild::TestCases::new();
    // A case that runs makes trybuild build, not only check: constants of generic code are
    // evaluated then. What the crate stands on is built once for all cases.
    cases.pass("tests/tile_ui/pass/*.rs");
    cases.compile_fail("tests/tile_ui/fail/*.rs");
    cases.compile_fail("tests/ring_ui/*.rs");
}
