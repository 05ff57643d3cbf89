//! The comparisons to run, in pieces of one kernel each.

use crate::kit::batch::{Batch, Difference, Plan};
use crate::kit::flow::{drawn_rows, seed_of};
use crate::kit::matrix::{Case, Class, Form, forms};
use crate::machine;
use std::time::Instant;
use tilewright_codegen::device::Device;

/// Programs of one kernel.
const GROUP: u64 = 25;

/// A kernel that runs on both machines.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Programs.
    Programs { name: String, plan: Vec<Plan> },
    /// A multiply, on inputs of this seed.
    Multiply { form: Form, seed: u64 },
}

/// Everything that a run compares: ten programs of each row alone, multiplies, and `PROGRAMS`
/// programs.
pub fn pieces(run: u64, programs: u64) -> Vec<Piece> {
    let rows = drawn_rows();
    let singles = rows.chunks(5).map(|some| {
        let plan = some.iter().flat_map(|row| (0..10).map(|n| Plan::Single(seed_of(run, n), row))).collect();
        let names: Vec<&str> = some.iter().map(|row| row.mnemonic).collect();
        Piece::Programs { name: names.join(" "), plan }
    });
    let multiplies = (0..).zip(forms(run)).map(|(n, form)| Piece::Multiply { form, seed: seed_of(run, n) });
    let starts = (0..programs).step_by(GROUP as usize);
    let mixed = starts.map(|from| Piece::group(from, (from + GROUP).min(programs), run));
    singles.chain(multiplies).chain(mixed).collect()
}

impl Piece {
    /// Programs of a run, by their numbers.
    pub fn group(from: u64, to: u64, run: u64) -> Piece {
        let plan = (from..to).map(|n| Plan::Mixed(seed_of(run, 1000 + n))).collect();
        Piece::Programs { name: format!("{from}..{to} of run {run}"), plan }
    }

    /// A name of the comparison.
    pub fn name(&self) -> String {
        match self {
            Piece::Programs { name, .. } => name.clone(),
            Piece::Multiply { form, .. } => format!("{form:?}"),
        }
    }

    /// The kernel of programs.
    pub fn batch(&self) -> Result<Batch, String> {
        match self {
            Piece::Programs { plan, .. } => Batch::new(&drawn_rows(), plan),
            Piece::Multiply { .. } => Err("a multiply is no program".into()),
        }
    }

    /// Runs it on both machines, and passes lines for a [`Tally`](crate::tally::Tally) to `tell`:
    /// what differs before it is reduced. Gives whether something differs.
    pub fn compare(&self, device: &Device, reduce: bool, tell: &mut dyn FnMut(String)) -> bool {
        let mut all = |lines: Vec<String>| lines.into_iter().for_each(&mut *tell);
        match self {
            Piece::Programs { name, plan } => match self.programs(device, name, plan, &mut all) {
                Ok(None) => false,
                Ok(Some((batch, first))) => {
                    if reduce {
                        all(said("text", "reducing"));
                        all(said("text", &machine::smallest(device, batch, &first)));
                    }
                    true
                }
                Err(text) => {
                    all(said("fault", &format!("{name}: {text}")));
                    false
                }
            },
            Piece::Multiply { form, seed } => {
                match multiply(device, *form, *seed) {
                    Ok((values, text)) => all([said("multiply", &values.to_string()), said("text", &text)].concat()),
                    Err(text) => all(said("fault", &text)),
                }
                false
            }
        }
    }

    /// The first difference, if there is one.
    fn programs(
        &self,
        device: &Device,
        name: &str,
        plan: &[Plan],
        tell: &mut dyn FnMut(Vec<String>),
    ) -> Result<Option<(Batch, Difference)>, String> {
        let start = Instant::now();
        let batch = self.batch()?;
        let making = start.elapsed().as_millis();
        let (mut differences, [simulated, run]) = machine::differences(device, &batch)?;
        let results: usize = batch.slots.iter().map(|slots| slots.len() * 64).sum();
        tell(said("programs", &format!("{} {results} {making} {simulated} {run}", batch.programs())));
        for (row, count) in &batch.counts {
            tell(said("row", &format!("{row} {count}")));
        }
        let mut seen = None;
        for difference in &differences {
            // What follows the first of a program may follow from it.
            if seen.replace(difference.program) == Some(difference.program) {
                continue;
            }
            let what = match plan[difference.program] {
                Plan::Mixed(seed) => format!("mixed {seed}"),
                Plan::Single(seed, row) => format!("{} {seed}", row.mnemonic),
            };
            tell(said("differs", &format!("{} in {name}, {what}", difference.label)));
            tell(said("text", &format!("{difference:?}")));
        }
        Ok((!differences.is_empty()).then(|| (batch, differences.swap_remove(0))))
    }
}

/// A text of several lines with its tag before each.
fn said(tag: &str, text: &str) -> Vec<String> {
    // What is counted is one line.
    let text = if tag == "text" { text.into() } else { text.replace('\n', " | ") };
    text.lines().map(|line| format!("{tag} {line}")).collect()
}

/// Compares the values of a multiply; returns their number and a description, or an error if one is
/// wrong.
fn multiply(device: &Device, form: Form, seed: u64) -> Result<(u64, String), String> {
    let mut classes = vec![Class::Whole; 4];
    classes.extend([Class::Float; 6]);
    classes.extend([Class::Special; 2]);
    let case = Case::new(form, &classes, seed)?;
    let expected = case.simulate()?;
    let found = machine::multiply(device, &case).map_err(|error| format!("{}: {error}", case.name))?;
    let verdict = case.judge(&expected, &found)?;
    let text =
        format!("matrix {:60} {} values, {} near, worst {:.4}", case.name, verdict.values, verdict.near, verdict.worst);
    if verdict.wrong == 0 { Ok((verdict.values, text)) } else { Err(format!("{text}: {verdict:?}")) }
}
