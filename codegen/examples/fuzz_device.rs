//! Random programs on the simulator and on a GPU, compared bit for bit.
//!
//! * `fuzz_device [PROGRAMS] [RUN] [FIRST]` compares so many programs from the first on, and, if that is 0, each row alone
//!   and matrix multiplies; exits with 1 if anything differs.
//! * `fuzz_device group FROM TO [RUN]` compares these programs as one kernel; of one that differs it prints the smallest
//!   kernel that still does.
//! * `fuzz_device ptx FROM TO [RUN]` prints the PTX of that kernel, without a GPU.
//! * `fuzz_device corpus DIR` records the corpus of `tests/fuzz`.
//!
//! It needs compute capability 9.0, and exits with 2 where there is no GPU.

#[path = "../tests/fuzz/kit/mod.rs"]
mod kit;

use kit::batch::{Batch, Difference, Plan, param_bytes};
use kit::corpus::{write_multiplies, write_programs};
use kit::flow::{drawn_rows, seed_of};
use kit::matrix::{Case, Class, forms};
use kit::shrink::shrink;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tilewright_codegen::device::{Arg, Device, DeviceError, PtxSource, Signature, cuda};
use tilewright_codegen::ptx;

/// Programs of one kernel.
const GROUP: u64 = 25;

/// What all threads found.
#[derive(Default)]
struct Tally {
    programs: u64,
    results: u64,
    faults: Vec<String>,
    rows: BTreeMap<&'static str, u64>,
    labels: BTreeMap<String, (u64, String)>,
    examples: Vec<String>,
}

