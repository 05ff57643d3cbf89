//! Parameters of a flow, measured on what a model makes of texts.

use std::path::PathBuf;

use clap::Args;
use tilewright_flow::algorithms::{self, CalibrationSample};
use tilewright_flow::memory::Budget;
use tilewright_flow::program::FlowSettings;
use tilewright_flow::{ModelShape, Parameters};

use super::activations::{Layer, activations};
use crate::cli::Failure;
use crate::cli::load::load;
use crate::cli::output::CommandOutput;
use crate::cli::prompt::PromptArgs;
use crate::engine::{Device, EngineError, flow_parameters_file};

/// The parameters to measure, and the data.
#[derive(Args)]
pub struct CalibrateArgs {
    /// Name of the flow
    name: String,
    /// Folder of a Hugging Face checkpoint, or ORG/MODEL in the local cache
    #[arg(long, value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    prompt: PromptArgs,
    /// File of safetensors that the parameters go to, whole or not at all
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Tokens of a block: parameters do not depend on them.
const BLOCK: usize = 16;

/// Runs the subcommand.
pub fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    let algorithm = algorithms::named(&args.name)?;
    let prompts = args.prompt.read(&args.model, None)?;
    let output = CommandOutput::create(&args.out)?;
    let engine = load(&args.model, Device::cpu())?;
    let spec = engine.spec();
    let model =
        ModelShape { kv_heads: spec.kv_heads, group: spec.group(), head_dim: spec.head_dim, block_tokens: BLOCK };
    let mut seen = vec![Layer::default(); spec.layers];
    for prompt in prompts {
        let ids = prompt.ids(&engine)?;
        if ids.len() > spec.max_positions {
            return Err(EngineError::PromptTooLong { tokens: ids.len(), max: spec.max_positions }.into());
        }
        for (seen, layer) in seen.iter_mut().zip(activations(engine.checkpoint(), &ids)?) {
            seen.queries.extend(layer.queries);
            seen.keys.extend(layer.keys);
        }
    }
    let of =
        |layer: &Layer| algorithm.calibrate(&model, CalibrationSample { queries: &layer.queries, keys: &layer.keys });
    let layers = seen.iter().map(of).collect::<Result<Vec<Parameters>, _>>()?;
    // The file does not depend on the budget.
    let flow = FlowSettings::new(algorithm.trace()?, BLOCK, Budget::new(1, 0.0, 1, 1)?)?;
    let file = flow_parameters_file(&flow, spec, &layers)?;
    output.write(|writer| writer.write_all(&file))
}
