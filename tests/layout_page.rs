//! Every `console` block about layouts prints what it says: those of the pages, and those of the
//! crate's documentation.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A path of the repository.
fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Rust file under a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .collect();
    files.sort();
    files
}

/// The text of a line of documentation; `None` for a line of code.
fn documentation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

/// Runs the commands of a text's `console` blocks, compares what they print, and gives how many
/// there were.
fn run_commands(path: &Path, text: &str) -> usize {
    let mut commands = 0;
    for block in text.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for entry in block.split("$ tilewright ").skip(1) {
            let (command, expected) = entry.split_once('\n').unwrap();
            let output = Command::new(env!("CARGO_BIN_EXE_tilewright")).args(words(command)).output().unwrap();
            let printed = [output.stdout, output.stderr].concat();
            assert_eq!(String::from_utf8(printed).unwrap(), expected, "{}: $ tilewright {command}", path.display());
            commands += 1;
        }
    }
    commands
}

#[test]
fn the_pages_show_what_is_printed() {
    for (page, fewest) in [("docs/layout.md", 40), ("docs/typed-layouts.md", 1)] {
        let commands = run_commands(&at(page), &read(&at(page)));
        assert!(commands >= fewest, "{page}: {commands} commands found");
    }
}

#[test]
fn the_crate_documents_what_is_printed() {
    let mut commands = 0;
    for path in sources(&at("layout/src")) {
        let code = read(&path);
        let text: String = code.lines().map(|line| documentation(line).unwrap_or("").to_owned() + "\n").collect();
        commands += run_commands(&path, &text);
    }
    assert!(commands >= 150, "{commands} commands found");
}

/// The files of the algebra: every public function of theirs is an operator, or of swizzles, every
/// one that can refuse.
#[test]
fn every_operator_has_a_law_its_edge_cases_and_a_picture() {
    let mut operators = 0;
    let algebra =
        [sources(&at("layout/src/ops")), vec![at("layout/src/construct.rs"), at("layout/src/index.rs")]].concat();
    let swizzles = sources(&at("layout/src/swizzle"));
    for (path, all) in algebra.iter().map(|path| (path, true)).chain(swizzles.iter().map(|path| (path, false))) {
        let mut text = String::new();
        for line in read(path).lines() {
            if let Some(words) = documentation(line) {
                text += words;
                text += "\n";
            } else if !line.trim_start().starts_with('#') {
                let text = std::mem::take(&mut text);
                let Some(function) = line.trim_start().strip_prefix("pub const fn ") else { continue };
                if !all && !function.contains("-> Result<") || function.starts_with("constant(") {
                    continue;
                }
                let missing = lacking(&text, function);
                assert!(missing.is_empty(), "{}: `{function}` has no {}", path.display(), missing.join(", no "));
                operators += 1;
            }
        }
    }
    assert!(operators >= 70, "{operators} operators found");
}

/// The missing parts of a function's documentation.
fn lacking(text: &str, function: &str) -> Vec<&'static str> {
    let drawn = text.contains("$ tilewright layout show");
    let given = function.rsplit_once("-> ").map_or("", |(_, given)| given);
    let given = given.strip_prefix("Result<").unwrap_or(given).trim_start_matches('(');
    let gives_a_layout = ["Layout", "Swizzled", "Composed"].iter().any(|kind| given.starts_with(kind));
    let picture = if gives_a_layout { drawn } else { text.contains("```console") };
    let parts = [
        (text.lines().any(|line| line.starts_with("Law")), "law"),
        (text.lines().any(|line| line.starts_with("Edge cases:")), "edge cases"),
        (picture, "picture"),
    ];
    parts.into_iter().filter(|(there, _)| !there).map(|(_, name)| name).collect()
}

#[test]
fn an_operator_without_a_picture_is_found() {
    let text = "Sums.\n\nLaw: it sums.\n\nEdge cases: none.\n\n```console\n$ tilewright layout eval \"8\"\n8\n```\n";
    assert_eq!(lacking(text, "sum(&self) -> i64 {"), Vec::<&str>::new());
    assert_eq!(lacking(text, "sum(&self) -> Result<Layout, LayoutError> {"), ["picture"]);
    assert_eq!(lacking("Sums.\n", "sum(&self) -> i64 {"), ["law", "edge cases", "picture"]);
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
    assert_eq!(show(&["--tile", "4,2"]).matches(r#"<rect class="cell" "#).count(), 64);
    assert!(show(&["--bank", "4"]).ends_with("</svg>\n"));
    // The accumulator of a 16x8 matrix instruction, upper half: thread 5 holds row 1, columns 2
    // and 3.
    assert!(show(&["--thread", "((4,8),2):((16,1),8)"]).contains(">T5V0<"));
}
