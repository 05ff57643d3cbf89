//! The validator's verdict equals the oracle's: on valid programs, on mutants of every class, on
//! random programs near the border. A disagreement is shrunk and printed as JSON.

use std::collections::BTreeMap;

use tilewright_megakernel::program::Program;
use tilewright_megakernel::testing::generate::{borderline, valid};
use tilewright_megakernel::testing::{Rng, judge, smallest};
use tilewright_megakernel::validate::validate;

use crate::mutate::CLASSES;

/// Programs of a plain `cargo test`, and of a long run.
const SHORT: usize = 30_000;
const LONG: usize = 500_000;

/// The outcomes of a class of programs.
#[derive(Default)]
pub struct Row {
    pub accepted: usize,
    pub rejected: usize,
    kinds: BTreeMap<&'static str, usize>,
}

impl Row {
    /// Its programs.
    pub fn count(&self) -> usize {
        self.accepted + self.rejected
    }
}

#[test]
fn the_validator_agrees_with_the_oracle_on_every_program() {
    let total = if std::env::var_os("TILEWRIGHT_LONG").is_some() { LONG } else { SHORT };
    let seed = std::env::var("TILEWRIGHT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_260_101u64);
    let mut rng = Rng::new(seed);
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for _ in 0..total / 6 {
        compare("valid", &valid(&mut rng), &mut rows, seed);
    }
    for _ in 0..total / 4 {
        compare("random", &borderline(&mut rng), &mut rows, seed);
    }
    let each = (total - total / 6 - total / 4).div_ceil(CLASSES.len() + 1);
    for (name, mutation) in CLASSES {
        let mut left = each;
        while left > 0 {
            let mut program = valid(&mut rng);
            if mutation(&mut program, &mut rng).is_some() {
                compare(name, &program, &mut rows, seed);
                left -= 1;
            }
        }
    }
    for _ in 0..each {
        let mut program = valid(&mut rng);
        for _ in 0..2 {
            CLASSES[rng.below(CLASSES.len())].1(&mut program, &mut rng);
        }
        compare("two mutations", &program, &mut rows, seed);
    }
    print(&rows, seed);
    assert_eq!(rows["valid"].rejected, 0, "the generator builds only valid programs");
    assert!(
        rows["random"].accepted * 3 >= rows["random"].accepted + rows["random"].rejected,
        "too few near the border"
    );
    assert!(CLASSES.iter().all(|(name, _)| rows[*name].rejected > 0), "a class of mutants that never breaks anything");
}

/// Compares the two verdicts.
pub fn compare(class: &str, program: &Program, rows: &mut BTreeMap<String, Row>, seed: u64) {
    let report = validate(program);
    let verdict = judge(program);
    if report.is_valid() != verdict.is_ok() {
        let small = smallest(program.clone(), disagree);
        panic!(
            "{class} (seed {seed}): the oracle says {:?}, the validator {}\n{}",
            judge(&small),
            validate(&small),
            small.to_json().unwrap()
        );
    }
    let row = rows.entry(class.to_owned()).or_default();
    if report.is_valid() {
        row.accepted += 1;
    } else {
        row.rejected += 1;
        let mut names: Vec<&str> = report.errors.iter().map(|e| e.kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().for_each(|name| *row.kinds.entry(name).or_default() += 1);
    }
}

/// Prints what was seen, by class.
pub fn print(rows: &BTreeMap<String, Row>, seed: u64) {
    let count = |f: fn(&Row) -> usize| rows.values().map(f).sum::<usize>();
    let accepted = count(|r| r.accepted);
    let rejected = count(|r| r.rejected);
    println!(
        "seed {seed}: {} programs, {accepted} accepted, {rejected} rejected, no disagreement",
        accepted + rejected
    );
    for (class, Row { accepted, rejected, kinds }) in rows {
        let mut kinds: Vec<_> = kinds.iter().collect();
        kinds.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
        println!("{class:<18} {accepted:>7} {rejected:>7}  {}", kinds.join(", "));
    }
}

fn disagree(program: &Program) -> bool {
    validate(program).is_valid() != judge(program).is_ok()
}
