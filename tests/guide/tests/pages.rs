//! Every program and command of README.md and docs/guide prints what its page shows.
//!
//! `TILEWRIGHT_BLESS=1 cargo test -p tilewright-guide` writes the output blocks and the pictures
//! anew.

#[path = "../src/page.rs"]
mod page;

use std::fs;
use std::ops::Range;
use std::process::Command;

/// The output of a run: standard output, followed by standard error if the run failed.
fn run(program: &str, arguments: &[String]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright-guide"));
    command.env("GUIDE_PROGRAM", program).args(arguments).current_dir(page::root());
    let output = command.env_remove("RUST_BACKTRACE").output().expect("the binary of this crate starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut printed = text(&output.stdout);
    if !output.status.success() {
        printed += &format!("{}exit: {}\n", text(&output.stderr), output.status);
    }
    // The simulator names files of the build folder; a reader's are `src/main.rs`.
    let inner = format!("/{program}/src/main.rs");
    while let Some(end) = printed.find(&inner) {
        let start = printed[..end].rfind([' ', '(', '\n', '"']).map_or(0, |at| at + 1);
        printed.replace_range(start..end + inner.len(), "src/main.rs");
    }
    // Trailing blanks are invisible on a page.
    printed.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// The words of a command line, without the quotes around them.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    parts
        .flat_map(|(index, part)| {
            if index % 2 == 1 { vec![part.to_owned()] } else { part.split_whitespace().map(str::to_owned).collect() }
        })
        .collect()
}

fn blesses() -> bool {
    std::env::var_os("TILEWRIGHT_BLESS").is_some()
}

#[test]
fn programs_and_commands_print_what_their_pages_show() {
    let mut wrong = Vec::new();
    let mut ran = 0;
    for page in page::pages() {
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        let mut compare = |name: &str, index: usize, printed: String| {
            ran += 1;
            match page.output_after(index) {
                Some(block) if page.lines_of(block) == printed => {}
                Some(block) if blesses() => edits.push((block.at.clone(), printed)),
                Some(block) => {
                    wrong.push(format!("{name} prints\n{printed}where its page shows\n{}", page.lines_of(block)))
                }
                None => wrong.push(format!("{name} has no block `output` after it; it prints\n{printed}")),
            }
        };
        for (name, index) in page.programs() {
            compare(&name, index, run(&name, &[]));
        }
        for (index, block) in page.blocks.iter().enumerate().filter(|(_, block)| block.kind == "sh") {
            let Some(command) = page.lines_of(block).strip_prefix("tilewright ") else { continue };
            if page.output_after(index).is_some() {
                compare(command.trim(), index, run("tilewright", &words(command)));
            }
        }
        if !edits.is_empty() {
            let mut text = page.text.clone();
            edits.sort_by_key(|(at, _)| std::cmp::Reverse(at.start));
            edits.into_iter().for_each(|(at, printed)| text.replace_range(at, &printed));
            fs::write(&page.path, text).expect("a page of the working copy");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(ran >= 12, "only {ran} programs and commands: are the pages found?");
}

#[test]
fn pictures_are_what_their_commands_draw() {
    let mut wrong = Vec::new();
    let mut drawn = 0;
    for page in page::pages() {
        let commands = page.blocks.iter().filter(|block| block.kind == "sh");
        for line in commands.flat_map(|block| page.lines_of(block).lines()) {
            let mut arguments = words(line);
            let Some(file) = arguments.iter().position(|word| word == "--svg").map(|at| at + 1) else { continue };
            if arguments.first().is_none_or(|word| word != "tilewright") {
                continue;
            }
            let picture = page::root().join(&arguments[file]);
            let made = std::env::temp_dir().join(format!("tilewright-guide-{}-{drawn}.svg", std::process::id()));
            arguments[file] = made.display().to_string();
            let printed = run("tilewright", &arguments[1..]);
            let drawing = fs::read_to_string(&made).unwrap_or_else(|_| panic!("{line} draws nothing: {printed}"));
            fs::remove_file(&made).expect("a file that was just read");
            drawn += 1;
            if fs::read_to_string(&picture).is_ok_and(|shown| shown == drawing) {
                continue;
            }
            if blesses() {
                fs::create_dir_all(picture.parent().expect("a folder")).expect("a working copy");
                fs::write(&picture, drawing).expect("a picture of the working copy");
            } else {
                wrong.push(line.to_owned());
            }
        }
    }
    assert!(wrong.is_empty(), "these commands draw other pictures than the pages have: {wrong:#?}");
    assert!(drawn >= 3, "only {drawn} pictures: are the pages found?");
}
