//! Every `console` block of `docs/layout.md` prints what the page says.

use std::path::Path;
use std::process::Command;

#[test]
fn the_page_shows_what_is_printed() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/layout.md")).unwrap();
    let mut commands = 0;
    for block in page.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for entry in block.split("$ tilewright ").skip(1) {
            let (command, expected) = entry.split_once('\n').unwrap();
            let output = Command::new(env!("CARGO_BIN_EXE_tilewright")).args(words(command)).output().unwrap();
            let printed = [output.stdout, output.stderr].concat();
            assert_eq!(String::from_utf8(printed).unwrap(), expected, "$ tilewright {command}");
            commands += 1;
        }
    }
    assert!(commands >= 12, "{commands} commands found");
}

/// The words of a command line, with `"..."` as one.
fn words(line: &str) -> Vec<String> {
    let quoted = line.split('"').enumerate();
    quoted
        .flat_map(
            |(i, part)| {
                if i % 2 == 1 { vec![part.to_owned()] } else { part.split_whitespace().map(str::to_owned).collect() }
            },
        )
        .collect()
}

#[test]
fn check_says_what_failed_and_how_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_tilewright")).args(["layout", "check"]).arg(&path).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let good = r#"{"id":"a","op":"size","args":[{"shape":[2,3],"stride":[3,1]}],"out":6,"tags":[]}"#;
    let wrong = r#"{"id":"b","op":"size","args":[{"shape":[2,3],"stride":[3,1]}],"out":7,"tags":[]}"#;
    assert_eq!(run("good", good), (Some(0), "1 passed, 0 failed\n".into(), String::new()));
    let (code, text, _) = run("wrong", &format!("{good}\n{wrong}\n"));
    assert_eq!((code, text.as_str()), (Some(1), "b: size((2,3):(3,1)) gave 6, expected 7\n1 passed, 1 failed\n"));
    let (code, _, error) = run("broken", "{\"id\":");
    assert_eq!(code, Some(2));
    assert!(error.contains("broken, line 1"), "{error}");
    let missing =
        Command::new(env!("CARGO_BIN_EXE_tilewright")).args(["layout", "check", "/nowhere"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn show_writes_a_whole_image() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image.svg");
    let show = |colour: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.args(["layout", "show", "(8,8):(8,1)", "--svg"]).arg(&image).args(colour);
        assert!(command.output().unwrap().status.success());
        std::fs::read_to_string(&image).unwrap()
    };
    assert_eq!(show(&["--tile", "4,2"]).matches("<rect ").count(), 64);
    assert!(show(&["--bank", "4"]).ends_with("</svg>\n"));
    // The accumulator of a 16x8 matrix instruction, upper half: thread 5 holds row 1, columns 2 and 3.
    assert!(show(&["--thread", "((4,8),2):((16,1),8)"]).contains(">T5V0<"));
}
