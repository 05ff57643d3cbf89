//! Programs and multiplies with the results of a GPU, in a form that is small and that notices when
//! it is out of date.
//!
//! A program is kept as the seed that makes it, and each of its results as a hash of what the GPU
//! gave for all threads. The rows that it draws from stand in the file, so that a new row leaves
//! old programs as they are; a hash of each group's text tells when the generator makes other
//! programs than it did.

use super::batch::{Batch, Plan};
use super::flow::{drawn_rows, seed_of};
use super::matrix::{Case, Class, Form, forms};
use std::fmt::Write as _;
use tilewright_codegen::frozen::fnv1a;
use tilewright_codegen::ir::{InstRow, rows};

/// The remedy for an outdated corpus.
pub const REMEDY: &str = "on a machine with an H100 run `cargo run --release -p tilewright-codegen --example fuzz_device \
                          -- corpus codegen/tests/fuzz/corpus` and commit what it writes";

/// The seed from which everything here is drawn.
const RUN: u64 = 2026;
/// Programs of a group, which is one kernel.
const GROUP: usize = 25;
/// Programs of many instructions.
const MIXED: u64 = 250;

fn hash_words(words: &[u64]) -> u32 {
    let sum = fnv1a(words.iter().flat_map(|word| word.to_le_bytes()));
    (sum ^ sum >> 32) as u32
}

fn hash_text(batch: &Batch) -> u64 {
    fnv1a(batch.kernel.kernel().to_string().bytes().chain(batch.input.iter().copied()))
}

/// Programs for every row alone, and mixed ones.
pub fn plans() -> Vec<Plan> {
    let singles = drawn_rows().into_iter().flat_map(|row| (0..2).map(move |n| Plan::Single(seed_of(RUN, n), row)));
    singles.chain((0..MIXED).map(|n| Plan::Mixed(seed_of(RUN, 1000 + n)))).collect()
}

/// The rows that programs draw from, and groups of programs with the hashes that are expected.
pub struct Programs {
    pub rows: Vec<&'static InstRow>,
    pub groups: Vec<Group>,
}

/// A kernel of the corpus.
pub struct Group {
    pub plans: Vec<Plan>,
    text: u64,
    /// By program and slot; nothing for results within a bound of error.
    results: Vec<Vec<Option<u32>>>,
}

/// The file of programs, given a machine that runs them.
pub fn write_programs(device: &str, run: &mut dyn FnMut(&Batch) -> Result<Vec<u64>, String>) -> Result<String, String> {
    let rows = drawn_rows();
    let mut out = format!("device {device}\nrows");
    for row in &rows {
        let _ = write!(out, " {}", row.mnemonic);
    }
    out.push('\n');
    for plans in plans().chunks(GROUP) {
        let batch = Batch::new(&rows, plans)?;
        let results = run(&batch)?;
        let _ = writeln!(out, "group {:016x}", hash_text(&batch));
        for (program, plan) in plans.iter().enumerate() {
            let _ = match plan {
                Plan::Mixed(seed) => write!(out, "mixed {seed}"),
                Plan::Single(seed, row) => write!(out, "{} {seed}", row.mnemonic),
            };
            for (slot, what) in batch.slots[program].iter().enumerate() {
                let _ = match what.approx {
                    Some(_) => write!(out, " -"),
                    None => write!(out, " {:x}", hash_words(batch.slot(&results, program, slot))),
                };
            }
            out.push('\n');
        }
    }
    Ok(out)
}

/// Reads the file of programs.
pub fn read_programs(text: &str) -> Result<Programs, String> {
    let row_of = |name: &str| {
        rows()
            .find(|row| row.mnemonic == name)
            .ok_or(format!("the corpus names a row {name} that is no more: {REMEDY}"))
    };
    let mut programs = Programs { rows: Vec::new(), groups: Vec::new() };
    for (number, line) in (1..).zip(text.lines()) {
        let bad = || format!("line {number} of the corpus cannot be read: {REMEDY}");
        let mut words = line.split(' ');
        match words.next() {
            Some("device") => {}
            Some("rows") => programs.rows = words.map(row_of).collect::<Result<_, _>>()?,
            Some("group") => {
                let text = words.next().and_then(|word| u64::from_str_radix(word, 16).ok()).ok_or_else(bad)?;
                programs.groups.push(Group { plans: Vec::new(), text, results: Vec::new() });
            }
            Some(kind) => {
                let seed = words.next().and_then(|word| word.parse().ok()).ok_or_else(bad)?;
                let group = programs.groups.last_mut().ok_or_else(bad)?;
                group.plans.push(if kind == "mixed" { Plan::Mixed(seed) } else { Plan::Single(seed, row_of(kind)?) });
                let hashes = words.map(|word| match word {
                    "-" => Ok(None),
                    _ => u32::from_str_radix(word, 16).map(Some).map_err(|_| bad()),
                });
                group.results.push(hashes.collect::<Result<_, _>>()?);
            }
            None => return Err(bad()),
        }
    }
    Ok(programs)
}

