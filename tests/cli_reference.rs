//! Properties of every command: the page in `docs/`, examples, groups, the meaning of flags, the
//! range of numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use clap::{Arg, ArgAction, Command, error::ErrorKind};
use tilewright::cli::{command, reference_page};

/// Every command with the words that name it, the groups included.
fn commands() -> Vec<(Vec<String>, Command)> {
    fn walk(words: &[String], command: &Command, all: &mut Vec<(Vec<String>, Command)>) {
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let words = [words, &[sub.get_name().to_owned()]].concat();
            all.push((words.clone(), sub.clone()));
            walk(&words, sub, all);
        }
    }
    let mut all = Vec::new();
    walk(&["tilewright".to_owned()], &command(), &mut all);
    assert!(all.len() > 30, "{}", all.len());
    all
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

#[test]
fn the_page_is_what_the_command_line_says_of_itself() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    let page = reference_page();
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        fs::write(&path, &page).expect("writes");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let line = page.lines().zip(found.lines()).find(|(a, b)| a != b);
    assert!(
        page == found,
        "docs/cli.md differs ({line:?}): TILEWRIGHT_BLESS=1 cargo test --test cli_reference writes it"
    );
    for (words, _) in commands() {
        assert!(page.contains(&format!("`{}`", words.join(" "))), "{words:?}");
    }
}

#[test]
fn every_command_is_in_one_group_of_the_help() {
    let help = command().render_help().to_string();
    for sub in command().get_subcommands() {
        let about = sub.get_about().expect("a command has a description").to_string();
        let listed = help.lines().filter(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            line.starts_with("  ") && words.first() == Some(&sub.get_name()) && line.contains(&about)
        });
        assert_eq!(listed.count(), 1, "{}: {help}", sub.get_name());
    }
}

/// The words of a shell's line: double quotes hold one together.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.trim().chars() {
        match letter {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            letter => words.last_mut().expect("a word").push(letter),
        }
    }
    words
}

/// The words of the line's first command: what follows a pipe, a redirection or a `#` is not its.
/// Spaces may align the columns of several lines.
fn command_words(line: &str) -> Vec<String> {
    let words = shell_words(line).into_iter().filter(|word| !word.is_empty());
    words.take_while(|word| !["|", ">", "#", "&"].contains(&word.as_str())).collect()
}

/// The command lines in the fenced blocks of a page, continued lines joined. Lines with `...` are
/// outlines.
fn shown_commands(page: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut fenced = false;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        fenced ^= line.starts_with("```");
        let mut line = line.trim_start_matches("$ ").to_owned();
        let is_command = line.starts_with("tilewright ") || line.starts_with("cargo run --release --quiet -- ");
        if !fenced || !is_command || line.contains(" = ") {
            continue;
        }
        while let Some(head) = line.strip_suffix('\\') {
            line = format!("{} {}", head.trim_end(), lines.next().expect("a continued line").trim());
        }
        let line = line.replacen("cargo run --release --quiet --", "tilewright", 1);
        if !line.contains("...") {
            all.push(line);
        }
    }
    all
}

