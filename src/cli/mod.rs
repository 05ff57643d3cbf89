//! The command line: one file per subcommand, each an `Args` and a `run`.
//!
//! Every failure is one line on standard error and exit code 2; a check that *answers* no (a rejected program, a golden
//! case that fails) exits with 1. Nothing is written to a named output until it is whole.

mod failure;
pub mod layout;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use failure::Failure;

/// Typed layouts, tile kernels and a persistent megakernel for language models.
#[derive(Parser)]
#[command(name = "tilewright", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The layout algebra: evaluate, check, draw.
    #[command(subcommand)]
    Layout(layout::LayoutCommand),
}

/// Parses the process's arguments, runs the subcommand and turns its outcome into an exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome: Result<ExitCode, Failure> = match cli.command {
        Command::Layout(command) => layout::run(&command),
    };
    outcome.unwrap_or_else(|failure| failure.report())
}
