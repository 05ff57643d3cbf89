//! `tilewright compile`: a model's architecture becomes a placed program, written as JSON.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use thiserror::Error;
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, MAX_ROWS, lower};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::{BufferKind, Program, Source};
use tilewright_megakernel::schedule::{Balance, schedule};
use tilewright_megakernel::weights::Weights;

use super::Failure;
use super::forms::Forms;
use super::load::open;
use super::number;
use super::output::CommandOutput;
use super::paint::{self, OutputLevel};
use crate::checkpoint::{Checkpoint, ModelConfig};

/// Compile a model to the program of one decode step
///
/// The program is lowered, validated, placed on the target's SMs and validated again. A table of
/// its levels goes to standard error: tasks, bytes, and how far the longest SM is from the ideal.
#[derive(Args)]
#[command(after_help = "Examples:
  tilewright compile --model models/tiny-llama --target h100 --out program.json")]
pub struct CompileArgs {
    /// Folder of a Hugging Face checkpoint, or ORG/MODEL in the local cache
    #[arg(long, value_name = "MODEL", required_unless_present = "config", conflicts_with = "config")]
    model: Option<PathBuf>,
    /// A config.json alone: the architecture without weights, quantised as it says
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Give every weight a random source, so that the program runs without a checkpoint
    #[arg(long, requires = "config")]
    random_weights: bool,
    /// Dtype of the weights of a configuration: f32, f16 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "bf16", value_parser = parse_dtype, conflicts_with = "model")]
    weight_dtype: DType,
    /// GPU to compile for: h100, h200, a100, l4, l40s, rtx4090, rtx5090, b200
    #[arg(long, value_name = "NAME", value_parser = parse_target)]
    target: Target,
    /// Rows of the batch: tokens that one step advances
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = number::count(1..=MAX_ROWS as u64))]
    batch: usize,
    /// Longest sequence, in tokens [default: the model's, at most 4096]
    #[arg(long, value_name = "TOKENS", value_parser = number::tokens())]
    context: Option<usize>,
    /// Tokens of a page of the KV cache, 16 to 256
    #[arg(long, value_name = "TOKENS", default_value_t = 64, value_parser = number::count(16..=256))]
    page_tokens: usize,
    /// Dtype of the KV cache: f32, f16, bf16 or f8e4m3
    #[arg(long, value_name = "DTYPE", default_value = "bf16", value_parser = parse_dtype)]
    kv_dtype: DType,
    /// Choose each row's next token as its request says (op `sample`), not always the likeliest
    #[arg(long)]
    sampling: bool,
    /// Write the program to this file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// A name that is not in the list.
#[derive(Debug, Error)]
enum NameError {
    #[error("`{found}` is not a known target; known are {known}")]
    Target { found: String, known: String },
    #[error("`{found}` is not an element type")]
    DType { found: String },
}

fn parse_target(name: &str) -> Result<Target, NameError> {
    Target::named(name).ok_or_else(|| {
        let known = Target::names().collect::<Vec<_>>().join(", ");
        NameError::Target { found: name.to_owned(), known }
    })
}

fn parse_dtype(name: &str) -> Result<DType, NameError> {
    DType::from_name(name).ok_or_else(|| NameError::DType { found: name.to_owned() })
}

/// Runs the subcommand.
pub fn run(args: CompileArgs) -> Result<ExitCode, Failure> {
    let output = CommandOutput::create(&args.out)?;
    let model = CompileSource::read(&args)?;
    let spec = model.spec();
    let dtype_of = |name: &str| match &model {
        CompileSource::Stored(checkpoint) => checkpoint.tensor(name).map_or(DType::BF16, |tensor| tensor.dtype()),
        CompileSource::Described { .. } => args.weight_dtype,
    };
    let context = args.context.unwrap_or(spec.max_positions.min(4096));
    let options = LowerOptions {
        rows: args.batch,
        page_tokens: args.page_tokens,
        kv: args.kv_dtype,
        sampling: args.sampling,
        ..LowerOptions::for_context(context)
    };
    let program = lower(spec, &dtype_of, args.target.clone(), &options)?;
    let program = match &model {
        CompileSource::Stored(checkpoint) => program.stored_as(&**checkpoint),
        CompileSource::Described { .. } if args.random_weights => with_random_weights(program),
        CompileSource::Described { forms, .. } => program.with_forms(&|name| forms.get(name)),
    };
    let placed = schedule(program, context)?;
    output.write(|writer| placed.write_json(writer))?;
    if paint::level() > OutputLevel::Quiet {
        // The program is written: a closed standard error is not a failure.
        let _ = write!(io::stderr(), "{}", Balance::of(&placed, context));
    }
    Ok(ExitCode::SUCCESS)
}

/// The model that is compiled.
enum CompileSource {
    Stored(Box<Checkpoint>),
    Described { spec: ModelSpec, forms: Forms },
}

/// Random numbers for weights that are codes.
#[derive(Debug, Error)]
#[error("{} has quantised modules ({forms}), and random weights are dense; leave --random-weights out", path.display())]
struct RandomAreDense {
    path: PathBuf,
    forms: String,
}

impl CompileSource {
    fn read(args: &CompileArgs) -> Result<CompileSource, Failure> {
        let path = match (&args.config, &args.model) {
            (Some(path), _) => path,
            (None, Some(dir)) => return Ok(CompileSource::Stored(Box::new(open(dir)?))),
            (None, None) => unreachable!("clap requires --model or --config"),
        };
        let ModelConfig { spec, quantization, .. } = ModelConfig::read(path)?;
        let forms = Forms::of(&spec, quantization, None)?;
        match forms.name().filter(|_| args.random_weights) {
            Some(forms) => Err(RandomAreDense { path: path.clone(), forms: forms.to_owned() }.into()),
            None => Ok(CompileSource::Described { spec, forms }),
        }
    }

    fn spec(&self) -> &ModelSpec {
        match self {
            CompileSource::Stored(checkpoint) => checkpoint.spec(),
            CompileSource::Described { spec, .. } => spec,
        }
    }
}

/// Gives every weight a random source.
fn with_random_weights(mut program: Program) -> Program {
    let weights = program.buffers.iter_mut().filter(|buffer| buffer.kind == BufferKind::Weight);
    for buffer in weights {
        match &buffer.source {
            Some(Source::Tensor(name)) => buffer.source = Some(Source::Random(name.clone())),
            Some(Source::Part { .. } | Source::Experts { .. } | Source::Heads { .. }) => {
                buffer.source = Some(Source::Random(buffer.name.clone()))
            }
            Some(Source::Random(_) | Source::Values(_)) | None => {}
        }
    }
    program
}
