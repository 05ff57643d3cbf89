//! `tilewright flow`: the sparse-attention flows that are known by name.

mod activations;
mod calibrate;
mod keeps;
mod map;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use tilewright_flow::picture::{FlowDot, FlowSvg, FlowText, FlowView};
use tilewright_flow::{ModelShape, algorithms};

use self::calibrate::CalibrateArgs;
use self::keeps::KeepsArgs;
use self::map::MapArgs;
use super::flow_choice::DEFAULT_BLOCK;
use super::output::CommandOutput;
use super::{Failure, number};

/// Sparse-attention flows: list, draw, measure.
#[derive(Subcommand)]
pub enum FlowCommand {
    /// List the flows, with what they keep of a block.
    List,
    /// Draw a flow: values with formats and shapes, the tasks that run them, bytes of a step.
    Show(ShowArgs),
    /// Measure what each flow keeps of dense attention
    ///
    /// A share of its weights, the error of its output, and whether a planted needle is found.
    Keeps(KeepsArgs),
    /// Measure the parameters of a flow on what a model makes of prompts
    ///
    /// `--flow-parameters` of `generate`, `bench` and `timeline` takes the file.
    Calibrate(CalibrateArgs),
    /// Draw which blocks were attended to at which step
    ///
    /// Of a file that `generate --dump-selection` wrote.
    Map(MapArgs),
}

/// The flow to draw, and the shape of the model.
#[derive(Args)]
pub struct ShowArgs {
    /// Name of the flow; an unknown one lists those there are
    name: String,
    /// Key heads of the model
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number::count(0..=1 << 16))]
    kv_heads: usize,
    /// Query heads that share a key head
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = number::count(0..=1 << 16))]
    group: usize,
    /// Elements of a head
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = number::count(0..=1 << 16))]
    head_dim: usize,
    /// Tokens of a block [default: 16, or what the flow takes]
    #[arg(long, value_name = "N", value_parser = number::count(0..=1 << 16))]
    block: Option<usize>,
    /// Candidate blocks of a row, for the bytes of a step
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = number::count(0..=1 << 24))]
    blocks: usize,
    /// Requests of the step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::count(0..=1 << 16))]
    batch: usize,
    /// Print the graph in the DOT language instead
    #[arg(long)]
    dot: bool,
    /// Write an SVG image to this file instead
    #[arg(long, value_name = "FILE", conflicts_with = "dot")]
    svg: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(command: &FlowCommand) -> Result<ExitCode, Failure> {
    match command {
        FlowCommand::List => list()?,
        FlowCommand::Show(args) => show(args)?,
        FlowCommand::Keeps(args) => keeps::run(args)?,
        FlowCommand::Calibrate(args) => calibrate::run(args)?,
        FlowCommand::Map(args) => map::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list() -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for algorithm in algorithms::ALL {
        let traced = algorithm.trace()?;
        let declared = &traced.declared;
        let fields = declared.fields.iter().map(|field| format!("{} {}", field.name, field.shape));
        let states = declared.states.iter().map(|state| format!("state {} {}", state.name, state.shape));
        let parameters = declared.parameters.iter().map(|p| format!("parameter {} {}", p.name, p.shape));
        let kept = fields.chain(states).chain(parameters).collect::<Vec<_>>().join(", ");
        let kept = if kept.is_empty() { "nothing".into() } else { kept };
        write!(out, "{:<18} {}; keeps {kept}", algorithm.name, algorithm.about)?;
        let blocks = traced.requirements.iter().filter(|requirement| requirement.is_of_blocks());
        for requirement in blocks.map(ToString::to_string).collect::<BTreeSet<_>>() {
            write!(out, "; needs {requirement} (--flow-block)")?;
        }
        if !declared.parameters.is_empty() {
            write!(out, "; needs --flow-parameters FILE, from `tilewright flow calibrate {}`", algorithm.name)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let svg = args.svg.as_deref().map(CommandOutput::create).transpose()?;
    let traced = algorithms::named(&args.name)?.trace()?;
    let ShowArgs { kv_heads, group, head_dim, block, .. } = *args;
    let block_tokens = block.unwrap_or_else(|| traced.block_tokens(DEFAULT_BLOCK));
    let extents = traced.extents(&ModelShape { kv_heads, group, head_dim, block_tokens })?;
    let view = FlowView::new(&traced, extents);
    match svg {
        Some(svg) => svg.write(|writer| write!(writer, "{}", FlowSvg(&view))),
        None if args.dot => Ok(write!(io::stdout(), "{}", FlowDot(&view))?),
        None => {
            let rows = args.batch.saturating_mul(kv_heads);
            Ok(write!(io::stdout(), "{}", FlowText::new(&view, rows, args.blocks))?)
        }
    }
}
