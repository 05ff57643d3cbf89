//! Decodes with random weights on a device and prints what a token costs.
//!
//! `decode_bench MODEL ROWS CONTEXT POSITION STEPS [check] [key=value ..]`

use std::time::Instant;

use tilewright_codegen::device::cuda;
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::reference::{KvState, Machine, StepCells};
use tilewright_megakernel::weights::RandomWeights;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args[at].parse::<usize>().unwrap();
    let (rows, context, position, steps) = (number(1), number(2), number(3), number(4));
    let check = args.iter().any(|a| a == "check");
    let spec = ModelSpec::named(&args[0]).unwrap();
    let start = Instant::now();
    let weights = RandomWeights::new(&spec, DType::BF16, 7).unwrap();
    println!("weights {:?}", start.elapsed());
    let device = cuda::open(0).unwrap();
    let target = Target { sms: device.properties().sms as usize, ..Target::named("h100").unwrap() };
    for setting in args.iter().filter(|a| a.contains('=')) {
        let mut options = DeviceOptions::default();
        let mut lowering = LowerOptions { rows, kv: DType::BF16, ..LowerOptions::for_context(context) };
        for pair in setting.split(',') {
            let (key, value) = pair.split_once('=').unwrap();
            match key {
                "trace" => options.timeline = true,
                "pages" => options.pages_ahead = value != "0",
                "tags" => options.tags = value != "0",
                "act" => lowering.activation = if value == "bf16" { DType::BF16 } else { DType::F32 },
                "splits" => lowering.splits = Some(value.parse().unwrap()),
                _ => {}
            }
            let Ok(value) = value.parse::<u32>() else { continue };
            match key {
                "warps" => options.warps = value,
                "stage" => options.stage_bytes = value,
                "stages" => options.stages = value,
                "flight" => options.in_flight = value,
                "sums" => options.sums_bytes = value,
                "page" => lowering.page_tokens = value as usize,
                _ => {}
            }
        }
        let placed = schedule(lower(&spec, &|_| DType::BF16, target.clone(), &lowering).unwrap(), 64).unwrap();
        let start = Instant::now();
        let mut machine = match DeviceMachine::load(placed.clone(), &weights, &device, options, &mut |_, _| ()) {
            Ok(machine) => machine,
            Err(error) => {
                println!("{setting}: {error}");
                continue;
            }
        };
        let load = start.elapsed();
        let width = lowering.pages_per_sequence();
        let page_table: Vec<i32> = (0..(rows * width) as i32).collect();
        let tokens: Vec<i32> = (0..rows as i32).map(|row| row * 7 + 11).collect();
        let positions = vec![position as i32; rows];
        let cells = StepCells { tokens: &tokens, positions: &positions, page_table: &page_table };
        if check {
            let mut reference = Machine::new(placed, &weights, 16).unwrap();
            let mut kv = KvState::new(reference.program()).unwrap();
            for step in 0..3 {
                let positions = vec![step; rows];
                let cells = StepCells { tokens: &tokens, positions: &positions, page_table: &page_table };
                machine.step(&cells).unwrap();
                let output = reference.step(&mut kv, &cells).unwrap();
                let (found, expected) = (machine.f32(LOGITS).unwrap(), output.f32(LOGITS).unwrap());
                let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
                let error = norm(&mut found.iter().zip(&expected).map(|(a, b)| f64::from(a - b)))
                    / norm(&mut expected.iter().map(|&x| f64::from(x)));
                println!("check step {step}: relative error {error:.2e}");
            }
        }
        let stages = machine.plan().options.stages;
        let mut single = Vec::new();
        for _ in 0..20 {
            let start = Instant::now();
            machine.step(&cells).unwrap();
            single.push(start.elapsed().as_secs_f64() * 1e3);
        }
        single.sort_by(f64::total_cmp);
        let mut many = Vec::new();
        for _ in 0..3 {
            let start = Instant::now();
            machine.run(&cells, steps).unwrap();
            many.push(start.elapsed().as_secs_f64() * 1e3 / steps as f64);
        }
        many.sort_by(f64::total_cmp);
        if options.timeline {
            levels(&machine);
        }
        let bytes = machine.plan().image_bytes as f64;
        println!(
            "{} rows {rows} ctx {context} pos {position} {setting} stages {stages}: {:.4} ms a token in one launch of {steps} ({:.3} TB/s), {:.4} ms alone; load {load:.1?}",
            args[0],
            many[1],
            bytes / many[1] / 1e9,
            single[10]
        );
    }
}

/// Where the time of each kind of level goes, means over blocks and layers, microseconds.
fn levels(machine: &DeviceMachine) {
    let times = machine.times().unwrap();
    let mut levels: std::collections::BTreeMap<String, Vec<_>> = Default::default();
    for t in &times {
        let label = &machine.program().tasks[t.task.index()].label;
        let level = label.split('[').next().unwrap().split(".h").next().unwrap().to_owned();
        levels.entry(level).or_default().push(*t);
    }
    let mut sorted: Vec<(String, u64)> =
        levels.iter().map(|(l, t)| (l.clone(), t.iter().map(|t| t.published).max().unwrap())).collect();
    sorted.sort_by_key(|(_, end)| *end);
    let mut kinds: std::collections::BTreeMap<String, Vec<[f64; 9]>> = Default::default();
    for pair in sorted.windows(2) {
        let (before, (level, end)) = (pair[0].1, &pair[1]);
        let list = &levels[level];
        let d = |a: u64, b: u64| (b as f64 - a as f64) / 1e3;
        let mean = |f: &dyn Fn(&tilewright_megakernel::vm::device::TaskTimes) -> f64| {
            list.iter().map(f).sum::<f64>() / list.len() as f64
        };
        let first_wake = list.iter().map(|t| t.waited).min().unwrap();
        let last_wake = list.iter().map(|t| t.waited).max().unwrap();
        let first_pub = list.iter().map(|t| t.published).min().unwrap();
        let kind = level.rsplit('.').next().unwrap().to_owned();
        kinds.entry(kind).or_default().push([
            mean(&|t| d(t.begun, t.waited)),
            mean(&|t| t.loaded.map_or(0.0, |l| d(t.waited, l))),
            mean(&|t| d(t.loaded.unwrap_or(t.waited), t.computed)),
            mean(&|t| d(t.computed, t.published)),
            d(before, first_wake),
            d(first_wake, last_wake),
            d(first_pub, *end),
            d(before, *end),
            list.iter().map(|t| d(t.loaded.unwrap_or(t.waited), t.computed)).fold(0.0, f64::max),
        ]);
    }
    println!("level       wait   load compute publish | lastpub-wake wakespread pubspread length maxcompute | sum");
    for (kind, rows) in kinds {
        let n = rows.len() as f64;
        let m: Vec<f64> = (0..9).map(|i| rows.iter().map(|r| r[i]).sum::<f64>() / n).collect();
        println!(
            "{kind:9} {:6.2} {:6.2} {:7.2} {:6.2}  | {:6.2} {:6.2} {:6.2} {:6.2} {:6.2} | {:7.1}",
            m[0],
            m[1],
            m[2],
            m[3],
            m[4],
            m[5],
            m[6],
            m[7],
            m[8],
            m[7] * n
        );
    }
}
