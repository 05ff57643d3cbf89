//! `tilewright completions` and `tilewright man`, generated from the definition of the command
//! line.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use thiserror::Error;

use super::Failure;

/// Print completions for a shell
///
/// For zsh, write them to a file _tilewright in a folder of $fpath.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright completions bash > ~/.local/share/bash-completion/completions/tilewright
  tilewright completions fish > ~/.config/fish/completions/tilewright.fish")]
pub struct CompletionsArgs {
    /// Shell that reads the completions
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Print the manual page of the program or of a command
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright man generate | man -l -")]
pub struct ManArgs {
    /// Words of the command, such as: layout eval
    #[arg(value_name = "COMMAND")]
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
    // The library panics if it writes to a closed pipe.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut text);
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a manual page of the command line `command`.
pub fn man(args: &ManArgs, mut command: Command) -> Result<ExitCode, Failure> {
    // This completes names and options of subcommands.
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
