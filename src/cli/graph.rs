//! `tilewright graph`: models as graphs of tensor ops.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use tilewright_graph::models;
use tilewright_graph::picture::Svg;

use super::Failure;
use super::output::CommandOutput;
use crate::checkpoint;

/// Graphs of models.
#[derive(Subcommand)]
pub enum GraphCommand {
    /// Print the graph of a model: one line for each op, with the axes of its results
    ///
    /// The graph follows from `config.json` alone; weights are not read.
    Show(ShowArgs),
}

/// The model, and the output format.
#[derive(Args)]
pub struct ShowArgs {
    /// Folder of a Hugging Face checkpoint, or ORG/MODEL in the local cache
    #[arg(long, value_name = "MODEL")]
    model: PathBuf,
    /// Write an SVG image to this file instead
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(command: &GraphCommand) -> Result<ExitCode, Failure> {
    let GraphCommand::Show(args) = command;
    let svg = args.svg.as_deref().map(CommandOutput::create).transpose()?;
    let graph = models::graph(&checkpoint::value_of_folder(&checkpoint::model_folder(&args.model)?)?)?;
    match svg {
        Some(svg) => svg.write(|writer| write!(writer, "{}", Svg(&graph)))?,
        None => write!(io::stdout().lock(), "{graph}")?,
    }
    Ok(ExitCode::SUCCESS)
}
