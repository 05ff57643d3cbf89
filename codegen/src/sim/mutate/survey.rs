//! Every mutant of a kernel, judged over all cores: killed of total, and survivors with the reason why.

use super::{Mutant, Verdict, judge, mutants, unchanged};
use crate::ir::Kernel;
use crate::sim::launch::{Outcome, SimError};
use crate::verify::Verified;
use core::fmt;
use core::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A change that changes nothing that the kernel promises, with the reason: an entry of a ledger of survivors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Equivalent {
    /// How the instruction's text begins, as [`Mutant::inst`] has it.
    pub inst: &'static str,
    /// Which of the mutants of such instructions with this change, in the order of the text; all of them if none is named.
    pub nth: Option<usize>,
    /// The change, as [`Mutant::change`] has it.
    pub change: &'static str,
    /// Why nothing can tell it from the original.
    pub why: &'static str,
}

impl Equivalent {
    /// All instructions whose text begins so, changed so.
    pub const fn all(inst: &'static str, change: &'static str, why: &'static str) -> Equivalent {
        Equivalent { inst, nth: None, change, why }
    }

    /// Only the `nth` of them, counted from 0.
    pub const fn nth(self, nth: usize) -> Equivalent {
        Equivalent { nth: Some(nth), ..self }
    }
}

/// A mutant and what became of it.
#[derive(Debug)]
pub struct Judged {
    /// The mutant.
    pub mutant: Mutant,
    /// What became of it.
    pub verdict: Verdict,
    /// The reason of the ledger, if it has an entry for it.
    pub excuse: Option<&'static str>,
}

/// What became of every mutant of a kernel.
///
/// A test of a kernel surveys it with the inputs and the comparison that its other tests use, prints the table and
/// asserts that it has no holes:
///
/// ```
/// use tilewright_codegen::sim::mutate::{Equivalent, Survey};
/// use tilewright_codegen::sim::{self, Arg, Launch, Memory, Outcome};
/// use tilewright_codegen::{gallery, ir::{Arch, Const}};
///
/// // What is known to survive, and why. Of `block_sum`, nothing does.
/// const LEDGER: &[Equivalent] = &[];
///
/// let kernel = gallery::named("block_sum").unwrap().record(Arch::Sm90a);
/// let survey = Survey::of(&kernel, 0..20, LEDGER, |mutant, seed| {
///     let mut memory = Memory::new();
///     let (x, out) = (memory.upload("x", &[1.0f32; 700]), memory.alloc("out", 4));
///     let args = vec![Arg::Scalar(Const::u32(700)), Arg::Ptr(x), Arg::Ptr(out)];
///     let outcome = sim::run(mutant, &Launch::new([1, 1, 1], args), &mut memory, seed)?;
///     let right = match (&outcome, memory.download::<f32>(out, 1)) {
///         (Outcome::Finished(_), Ok(sum)) if sum != [700.0] => Err(format!("the sum is {sum:?}")),
///         (Outcome::Finished(_), Err(error)) => Err(error.to_string()),
///         _ => Ok(()),
///     };
///     Ok((outcome, right))
/// })
/// .unwrap();
/// println!("{survey}");
/// assert_eq!(survey.killed(), survey.rows.len());
/// assert!(survey.holes().is_empty(), "{:#?}", survey.holes());
/// ```
#[derive(Debug)]
pub struct Survey {
    /// The kernel's name.
    pub kernel: String,
    /// What became of the kernel itself; anything but [`Verdict::Survived`] makes the other verdicts worthless.
    pub itself: Verdict,
    /// Its mutants in the order of the text.
    pub rows: Vec<Judged>,
    /// Entries of the ledger that excuse no survivor.
    pub stale: Vec<Equivalent>,
}

impl Survey {
    /// Judges every mutant of a kernel under seeds, on as many threads as there are cores, each until the first seed
    /// that tells. `run` launches one and says what is wrong with its results; it is called from several threads.
    ///
    /// # Errors
    /// The first [`SimError`] that `run` gives.
    pub fn of(
        kernel: &Kernel,
        seeds: Range<u64>,
        ledger: &[Equivalent],
        run: impl Fn(&Verified, u64) -> Result<(Outcome, Result<(), String>), SimError> + Sync,
    ) -> Result<Survey, SimError> {
        let itself = unchanged(kernel).map(|kernel| judge(&kernel, seeds.clone(), &run)).transpose()?;
        let itself = itself.unwrap_or(Verdict::Survived);
        let mutants = mutants(kernel);
        let verdicts = in_parallel(mutants.len(), |index| judge(&mutants[index], seeds.clone(), &run));
        let verdicts = verdicts.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut used = vec![false; ledger.len()];
        let excuses: Vec<Option<&'static str>> = (0..mutants.len())
            .map(|index| {
                let entry = ledger.iter().position(|entry| excuses(entry, &mutants, index))?;
                used[entry] |= !verdicts[index].killed();
                Some(ledger[entry].why)
            })
            .collect();
        let rows = mutants.into_iter().zip(verdicts).zip(excuses);
        let rows = rows.map(|((mutant, verdict), excuse)| Judged { mutant, verdict, excuse }).collect();
        let stale = ledger.iter().zip(used).filter(|(_, used)| !used).map(|(entry, _)| *entry).collect();
        Ok(Survey { kernel: kernel.name.clone(), itself, rows, stale })
    }

