//! The model of `bench` and `timeline`: its decode program on a device, with the weights of a
//! checkpoint or random ones.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tilewright_flow::program::{FlowSettings, Lowered, Phase};
use tilewright_layout::DType;
use tilewright_megakernel::lower::{Indexer, LowerOptions, lower_indexed};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::schedule::{TYPICAL_CONTEXT, schedule};
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::resident::DeviceWeights;
use tilewright_megakernel::weights::{RandomCodes, RandomWeights};

use super::flow_choice::FlowChoice;
use super::forms::Forms;
use super::load::{LoadOptions, open_as};
use super::progress::LoadBar;
use super::{Failure, number};
use crate::checkpoint::{ModelConfig, Scheme, model_folder};
use crate::engine::{self, KvType, Opened, SharedWeights};

/// Seed of random weights.
pub const SEED: u64 = 7;

/// A model, with the weights of a checkpoint or random ones.
#[derive(Args)]
pub struct ModelSource {
    /// Folder of a Hugging Face checkpoint, or ORG/MODEL in the local cache
    #[arg(long, value_name = "MODEL", conflicts_with = "config")]
    model: Option<PathBuf>,
    /// A config.json alone: its architecture with random weights, bf16 or quantised as it states
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Random weights; implied by --config
    #[arg(long, requires = "config")]
    random_weights: bool,
    /// Quantise the linear layers while loading: w4a16, w8a16 or fp8
    #[arg(long, value_name = "SCHEME")]
    weights: Option<Scheme>,
    /// A known architecture, with random bf16 weights.
    #[arg(skip)]
    known: Option<&'static str>,
    /// The configuration, once it was read.
    #[arg(skip)]
    described: OnceCell<Box<Described>>,
}

/// An architecture, and which of its weights are quantised.
struct Described {
    spec: ModelSpec,
    forms: Forms,
}

/// A model and how it is run.
#[derive(Args)]
pub struct SubjectArgs {
    #[command(flatten)]
    source: ModelSource,
    /// Sequences that are decoded together, 1 to 64; more than 16 with `bench decode` only
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    batch: u16,
    /// Tokens of each sequence at the end
    #[arg(long, value_name = "TOKENS", default_value_t = 1024, value_parser = number::tokens())]
    context: usize,
    /// Store keys and values as bf16, or as fp8 (e4m3) in half the memory
    #[arg(long, value_name = "TYPE", default_value = "bf16")]
    kv: KvType,
    #[command(flatten)]
    flow: FlowChoice,
}

/// A machine that is ready to decode.
pub struct DecodeSubject {
    pub spec: ModelSpec,
    pub weights: SharedWeights,
    pub machine: DeviceMachine,
    pub rows: usize,
    pub context: usize,
    /// Type of keys and values.
    pub kv: KvType,
    /// Pages of a sequence.
    pages: usize,
    /// The flow that chooses which tokens rows attend to.
    pub flow: Option<FlowSettings>,
}

impl ModelSource {
    /// Opens the checkpoint, or draws weights for the configuration.
    pub fn open(&self) -> Result<(ModelSpec, SharedWeights), Failure> {
        match (&self.model, &self.config) {
            (Some(dir), _) => {
                let checkpoint = open_as(dir, LoadOptions { scheme: self.weights, max_context: None })?;
                Ok((checkpoint.spec().clone(), Arc::new(checkpoint)))
            }
            _ => {
                let Described { spec, forms } = self.described()?;
                let form = |name: &str| forms.get(name).map(|(form, _)| form);
                let codes = || RandomCodes::of_forms(spec, DType::BF16, SEED, form);
                let numbers = || RandomWeights::new(spec, DType::BF16, SEED);
                let weights: SharedWeights = match (forms.is_empty(), spec.experts) {
                    (true, None) => Arc::new(numbers()?),
                    (true, Some(_)) => Arc::new(numbers()?.with_independent_rows(spec)?),
                    (false, None) => Arc::new(codes()?),
                    (false, Some(_)) => Arc::new(codes()?.with_independent_rows(spec)?),
                };
                Ok((spec.clone(), weights))
            }
        }
    }

    /// The architecture.
    pub fn spec(&self) -> Result<ModelSpec, Failure> {
        Ok(self.described()?.spec.clone())
    }

    /// The forms of the quantised weights.
    pub fn forms(&self) -> Result<&Forms, Failure> {
        Ok(&self.described()?.forms)
    }

    /// The configuration, with the quantisation that the command line adds to dense weights.
    fn described(&self) -> Result<&Described, Failure> {
        if let Some(described) = self.described.get() {
            return Ok(described);
        }
        let (spec, quantization) = match (&self.model, &self.config, self.known.and_then(ModelSpec::named)) {
            (None, None, None) => return Err("give a model: --model DIR, or --config FILE for random weights".into()),
            (None, None, Some(spec)) => (spec, None),
            (Some(dir), ..) => {
                ModelConfig::of_folder(&model_folder(dir)?).map(|config| (config.spec, config.quantization))?
            }
            (None, Some(file), _) => ModelConfig::read(file).map(|config| (config.spec, config.quantization))?,
        };
        let forms = Forms::of(&spec, quantization, self.weights)?;
        Ok(self.described.get_or_init(|| Box::new(Described { spec, forms })))
    }
}

