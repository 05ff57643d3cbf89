//! Tunes decode on a GPU: what a token costs under settings of the lowering and of the device
//! machine.
//!
//! `tune_decode MODEL ROWS CONTEXT POSITION[,POSITION ..] STEPS [key=value[,key=value ..] ..]` uses
//! random weights. For each list of settings and position it prints the median time of three
//! launches of STEPS steps from there on, and of twenty launches of one step. It also prints a sum
//! over the tokens, which is the same for settings that change speed only.
//!
//! Keys: the names of `DeviceOptions::NUMBERS` and of `Thresholds` (`stage flight registers least`
//! for short), `splits page` (numbers), `activation` (`f32`, `bf16`), `stage_order`
//! (`order`, `strips`, `stages`), `packets`, `early_signals`, `skip_semaphores`, `merge_packets`,
//! `stream`, `pages`, `take`, `times` (0 or 1; `times` prints where the time of each level goes).
//! `tilewright bench decode` times the shipped settings and compares them with peers.

use std::error::Error;
use std::time::Instant;

use tilewright_codegen::device::{Device, cuda};
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::timeline::{LevelTable, Timeline};
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, Thresholds};
use tilewright_megakernel::vm::resident::StageOrder;
use tilewright_megakernel::weights::RandomWeights;

type Failure = Box<dyn Error>;

/// The decoding workload.
struct Work {
    spec: ModelSpec,
    weights: RandomWeights,
    device: Device,
    rows: usize,
    context: usize,
    positions: Vec<usize>,
    steps: usize,
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, rows, context, positions, steps] = args.get(..5).unwrap_or_default() else {
        return Err("give MODEL ROWS CONTEXT POSITION STEPS, then settings".into());
    };
    let positions = positions.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let rows = rows.parse()?;
    let context = context.parse()?;
    let steps = steps.parse()?;
    let spec = ModelSpec::named(model).ok_or_else(|| format!("`{model}` is not a known model"))?;
    let weights = RandomWeights::new(&spec, DType::BF16, 7)?;
    let work = Work { spec, weights, device: cuda::open(0)?, rows, context, positions, steps };
    for settings in &args[5..] {
        // One setting that does not fit must not end the others.
        if let Err(error) = work.time(settings) {
            println!("{settings}: {error}");
        }
    }
    Ok(())
}

/// Short keys of numbers.
const SHORT: [(&str, &str); 4] = [
    ("stage", "stage_bytes"),
    ("flight", "in_flight"),
    ("least", "split_tokens"),
    ("registers", "activation_registers"),
];

/// A field of the planner's limits.
type ThresholdField = fn(&mut Thresholds) -> &mut u32;

/// The planner's limits, by the name of their field.
const THRESHOLDS: [(&str, ThresholdField); 8] = [
    ("stages", |limits| &mut limits.stages),
    ("single_tokens", |limits| &mut limits.single_tokens),
    ("sums_bytes", |limits| &mut limits.sums_bytes),
    ("prefetch_code_stages", |limits| &mut limits.prefetch_code_stages),
    ("registers_beside_prefetch", |limits| &mut limits.registers_beside_prefetch),
    ("activation_rows", |limits| &mut limits.activation_rows),
    ("part_registers", |limits| &mut limits.part_registers),
    ("paired_rows", |limits| &mut limits.paired_rows),
];

/// The options that a list of settings stands for.
fn options(settings: &str, mut lowering: LowerOptions) -> Result<(LowerOptions, DeviceOptions), Failure> {
    let mut device = DeviceOptions::default();
    for pair in settings.split(',') {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not key=value"))?;
        let number = || value.parse::<u32>();
        match key {
            "packets" => device.packets = number()? != 0,
            "stream" => device.stream_tokens = number()? != 0,
            "early_signals" => device.early_signals = number()? != 0,
            "skip_semaphores" => device.skip_semaphores = number()? != 0,
            "merge_packets" => device.merge_packets = number()? != 0,
            "pages" => device.prefetch_pages = number()? != 0,
            "stage_order" => {
                let stage_order = StageOrder::ALL.iter().find(|(name, _)| *name == value);
                let wrong = || format!("`{pair}`: the order of stages is `order`, `strips` or `stages`");
                device.stage_order = stage_order.ok_or_else(wrong)?.1;
            }
            "take" => device.take_registers = number()? != 0,
            "times" => device.timeline = number()? != 0,
            "splits" => lowering.splits = Some(number()? as usize),
            "page" => lowering.page_tokens = number()? as usize,
            "activation" if value == "bf16" => lowering.activation = DType::BF16,
            "activation" if value == "f32" => lowering.activation = DType::F32,
            _ => {
                let name = SHORT.iter().find(|(short, _)| *short == key).map_or(key, |(_, name)| name);
                let number = number()?;
                match device.number_mut(name) {
                    Some(option) => *option = number,
                    None => {
                        let limit = THRESHOLDS.iter().find(|(known, _)| *known == name);
                        let (_, field) = limit.ok_or_else(|| format!("`{pair}` is not a setting"))?;
                        device = device.with_thresholds(|limits| *field(limits) = number);
                    }
                }
            }
        }
    }
    Ok((lowering, device))
}

/// The middle one, in milliseconds, of `count` runs.
fn median(count: usize, mut run: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let mut times = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[count / 2])
}

impl Work {
    fn time(&self, settings: &str) -> Result<(), Failure> {
        let target = Target { sms: self.device.properties().sms as usize, ..Target::named("h100").ok_or("no target")? };
        let base = LowerOptions { rows: self.rows, kv: DType::BF16, ..LowerOptions::for_context(self.context) };
        let (lowering, options) = options(settings, base)?;
        let lowering = lowering.splits_for_gpu(self.spec.kv_heads, target.sms);
        let placed = schedule(lower(&self.spec, &|_| DType::BF16, target, &lowering)?, self.context)?;
        let mut machine = DeviceMachine::load(placed, &self.weights, &self.device, options, &mut |_, _| ())?;

        let page_table: Vec<i32> = (0..(self.rows * lowering.pages_per_sequence()) as i32).collect();
        let tokens: Vec<i32> = (0..self.rows as i32).map(|row| row * 7 + 11).collect();
        println!("{settings}: {} stages", machine.plan().options.thresholds.stages);
        for &position in &self.positions {
            let positions = vec![position as i32; self.rows];
            let cells = StepCells { tokens: &tokens, positions: &positions, page_table: &page_table };
            let single = median(20, || Ok(machine.step(&cells)?))?;
            let mut sum = 0;
            let launch = || {
                let tokens = machine.run(&cells, self.steps)?;
                sum = tokens.iter().fold(0, |sum: u32, token| sum.wrapping_mul(31).wrapping_add(*token));
                Ok(())
            };
            let many = median(3, launch)? / self.steps as f64;
            println!("  from {position}: {many:.4} ms a token, {single:.4} ms alone; tokens {sum:08x}");
            if options.timeline {
                print!("{}", LevelTable::of(&Timeline::new(machine.program(), &machine.times()?)));
            }
        }
        Ok(())
    }
}
