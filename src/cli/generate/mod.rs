//! `tilewright generate`: a prompt's continuation, streamed; those of many prompts, batched.

mod args;
mod batch;
mod flow;
mod job;
mod result;
mod single;

pub use args::GenerateArgs;

use std::process::ExitCode;

use self::flow::{Dump, FlowArgs};
use super::device::DeviceArgs;
use super::group::{self, Role};
use super::interrupt::Interrupt;
use super::load::LoadOptions;
use super::{Failure, number};
use crate::checkpoint::GenerationSettings;
use crate::cli::generate::args::LogprobsUnseen;
use crate::cli::generate::job::GenerationJob;
use crate::engine::{EngineError, Request, Sampling, StopTexts};

/// Runs the subcommand.
pub fn run(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    let sampling = Sampling::default().temperature(args.temperature).top_p(args.top_p).seed(args.seed);
    let sampling = args.top_k.map_or(sampling, |top_k| sampling.top_k(top_k));
    sampling.check().map_err(EngineError::from)?;
    StopTexts::new(args.stop.clone())?;
    args.batch.penalties(&GenerationSettings::default()).check()?;
    args.batch.step_time()?;
    let form = LoadOptions { scheme: args.weights, max_context: args.max_context };
    let group = match Role::of_environment(&args.group)? {
        Role::Stage(group) => return group::run_stage(&args.model, &args.device, form, &group, || Ok(())),
        Role::Driver(group) => group,
    };
    let prompts = args.prompt.read(&args.model, args.max_context)?;
    if args.batch.logprobs.is_some() && !args.json && prompts.len() == 1 {
        return Err(LogprobsUnseen.into());
    }
    let engine = args.steps.apply(group::load(&args.model, &args.device, form, group.as_ref())?)?;
    let (engine, dump) = args.flow.apply(engine)?;
    let mut requests = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let prompt_ids = prompt.ids(&engine)?;
        requests.push(Request { prompt_ids, max_new_tokens: args.max_new_tokens });
    }
    // Errors of the prompts are reported before other ranks join.
    let engine = group::drive(engine, group.as_ref())?;
    let interrupt = Interrupt::aborts(engine.abort_handle())?;
    let work = GenerationJob { engine: &engine, requests, sampling, stop: &args.stop, interrupt, args };
    let done = match &work.requests[..] {
        [request] if !work.needs_batch() => single::run(&work, request),
        _ => batch::run(&work),
    }?;
    dump.map_or(Ok(()), Dump::write)?;
    Ok(done)
}
