//! Programs that must not compile, and what the compiler says about them.
//!
//! Each file of `ui/fail` is one mistake; its `.stderr` beside it is the message. To accept new
//! messages, run with `TRYBUILD=overwrite`.

/// An error in a constant of the library shows the line of the program that asked for it.
#[test]
fn every_message_names_a_line_of_the_program() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui/fail");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let messages: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "stderr")).collect();
    assert!(messages.len() > 40, "{messages:?}");
    for path in messages {
        let text = std::fs::read_to_string(&path).unwrap();
        // A warning is a part of its own, before an empty line.
        let mut errors = text.split("\n\n").filter(|part| !part.starts_with("warning"));
        assert!(errors.any(|part| part.contains("--> tests/ui/fail/")), "{}: {text}", path.display());
    }
}

#[test]
fn illegal_programs_do_not_compile() {
    let cases = trybuild::TestCases::new();
    // A case that runs makes trybuild build, not only check: constants of generic code are
    // evaluated then.
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
