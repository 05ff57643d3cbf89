//! `tilewright completions` and `tilewright man`: what a shell and a manual know of the command line, from its own
//! description.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use thiserror::Error;

use super::Failure;

/// Print completions for a shell
///
/// bash: tilewright completions bash > ~/.local/share/bash-completion/completions/tilewright
/// zsh: tilewright completions zsh > a file _tilewright in a folder of $fpath
/// fish: tilewright completions fish > ~/.config/fish/completions/tilewright.fish
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Print the manual page, or that of a subcommand
///
/// To read it: tilewright man generate | man -l -
#[derive(Args)]
pub struct ManArgs {
    /// Words of a subcommand, such as: layout eval
    command: Vec<String>,
}

#[derive(Debug, Error)]
#[error("`{found}` is not a subcommand of `{of}`; it has {known}")]
struct NoCommand {
    found: String,
    of: String,
    known: String,
}

/// Prints completions of the command line `command`.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> Result<ExitCode, Failure> {
    let name = command.get_name().to_owned();
    // The library's writer panics where a pipe is closed.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut text);
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a manual page of the command line `command`.
pub fn man(args: &ManArgs, mut command: Command) -> Result<ExitCode, Failure> {
    // Names and options of subcommands are complete only then.
    command.build();
    let mut found = &command;
    for word in &args.command {
        let is_asked = |sub: &&Command| sub.get_name() == word;
        found = found.get_subcommands().find(is_asked).ok_or_else(|| {
            let known: Vec<&str> = found.get_subcommands().map(Command::get_name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            NoCommand { found: word.clone(), of: found.get_name().to_owned(), known }
        })?;
    }
    let mut text = Vec::new();
    Man::new(found.clone()).render(&mut text)?;
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}
