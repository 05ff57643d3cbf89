//! `tilewright logits`: the logits after every token of a prompt, as a safetensors file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};
use thiserror::Error;

use super::Failure;
use super::device::DeviceArgs;
use super::group::{self, GroupArgs, Role};
use super::load::LoadOptions;
use super::output::CommandOutput;
use super::prompt::parse_context;
use super::steps::StepArgs;

/// Compute the logits after every token of a prompt (teacher-forced)
///
/// Writes a safetensors file with one tensor: f32 `logits` [tokens, vocabulary]. In a process group
/// rank 0 writes it.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright logits --model models/tiny-llama --prompt-ids 1,2,3 --out logits.safetensors")]
pub struct LogitsArgs {
    /// Folder of a Hugging Face checkpoint, or ORG/MODEL in the local cache
    #[arg(long, value_name = "MODEL")]
    model: PathBuf,
    /// Token ids, separated by commas
    #[arg(long, value_name = "IDS", value_parser = parse_ids, allow_hyphen_values = true)]
    prompt_ids: Ids,
    /// Write the logits to this file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    steps: StepArgs,
    /// Give the model at most N positions; runs a model whose attention is in chunks of N or more
    /// tokens
    #[arg(long, value_name = "N", value_parser = parse_context)]
    max_context: Option<usize>,
}

/// The ids of one argument; a type of its own, since clap takes a `Vec` for a repeated argument.
#[derive(Clone)]
struct Ids(Vec<u32>);

#[derive(Debug, Error)]
#[error("`{found}` is not a token id; give ids as whole numbers separated by commas, such as 1,2,3")]
struct IdError {
    found: String,
}

fn parse_ids(text: &str) -> Result<Ids, IdError> {
    if text.trim().is_empty() {
        return Ok(Ids(Vec::new()));
    }
    let ids = text.split(',').map(|id| id.trim().parse().map_err(|_| IdError { found: id.to_owned() }));
    Ok(Ids(ids.collect::<Result<_, _>>()?))
}

/// Runs the subcommand.
pub fn run(args: &LogitsArgs) -> Result<ExitCode, Failure> {
    let form = LoadOptions { scheme: None, max_context: args.max_context };
    let group = match Role::of_environment(&args.group)? {
        Role::Stage(group) => return group::run_stage(&args.model, &args.device, form, &group, || Ok(())),
        Role::Driver(group) => group,
    };
    let output = CommandOutput::create(&args.out)?;
    let engine = args.steps.apply(group::load(&args.model, &args.device, form, group.as_ref())?)?;
    let engine = group::drive(engine, group.as_ref())?;
    let ids = &args.prompt_ids.0;
    let logits = engine.logits(ids)?;
    let bytes: Vec<u8> = logits.iter().flat_map(|x| x.to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, vec![ids.len(), engine.spec().vocab], &bytes)?;
    let file = serialize([("logits", view)], None)?;
    output.write(|writer| writer.write_all(&file))?;
    Ok(ExitCode::SUCCESS)
}