fn main() -> ExitCode {
    let number = |at: usize, other: u64| std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(other);
    let (programs, run, first) = (number(1, 20_000), number(2, 1), number(3, 0));
    if std::env::args().nth(1).as_deref() == Some("ptx") {
        let (from, to, run) = (number(2, 0), number(3, 1), number(4, 1));
        let plan: Vec<Plan> = (from..to).map(|n| Plan::Mixed(seed_of(run, 1000 + n))).collect();
        return match Batch::new(&drawn_rows(), &plan) {
            Ok(batch) => {
                println!("{}", ptx::emit(&batch.kernel));
                ExitCode::SUCCESS
            }
            Err(text) => {
                eprintln!("{text}");
                ExitCode::FAILURE
            }
        };
    }
    let device = match cuda::open(0) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    println!("{}", device.properties().name);
    let started = Instant::now();
    let rows = drawn_rows();
    if std::env::args().nth(1).as_deref() == Some("corpus") {
        return match corpus(&device, std::path::Path::new(&std::env::args().nth(2).unwrap_or_default())) {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => {
                eprintln!("{text}");
                ExitCode::FAILURE
            }
        };
    }
    if std::env::args().nth(1).as_deref() == Some("group") {
        // Programs FROM..TO of a run, as one kernel, alone in the process.
        let (from, to, run) = (number(2, 0), number(3, 1), number(4, 1));
        let plan: Vec<Plan> = (from..to).map(|n| Plan::Mixed(seed_of(run, 1000 + n))).collect();
        return match group(&device, &rows, &plan) {
            Ok((batch, differences)) => {
                println!("{from}..{to} runs, {} differences", differences.len());
                if let Some(first) = differences.first() {
                    println!("{first:#?}\n{}", smallest(&device, batch, first));
                }
                ExitCode::SUCCESS
            }
            Err(text) => {
                println!("{from}..{to} {text}");
                ExitCode::FAILURE
            }
        };
    }
    let mut plans: Vec<Vec<Plan>> = rows
        .chunks(5)
        .map(|some| some.iter().flat_map(|row| (0..10).map(|n| Plan::Single(seed_of(run, n), row))).collect())
        .collect();
    if first > 0 {
        plans.clear();
    }
    let numbers: Vec<u64> = (first..first + programs).collect();
    plans.extend(
        numbers
            .chunks(GROUP as usize)
            .map(|some| some.iter().map(|&n| Plan::Mixed(seed_of(run, 1000 + n))).collect::<Vec<_>>()),
    );
    let (next, tally) = (AtomicU64::new(0), Mutex::new(Tally::default()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(16);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(plan) = plans.get(at as usize) else { break };
                    let said = group(&device, &rows, plan);
                    let mut tally = tally.lock().expect("no worker panicked");
                    match said {
                        Ok((batch, differences)) => tally.add(&batch, plan, &differences),
                        Err(text) => tally.faults.push(format!("group {at}: {text}")),
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().expect("no worker panicked");
    tally.print();
    let wrong = if first == 0 { matrices(&device, run, workers) } else { 0 };
    println!("{:.1} s", started.elapsed().as_secs_f64());
    ExitCode::from(u8::from(wrong > 0 || !tally.faults.is_empty() || !tally.labels.is_empty()))
}

impl Tally {
    fn add(&mut self, batch: &Batch, plan: &[Plan], differences: &[Difference]) {
        self.programs += batch.programs() as u64;
        self.results += batch.slots.iter().map(|slots| slots.len() as u64 * 64).sum::<u64>();
        for (row, count) in &batch.counts {
            *self.rows.entry(row).or_default() += count;
        }
        let mut seen = None;
        for difference in differences {
            // What follows the first of a program may follow from it.
            if seen == Some(difference.program) {
                continue;
            }
            seen = Some(difference.program);
            let plan_text = match plan[difference.program] {
                Plan::Mixed(seed) => format!("mixed {seed}"),
                Plan::Single(seed, row) => format!("{} {seed}", row.mnemonic),
            };
            let text = format!(
                "{plan_text} slot {} thread {} ({} threads): simulator {:#x}, device {:#x}; slots before: {}",
                difference.slot,
                difference.thread,
                difference.threads,
                difference.expected,
                difference.found,
                difference.before,
            );
            let entry = self.labels.entry(difference.label.clone()).or_insert((0, text.clone()));
            entry.0 += 1;
            if entry.0 < 6 && entry.0 > 1 {
                entry.1 = format!("{}\n    {text}", entry.1);
            }
            if self.examples.len() < 3 && matches!(plan[difference.program], Plan::Mixed(_)) {
                let statements = batch.text(difference.program);
                self.examples.push(format!("{text}\n{statements}"));
            }
        }
    }

    fn print(&self) {
        for (row, count) in &self.rows {
            println!("{row:28} {count:9}");
        }
        for text in self.faults.iter().take(10) {
            println!("FAULT {}", text.chars().take(3000).collect::<String>());
        }
        for text in &self.examples {
            println!("EXAMPLE {text}");
        }
        for (label, (count, text)) in &self.labels {
            println!("DIFFERS {label} {count} programs, first: {text}");
        }
        println!(
            "{} programs, {} results, {} faults, {} kinds of differences",
            self.programs,
            self.results,
            self.faults.len(),
            self.labels.len()
        );
    }
}

/// Runs the programs of a group on both machines.
fn group(
    device: &Device,
    rows: &[&'static tilewright_codegen::ir::Row],
    plan: &[Plan],
) -> Result<(Batch, Vec<Difference>), String> {
    let batch = Batch::new(rows, plan)?;
    let expected = batch.simulate(7)?;
    let found = on_device(device, &batch).map_err(|error| error.to_string())?;
    let differences = batch.differences(&expected, &found);
    Ok((batch, differences))
}

/// The results by the device.
fn on_device(device: &Device, batch: &Batch) -> Result<Vec<u64>, DeviceError> {
    let source = PtxSource::new(Signature::of(batch.kernel.kernel()), ptx::emit(&batch.kernel));
    let kernel = device.load(&source)?;
    let stream = device.stream()?;
    let input = stream.buffer(&batch.input)?;
    let output = device.buffer::<u64>(batch.output_words())?;
    let scratch = device.buffer::<u8>(batch.scratch_bytes())?;
    stream.fill(&output, 0)?;
    stream.fill(&scratch, 0)?;
    let bytes = param_bytes();
    let args = [Arg::from(&input), Arg::from(&output), Arg::from(&scratch), Arg::Bytes(&bytes)];
    kernel.launch(&stream, batch.programs() as u32, &args)?;
    stream.read(&output)
}

/// Multiplies matrices on both machines; how many cases are wrong.
fn matrices(device: &Device, run: u64, workers: usize) -> usize {
    let forms = forms(run);
    let (next, said) = (AtomicU64::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(form) = forms.get(at as usize) else { break };
                    let mut classes = vec![Class::Whole; 4];
                    classes.extend([Class::Float; 6]);
                    classes.extend([Class::Special; 2]);
                    let line = multiply(device, *form, &classes, seed_of(run, at));
                    said.lock().expect("no worker panicked").insert(at, line);
                }
            });
        }
    });
    let said = said.into_inner().expect("no worker panicked");
    let mut wrong = 0;
    for line in said.values() {
        wrong += usize::from(line.is_err());
        match line {
            Ok(text) => println!("matrix ok    {text}"),
            Err(text) => println!("matrix WRONG {text}"),
        }
    }
    println!("{} matrix cases, {wrong} wrong", said.len());
    wrong
}

