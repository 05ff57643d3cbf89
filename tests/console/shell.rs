//! Completions, manual pages, colours.

use std::process::Command;

use crate::{failure, stdout};

/// The commands that a help lists, in groups or not, but for `help` itself.
fn subcommands(help: &str) -> Vec<&str> {
    let listed = help.lines().take_while(|line| !line.starts_with("Options:"));
    let listed = listed.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
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

/// Bash itself, as it completes at the press of a tabulator.
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

/// Not in a pipe, unless `CLICOLOR_FORCE` asks for them.
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
