//! Completions, manual pages, colours.

use std::process::Command;

use crate::{failure, stdout};

/// The subcommands that the help lists, but for `help` itself.
fn subcommands(help: &str) -> Vec<&str> {
    let listed = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let names = listed.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").collect()
}

/// The words of a text that begin as long options do.
fn options(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'));
    words.filter(|word| word.starts_with("--") && word.len() > 2)
}

#[test]
fn every_shell_gets_completions_that_name_every_subcommand() {
    let help = stdout(&["--help"], b"");
    let commands = subcommands(&help);
    assert!(commands.contains(&"generate") && commands.contains(&"man"), "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout(&["completions", shell], b"");
        for command in &commands {
            assert!(text.contains(command), "{shell}: {command}");
        }
        assert!(text.contains("max-new-tokens"), "{shell}");
    }
    assert!(failure(&["completions", "cmd"], b"").contains("bash"));
}

/// Bash itself, asked as it asks when somebody presses the tabulator.
#[test]
fn bash_completes_subcommands_and_options() {
    let complete = |words: &[&str]| {
        let script = stdout(&["completions", "bash"], b"");
        let words = words.join(" ");
        let ask = format!(
            "COMP_WORDS=(tilewright {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _tilewright tilewright \"${{COMP_WORDS[COMP_CWORD]}}\" \"\"; echo \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["-c", &format!("{script}\n{ask}")]).output().expect("bash runs");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    };
    assert_eq!(complete(&["gen"]), "generate");
    assert_eq!(complete(&["generate", "--prompt-f"]), "--prompt-file");
    assert_eq!(complete(&["layout", "ev"]), "eval");
}

#[test]
fn manual_pages_have_names_synopses_and_options() {
    let page = stdout(&["man"], b"");
    assert!(page.contains(".TH") && page.contains("tilewright") && page.contains(".SH SUBCOMMANDS"), "{page}");
    let page = stdout(&["man", "generate"], b"");
    assert!(page.contains(".SH SYNOPSIS") && page.contains("\\-\\-prompt\\-file"), "{page}");
    assert!(stdout(&["man", "layout", "show"], b"").contains("\\-\\-svg"));
    let line = failure(&["man", "layout", "frobnicate"], b"");
    assert!(line.contains("`frobnicate` is not a subcommand of `layout`; it has eval, check, show"), "{line}");
}

#[test]
fn the_readme_has_every_subcommand_and_no_option_that_it_lacks() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("the README");
    let (_, section) = readme.split_once("## Commands\n\n```sh\n").expect("a section of commands");
    let (section, _) = section.split_once("```").expect("its end");
    let entries: Vec<&str> = section.split("tilewright ").skip(1).collect();
    let named: Vec<&str> = entries.iter().filter_map(|entry| entry.split_whitespace().next()).collect();
    let help = stdout(&["--help"], b"");
    for command in subcommands(&help) {
        assert_eq!(named.iter().filter(|name| **name == command).count(), 1, "`{command}` in {named:?}");
    }
    for (&command, entry) in named.iter().zip(&entries) {
        let mut known = stdout(&[command, "--help"], b"");
        for sub in subcommands(&known.clone()) {
            known += &stdout(&[command, sub, "--help"], b"");
        }
        for option in options(entry) {
            assert!(options(&known).any(|other| other == option), "`{command}` has no {option}");
        }
    }
}

/// Not in a pipe; where somebody wants them everywhere, they are there.
#[test]
fn colours_are_for_terminals() {
    let said = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.args(["validate", "no/such/file"]).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        let output = command.envs(variables.iter().copied()).output().expect("runs");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let plain = said(&[]);
    assert!(plain.starts_with("error: cannot read `no/such/file`"), "{plain}");
    assert_eq!(said(&[("NO_COLOR", "1")]), plain);
    let coloured = said(&[("CLICOLOR_FORCE", "1")]);
    assert!(coloured.starts_with("\u{1b}[") && coloured.contains("error:"), "{coloured:?}");
    for args in [&["--help"][..], &["generate", "--help"], &["layout", "show", "(2,2):(2,1)"]] {
        assert!(!stdout(args, b"").contains('\u{1b}'), "{args:?}");
    }
}