impl SubjectArgs {
    /// A known architecture with random weights.
    pub fn of_known_model(name: &'static str, batch: u16, context: usize) -> SubjectArgs {
        let model = None;
        let config = None;
        let weights = None;
        let described = OnceCell::new();
        let source = ModelSource { model, config, random_weights: true, weights, known: Some(name), described };
        let kv = KvType::Bf16;
        let flow = FlowChoice::default();
        SubjectArgs { source, batch, context, kv, flow }
    }

    /// The architecture.
    pub fn spec(&self) -> Result<ModelSpec, Failure> {
        self.source.spec()
    }

    /// The architecture and its weights.
    pub fn weights(&self) -> Result<(ModelSpec, SharedWeights), Failure> {
        self.source.open()
    }

    /// The forms of the quantised weights.
    pub fn forms(&self) -> Result<&Forms, Failure> {
        self.source.forms()
    }

    /// Sequences that are decoded together.
    pub fn rows(&self) -> usize {
        usize::from(self.batch)
    }

    /// Type of keys and values.
    pub fn kv(&self) -> KvType {
        self.kv
    }

    /// Tokens of each sequence at the end.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The flow that chooses which tokens decode steps attend to, if any.
    pub fn flow(&self) -> Result<Option<FlowSettings>, Failure> {
        self.flow.settings(&self.spec()?)
    }

    /// Opens the model and the device, and makes the machine; `change` may change its options.
    pub fn open(
        &self,
        device: engine::Device,
        change: impl FnOnce(DeviceOptions) -> Result<DeviceOptions, Failure>,
    ) -> Result<DecodeSubject, Failure> {
        let Opened { devices, target, options, .. } = engine::open(device)?;
        let options = change(options)?;
        let (spec, weights) = self.source.open()?;
        let rows = usize::from(self.batch);
        let context = self.context;
        let lowering =
            LowerOptions { rows, kv: self.kv.dtype(), activation: DType::BF16, ..LowerOptions::for_context(context) };
        let lowering = LowerOptions { devices: devices.len(), ..lowering };
        let lowering = lowering.splits_for_gpu(spec.kv_heads, target.sms);
        let dtype_of = |name: &str| weights.tensor(name).map_or(DType::BF16, |tensor| tensor.dtype());
        let flow = self.flow()?;
        let mut indexer = flow.as_ref().map(|flow| Lowered::new(flow, phase_of(flow, context), rows));
        let indexer = indexer.as_mut().map(|indexer| indexer as &mut dyn Indexer);
        let program = lower_indexed(&spec, &dtype_of, target, &lowering, indexer)?;
        let placed = schedule(program.stored_as(&*weights).with_cut_sums(&options)?, TYPICAL_CONTEXT)?;
        let bar = LoadBar::new();
        let mut resident = DeviceWeights::on(devices, Arc::clone(&weights));
        let machine = resident.machine(placed, None, options, &mut |done, total| bar.show(done, total))?;
        Ok(DecodeSubject {
            spec,
            weights,
            machine,
            rows,
            context,
            kv: self.kv,
            pages: lowering.pages_per_sequence(),
            flow,
        })
    }
}

/// The phase of steps at the end of a context: within the flow's budget they attend to everything,
/// as in the engine.
fn phase_of(flow: &FlowSettings, context: usize) -> Phase {
    if context <= flow.covered_tokens() { Phase::Prompt } else { Phase::Decode }
}

/// The inputs of a step.
pub struct StepInputs {
    pub tokens: Vec<i32>,
    pub positions: Vec<i32>,
    pub page_table: Vec<i32>,
}

impl StepInputs {
    pub fn view(&self) -> StepCells<'_> {
        StepCells { tokens: &self.tokens, positions: &self.positions, page_table: &self.page_table }
    }
}

impl DecodeSubject {
    /// The program.
    pub fn program(&self) -> &Placed {
        self.machine.program()
    }

    /// Inputs in which every row has another token, separate pages, and the same position.
    pub fn cells(&self, position: usize) -> StepInputs {
        let token = |row: usize| ((row * 7 + 11) % self.spec.vocab) as i32;
        StepInputs {
            tokens: (0..self.rows).map(token).collect(),
            positions: vec![position as i32; self.rows],
            page_table: (0..(self.rows * self.pages) as i32).collect(),
        }
    }
}

/// The relative L2 error: ‖found − expected‖ / ‖expected‖.
pub fn relative(found: &[f32], expected: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let difference: f64 = found.iter().zip(expected).map(|(a, b)| square(f64::from(a - b))).sum();
    let norm: f64 = expected.iter().map(|&x| square(f64::from(x))).sum();
    (difference / norm).sqrt()
}