impl Group {
    /// Runs the group on the simulator: what differs from the GPU, by name.
    pub fn check(&self, rows: &[&'static InstRow]) -> Result<Vec<String>, String> {
        let batch = Batch::new(rows, &self.plans)?;
        if hash_text(&batch) != self.text {
            return Err(format!("the generator makes other programs than when the corpus was recorded: {REMEDY}"));
        }
        let results = batch.simulate(5)?;
        let mut wrong = Vec::new();
        for (program, expected) in self.results.iter().enumerate() {
            for (slot, expected) in expected.iter().enumerate() {
                let Some(expected) = expected else { continue };
                if hash_words(batch.slot(&results, program, slot)) != *expected {
                    let label = &batch.slots[program][slot].label;
                    wrong.push(format!(
                        "{label}, result {slot} of {:?}:\n{}",
                        self.plans[program],
                        batch.text(program)
                    ));
                    break;
                }
            }
        }
        Ok(wrong)
    }
}

/// The multiplies of the corpus: form, classes of blocks, and whether results are kept whole.
fn multiplies() -> Vec<(Form, Vec<Class>, bool)> {
    let smallest = |form: &Form| matches!(form, Form::Wgmma { atom, .. } if atom.n() == 8);
    forms(RUN)
        .into_iter()
        .map(|form| match form {
            Form::Mma(_) => (form, vec![Class::Whole, Class::Float, Class::Special], true),
            Form::Wgmma { .. } if smallest(&form) => (form, vec![Class::Whole, Class::Float], true),
            Form::Wgmma { .. } => (form, vec![Class::Whole], false),
        })
        .collect()
}

fn multiply(number: usize) -> Result<(Case, bool), String> {
    let all = multiplies();
    let (form, classes, kept) = all.get(number).ok_or(format!("no multiply {number}: {REMEDY}"))?;
    Ok((Case::new(*form, classes, seed_of(RUN, 5000 + number as u64))?, *kept))
}

fn hash_case(case: &Case) -> u64 {
    let inputs = [&case.a, &case.b, &case.c].into_iter().flatten().flat_map(|word| word.to_le_bytes());
    fnv1a(case.kernel.kernel().to_string().bytes().chain(inputs))
}

fn hash_halves(words: &[u32]) -> u32 {
    let sum = fnv1a(words.iter().flat_map(|word| word.to_le_bytes()));
    (sum ^ sum >> 32) as u32
}

/// The file of multiplies, given a machine that runs them.
pub fn write_multiplies(run: &mut dyn FnMut(&Case) -> Result<Vec<u32>, String>) -> Result<String, String> {
    let mut out = String::new();
    for number in 0..multiplies().len() {
        let (case, kept) = multiply(number)?;
        let results = run(&case)?;
        let _ = write!(out, "{number} {:016x}", hash_case(&case));
        if kept {
            for word in results {
                let _ = write!(out, " {word:x}");
            }
        } else {
            let _ = write!(out, " = {:x}", hash_halves(&results));
        }
        out.push('\n');
    }
    Ok(out)
}

/// Checks a line of the file of multiplies: how many values were compared.
pub fn check_multiply(line: &str) -> Result<u64, String> {
    let bad = || format!("a line of the corpus of multiplies cannot be read: {REMEDY}");
    let words: Vec<&str> = line.split(' ').collect();
    let [number, text, results @ ..] = words.as_slice() else { return Err(bad()) };
    let (case, _) = multiply(number.parse().map_err(|_| bad())?)?;
    if u64::from_str_radix(text, 16) != Ok(hash_case(&case)) {
        return Err(format!("{} is another multiply than when the corpus was recorded: {REMEDY}", case.name));
    }
    let found = case.simulate()?;
    if let ["=", expected] = results {
        let expected = u32::from_str_radix(expected, 16).map_err(|_| bad())?;
        let same = hash_halves(&found) == expected;
        return if same { Ok(found.len() as u64) } else { Err(format!("{} differs from the GPU", case.name)) };
    }
    let expected: Vec<u32> =
        results.iter().map(|word| u32::from_str_radix(word, 16)).collect::<Result<_, _>>().map_err(|_| bad())?;
    let verdict = case.judge(&found, &expected)?;
    if verdict.wrong == 0 {
        Ok(verdict.values)
    } else {
        Err(format!("{} differs from the GPU: {verdict:?}", case.name))
    }
}
