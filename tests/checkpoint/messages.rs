//! Texts that no broken folder brings about, and what all texts have in common.

use std::io;
use std::path::PathBuf;

use tilewright::checkpoint::{CheckpointError, TokenizerError};

#[test]
fn errors_of_the_system_name_the_file() {
    let source = io::Error::new(io::ErrorKind::PermissionDenied, "permission denied");
    let error = CheckpointError::Read { path: PathBuf::from("DIR/config.json"), source };
    insta::assert_snapshot!(error, @"file DIR/config.json cannot be read: permission denied");
}

#[test]
fn errors_of_use_say_what_was_given() {
    let source = || "no such piece".into();
    insta::assert_snapshot!(TokenizerError::Encode { bytes: 12, source: source() }, @"text of 12 bytes cannot be encoded: no such piece");
    insta::assert_snapshot!(TokenizerError::Decode { count: 3, source: source() }, @"3 token ids cannot be decoded: no such piece");
    insta::assert_snapshot!(TokenizerError::Diverged { emitted: 10 }, @"decoder of the tokenizer changed text after 10 bytes of it had been given out; decode the ids whole");
    insta::assert_snapshot!(TokenizerError::Stopped { message: "index out of range".into() }, @"file makes the tokenizer stop with: index out of range; it is inconsistent");
}

/// The command line prints the chain of causes and leaves out one that its parent ends with;
/// nothing is said twice.
#[test]
fn an_error_ends_with_its_cause() {
    let folder = crate::folder::Folder::synthetic();
    let mut seen = 0;
    for (file, text) in [("config.json", "{"), ("tokenizer.json", "{"), ("model.safetensors", "{")] {
        let kept = folder.read(file);
        folder.write(file, text);
        let error = folder.open().unwrap_err();
        let cause = std::error::Error::source(&error).expect("a cause");
        assert!(error.to_string().ends_with(&cause.to_string()), "{error} / {cause}");
        seen += 1;
        folder.write(file, kept);
    }
    assert_eq!(seen, 3);
}