    /// Mutants that were found out.
    pub fn killed(&self) -> usize {
        self.rows.iter().filter(|row| row.verdict.killed()).count()
    }

    /// What is wrong with the survey, a line each: a kernel that is found out without any change, survivors without an excuse,
    /// and excuses without a survivor.
    pub fn holes(&self) -> Vec<String> {
        let survivors = self.rows.iter().filter(|row| !row.verdict.killed() && row.excuse.is_none());
        let stale = self.stale.iter();
        let itself =
            self.itself.killed().then(|| format!("{}: {} without any change", self.kernel, self.itself.name()));
        let survivors =
            survivors.map(|row| format!("{}: survives and is not in the ledger", line(&self.kernel, &row.mutant)));
        itself
            .into_iter()
            .chain(survivors)
            .chain(stale.map(|e| {
                format!("{} {}, {}: in the ledger, and no such mutant survives", self.kernel, e.inst, e.change)
            }))
            .collect()
    }
}

/// Whether an entry speaks of a mutant.
fn excuses(entry: &Equivalent, mutants: &[Mutant], index: usize) -> bool {
    let like = |mutant: &Mutant| mutant.inst.starts_with(entry.inst) && mutant.change == entry.change;
    let before = || mutants[..index].iter().filter(|mutant| like(mutant)).count();
    like(&mutants[index]) && entry.nth.is_none_or(|nth| nth == before())
}

fn line(kernel: &str, mutant: &Mutant) -> String {
    format!("{kernel:12} {:5} {:52} {:20}", mutant.stmt.to_string(), mutant.inst, mutant.change)
}

impl fmt::Display for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Judged { mutant, verdict, excuse } in &self.rows {
            write!(f, "{} {}", line(&self.kernel, mutant), verdict.name())?;
            match verdict {
                Verdict::Killed { seed, .. } | Verdict::Wrong { seed, .. } => writeln!(f, " seed {seed}")?,
                Verdict::Rejected(_) => writeln!(f)?,
                Verdict::Survived => writeln!(f, ": {}", excuse.unwrap_or("not in the ledger"))?,
            }
        }
        write!(f, "{}: killed {} of {}", self.kernel, self.killed(), self.rows.len())
    }
}

/// The results of jobs numbered from 0, in order, worked off by as many threads as there are cores.
fn in_parallel<T: Send>(jobs: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(jobs)));
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get()).min(jobs);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs {
                        return;
                    }
                    let result = work(job);
                    done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((job, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(job, _)| *job);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{block, record};
    use crate::ir::Arch;
    use crate::sim::{self, Arg, Launch, Memory};

    /// Two barriers, of which the second orders nothing.
    fn kernel() -> Kernel {
        record("pair", Arch::Sm90a, block(64), |k| {
            let (out, tile) = (k.global::<u32>("out"), k.shared::<u32>("tile", 64));
            tile.at(k.tid()).store(k.tid());
            k.barrier();
            out.at(k.tid()).store(tile.at(k.tid() ^ 33).load());
            k.barrier();
        })
    }

    fn survey(ledger: &[Equivalent]) -> Survey {
        Survey::of(&kernel(), 0..20, ledger, |mutant, seed| {
            let mut memory = Memory::new();
            let out = memory.alloc("out", 256);
            let outcome = sim::run(mutant, &Launch::new([1, 1, 1], vec![Arg::Ptr(out)]), &mut memory, seed)?;
            Ok((outcome, Ok(())))
        })
        .expect("it launches")
    }

    #[test]
    fn a_kernel_that_is_wrong_by_itself_proves_nothing() {
        let survey = Survey::of(&kernel(), 0..2, &[], |mutant, seed| {
            let mut memory = Memory::new();
            let short = memory.alloc("out", 252);
            let outcome = sim::run(mutant, &Launch::new([1, 1, 1], vec![Arg::Ptr(short)]), &mut memory, seed)?;
            Ok((outcome, Ok(())))
        })
        .expect("it launches");
        assert_eq!(survey.killed(), survey.rows.len());
        assert_eq!(survey.holes(), ["pair: out of bounds without any change"]);
    }

    #[test]
    fn survivors_need_an_entry_and_entries_a_survivor() {
        let bare = survey(&[]);
        assert!(bare.killed() < bare.rows.len() && bare.holes().len() == bare.rows.len() - bare.killed(), "{bare}");
        let entry = Equivalent::all("bar.sync 0", "removed", "nothing comes after it");
        assert!(!survey(&[entry.nth(1)]).holes().iter().any(|hole| hole.contains("removed")));
        let stale = survey(&[entry.nth(0)]);
        assert!(stale.holes().iter().any(|hole| hole.contains("in the ledger, and no such")), "{:#?}", stale.holes());
    }
}