#[test]
fn commands_that_pages_show_parse() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["docs", "docs/guide"].map(|folder| root.join(folder));
    let pages = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder of pages"));
    let pages = pages.map(|entry| entry.expect("an entry").path());
    // The generated page has the usage of commands, and examples that another test parses.
    let is_page =
        |path: &Path| path.extension().is_some_and(|extension| extension == "md") && !path.ends_with("cli.md");
    let pages = pages.filter(|path| is_page(path));
    let mut checked = 0;
    let mut refused = Vec::new();
    for path in pages.chain([root.join("README.md"), root.join("CONTRIBUTING.md")]) {
        for line in shown_commands(&fs::read_to_string(&path).expect("a page")) {
            let parsed = command().try_get_matches_from(command_words(&line));
            if let Err(error) = parsed {
                refused.push(format!("{}: `{line}`: {error}", path.display()));
            }
            checked += 1;
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(checked > 80, "pages show commands in another way: {checked}");
}

#[test]
fn every_command_has_an_example_that_parses() {
    for (words, sub) in commands() {
        let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples: Vec<&str> = help.lines().filter(|line| line.starts_with("  tilewright ")).collect();
        let is_group = sub.has_subcommands();
        assert!(!examples.is_empty() || words.len() > 2, "{words:?} has no example");
        for example in examples {
            let line = command_words(example);
            assert!(line.len() > words.len() || !is_group, "{example}");
            assert!(line.iter().zip(&words).all(|(a, b)| a == b), "{example} is not of {words:?}");
            if let Err(error) = command().try_get_matches_from(line) {
                panic!("{example}: {error}");
            }
        }
    }
}

/// An option of one name takes the same kind of value everywhere, or none everywhere.
#[test]
fn a_flag_has_one_meaning() {
    let mut meanings: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (words, sub) in commands() {
        for arg in sub.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let Some(long) = arg.get_long() else { continue };
            let value = arg.get_value_names().map(|names| names[0].to_string()).unwrap_or_default();
            let value = match value.as_str() {
                _ if !takes_value(arg) => "none".to_owned(),
                value if value.starts_with("FILE") || value == "DIR" => "a path".to_owned(),
                "TOKENS" | "BLOCKS" | "SECONDS" | "MS" => "a number".to_owned(),
                value if value.len() == 1 => "a number".to_owned(),
                value => value.to_owned(),
            };
            meanings.entry(long.to_owned()).or_default().insert(value.clone());
            assert!(!value.is_empty(), "{words:?} --{long} has no name for its value");
        }
    }
    let several: Vec<_> = meanings.iter().filter(|(_, values)| values.len() > 1).collect();
    assert!(several.is_empty(), "{several:#?}");
}

#[test]
fn every_option_has_a_help_text_that_starts_with_a_capital_and_has_no_full_stop() {
    for (words, sub) in commands() {
        for arg in sub.get_arguments() {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let starts = help.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit() || c == '-');
            assert!(starts && !help.ends_with('.'), "{words:?} {}: `{help}`", arg.get_id());
        }
    }
}

/// Numbers without a bound on the command line: any seed is one, more tokens than a model has
/// positions are as many as it has, and the engine checks how tokens are sampled and prompts are
/// cut (`tests/cli.rs`, `tests/console`).
const UNBOUNDED: [&str; 11] = [
    "seed",
    "max-context",
    "max-new-tokens",
    "top-k",
    "top-p",
    "temperature",
    "repetition-penalty",
    "presence-penalty",
    "frequency-penalty",
    "step-ms",
    "prompt-chunk",
];

/// No number of 64 bits gets past the command line, where a product of it would wrap; nor do
/// infinity and NaN.
#[test]
fn numbers_on_the_command_line_are_bounded() {
    let mut numbers = 0;
    for (words, sub) in commands().iter().filter(|(_, sub)| !sub.has_subcommands()) {
        for arg in sub.get_arguments().filter(|arg| takes_value(arg) && arg.get_long().is_some()) {
            let long = arg.get_long().expect("a long option");
            let refuses = |value: &str| {
                let option = format!("--{long}={value}");
                let line = words.iter().map(String::as_str).chain([option.as_str()]);
                command().try_get_matches_from(line).is_err_and(|error| error.kind() == ErrorKind::ValueValidation)
            };
            // What takes a word takes any text.
            if !refuses("word") || refuses("3") && refuses("0.5") {
                continue;
            }
            numbers += 1;
            if UNBOUNDED.contains(&long) {
                continue;
            }
            for value in ["18446744073709551615", "9223372036854775807", "-1", "NaN", "inf", "1e308"] {
                let is_float = !refuses("0.5");
                let whole_in_range = is_float && !value.contains(['N', 'f', 'e', '-']);
                assert!(whole_in_range || refuses(value), "{words:?} --{long} takes {value}");
            }
        }
    }
    assert!(numbers > 60, "{numbers}");
}
