//! `docs/cli.md`: the command line's own definition as a page.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command};

use super::GROUPS;

const PREFACE: &str = "# Command line

This page is generated from the definition of the command line; do not edit it.
`TILEWRIGHT_BLESS=1 cargo test --test cli_reference` writes it, and without the variable that test compares it.
`tilewright COMMAND --help` prints the same in a terminal.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | the answer is no: a program was rejected, a result is wrong |
| 2 | failure: one line on standard error says what was wrong, where, and what to do |
| 130 | interrupted by Ctrl-C; `generate` prints what it has by then |
| 141 | the reader of standard output closed the pipe |

* Results go to standard output or to a file; errors, notes and progress go to standard error.
* An output file is complete or unchanged, also after a crash. A device or a FIFO is written through.
* An input FIFO without a writer is refused after 2 seconds.
* Without `--device` a command runs on `cuda:0` if there is one, else on `cpu`; in a process group on the GPU of its rank on the host. On a terminal it prints which.
";

/// The text of `docs/cli.md`.
pub fn reference_page() -> String {
    let mut command = super::command();
    command.build();
    let mut page = PREFACE.to_owned();
    page.push_str("\n## Options of every command\n\n");
    let global: Vec<&Arg> = command.get_arguments().filter(|arg| is_listed(arg)).collect();
    options(&mut page, &global);
    for (group, names) in GROUPS {
        let _ = write!(page, "\n## {group}\n");
        for name in names.iter().filter(|name| **name != "help") {
            if let Some(command) = command.find_subcommand(name) {
                section(&mut page, command, 3);
            }
        }
    }
    page
}

fn is_listed(arg: &Arg) -> bool {
    !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
}

/// The section of a command and, below it, those of its subcommands.
fn section(page: &mut String, command: &Command, depth: usize) {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let _ = write!(page, "\n{} `{name}`\n\n", "#".repeat(depth));
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string);
    let _ = write!(page, "{}\n\n", paragraphs(&about.unwrap_or_default()));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let _ = write!(page, "```text\n{}\n```\n", usage.trim());
    let own: Vec<&Arg> = command.get_arguments().filter(|arg| is_listed(arg) && !arg.is_global_set()).collect();
    if !own.is_empty() {
        page.push('\n');
        options(page, &own);
    }
    if let Some(help) = command.get_after_help() {
        after_help(page, &help.to_string());
    }
    for command in command.get_subcommands().filter(|command| command.get_name() != "help" && !command.is_hide_set()) {
        section(page, command, depth + 1);
    }
}

/// Paragraphs that end with a full stop, as sentences do.
fn paragraphs(text: &str) -> String {
    let ended = |text: &str| if text.ends_with(['.', ':', ';']) { text.to_owned() } else { format!("{text}.") };
    text.split("\n\n").map(|paragraph| ended(&escaped(paragraph.trim()))).collect::<Vec<_>>().join("\n\n")
}

/// Commands in a block of their own, other lines as text.
fn after_help(page: &mut String, text: &str) {
    let (commands, other): (Vec<&str>, Vec<&str>) =
        text.lines().filter(|line| *line != "Examples:").partition(|line| line.starts_with("  tilewright "));
    if !commands.is_empty() {
        let commands: Vec<&str> = commands.iter().map(|line| line.trim()).collect();
        let _ = write!(page, "\n```sh\n{}\n```\n", commands.join("\n"));
    }
    let other = other.join("\n");
    if !other.trim().is_empty() {
        let _ = write!(page, "\n```text\n{}\n```\n", other.trim());
    }
}

fn options(page: &mut String, args: &[&Arg]) {
    page.push_str("| option | meaning |\n|---|---|\n");
    for arg in args {
        let _ = writeln!(page, "| {} | {} |", name(arg), meaning(arg));
    }
}

/// The option with its value, such as `--seed S`.
fn name(arg: &Arg) -> String {
    let values: Vec<String> = arg.get_value_names().into_iter().flatten().map(ToString::to_string).collect();
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let value = if takes_value { values.join(" ") } else { String::new() };
    let short = arg.get_short().map_or(String::new(), |short| format!("`-{short}`, "));
    match arg.get_long() {
        Some(long) if value.is_empty() => format!("{short}`--{long}`"),
        Some(long) => format!("{short}`--{long} {}`", value.replace('|', "\\|")),
        None => format!("`{value}`"),
    }
}

/// The help of an option, with its default and its values.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = escaped(&help.split_whitespace().collect::<Vec<_>>().join(" "));
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let defaults: Vec<String> = arg.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).collect();
    if takes_value && !defaults.is_empty() {
        let _ = write!(text, " (default `{}`)", defaults.join(","));
    }
    let possible: Vec<String> = arg.get_possible_values().iter().map(|v| format!("`{}`", v.get_name())).collect();
    if takes_value && !possible.is_empty() {
        let _ = write!(text, " (one of {})", possible.join(", "));
    }
    if arg.is_required_set() {
        text.push_str(" (required)");
    }
    text
}

/// Text in which Markdown sees no markup.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}
