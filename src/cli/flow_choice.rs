//! A sparse-attention flow by name, with its blocks: an argument of several subcommands.

use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedI64ValueParser;
use thiserror::Error;
use tilewright_flow::algorithms;
use tilewright_flow::memory::Budget;
use tilewright_flow::program::FlowSettings;
use tilewright_megakernel::model::ModelSpec;

use super::{Failure, number};
use crate::engine::read_flow_parameters;

/// A flow without what it needs of the model.
#[derive(Debug, Error)]
#[error("flow `{flow}` has parameters; give --flow-parameters FILE, which `tilewright flow calibrate {flow}` writes")]
struct NoParameters {
    flow: String,
}

/// Tokens of a block, of flows that take any number.
pub const DEFAULT_BLOCK: usize = 16;

/// The flow that selects the blocks of tokens for a decode step.
#[derive(Args, Default)]
pub struct FlowChoice {
    /// Attend to the blocks of tokens that this flow chooses; `tilewright flow list` prints the
    /// names
    #[arg(long, value_name = "NAME")]
    flow: Option<String>,
    /// Blocks that the flow chooses, besides the first and the last ones
    #[arg(long, value_name = "BLOCKS", default_value_t = 64, requires = "flow", value_parser = blocks())]
    flow_budget: u32,
    /// Tokens of a block [default: 16, or what the flow takes; `tilewright flow list` prints which]
    #[arg(long, value_name = "N", requires = "flow", value_parser = number::count(0..=1 << 16))]
    flow_block: Option<usize>,
    /// Blocks at the start that are always attended to
    #[arg(long, value_name = "N", default_value_t = 1, requires = "flow", value_parser = blocks())]
    flow_first: u32,
    /// Blocks at the end that are always attended to, at least 1
    #[arg(long, value_name = "N", default_value_t = 1, requires = "flow", value_parser = blocks())]
    flow_last: u32,
    /// Parameters of the flow, a file that `tilewright flow calibrate` wrote
    #[arg(long, value_name = "FILE", requires = "flow")]
    flow_parameters: Option<PathBuf>,
}

/// Numbers of blocks, whose sum with others does not wrap.
fn blocks() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(0..=1 << 24)
}

impl FlowChoice {
    /// The flow that the options name, for a model.
    pub fn settings(&self, spec: &ModelSpec) -> Result<Option<FlowSettings>, Failure> {
        let Some(name) = &self.flow else { return Ok(None) };
        let budget = Budget::new(self.flow_budget, 0.0, self.flow_first, self.flow_last)?;
        let traced = algorithms::named(name)?.trace()?;
        let block_tokens = self.flow_block.unwrap_or_else(|| traced.block_tokens(DEFAULT_BLOCK));
        let flow = FlowSettings::new(traced, block_tokens, budget)?;
        match &self.flow_parameters {
            Some(path) => {
                let parameters = read_flow_parameters(path, &flow, spec)?;
                Ok(Some(flow.with_parameters(parameters)))
            }
            None if flow.traced().declared.parameters.is_empty() => Ok(Some(flow)),
            None => Err(NoParameters { flow: name.clone() }.into()),
        }
    }
}