fn multiply(device: &Device, form: kit::matrix::Form, classes: &[Class], seed: u64) -> Result<String, String> {
    let case = Case::new(form, classes, seed)?;
    let expected = case.simulate()?;
    let found = matrix_on_device(device, &case).map_err(|error| format!("{}: {error}", case.name))?;
    let verdict = case.judge(&expected, &found)?;
    let text = format!("{:60} {verdict:?}", case.name);
    if verdict.wrong == 0 { Ok(text) } else { Err(text) }
}

fn matrix_on_device(device: &Device, case: &Case) -> Result<Vec<u32>, DeviceError> {
    let source = PtxSource::new(Signature::of(case.kernel.kernel()), ptx::emit(&case.kernel));
    let kernel = device.load(&source)?;
    let stream = device.stream()?;
    let [a, b, c] = [&case.a, &case.b, &case.c].map(|words| stream.buffer(words));
    let (a, b, c) = (a?, b?, c?);
    let d = device.buffer::<u32>(case.c.len())?;
    stream.fill(&d, 0)?;
    kernel.launch(&stream, case.blocks(), &[Arg::from(&a), Arg::from(&b), Arg::from(&c), Arg::from(&d)])?;
    stream.read(&d)
}

/// Writes the corpus: programs and multiplies with this device's results.
fn corpus(device: &Device, dir: &std::path::Path) -> Result<(), String> {
    let name = device.properties().name.clone();
    let programs = write_programs(&name, &mut |batch| on_device(device, batch).map_err(|error| error.to_string()))?;
    let multiplies = write_multiplies(&mut |case| matrix_on_device(device, case).map_err(|error| error.to_string()))?;
    for (file, text) in [("programs.txt", programs), ("multiplies.txt", multiplies)] {
        let (path, part) = (dir.join(file), dir.join(format!("{file}.part")));
        std::fs::write(&part, text)
            .and_then(|()| std::fs::rename(&part, &path))
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    }
    Ok(())
}

/// The smallest program that still differs: its differences, text and PTX.
fn smallest(device: &Device, batch: Batch, first: &Difference) -> String {
    // The same result; of one within a bound also on the same operands, which are before it.
    let same = |other: &Difference| {
        (other.program, other.slot) == (first.program, first.slot)
            && (!other.label.contains("approx") || other.before == first.before)
    };
    let mut differs = |batch: &Batch| match (batch.simulate(7), on_device(device, batch)) {
        (Ok(expected), Ok(found)) => batch.differences(&expected, &found).iter().any(same),
        _ => false,
    };
    let small = shrink(batch, &mut differs);
    let found = match (small.simulate(7), on_device(device, &small)) {
        (Ok(expected), Ok(found)) => small.differences(&expected, &found),
        _ => Vec::new(),
    };
    format!("{found:#?}\n{}\n{}", small.kernel.kernel(), ptx::emit(&small.kernel))
}
