//! Every mutant of a kernel, judged over all cores: killed of total, and survivors with the reason
//! why.

use super::counterparts::Counterparts;
use super::{Mutant, plans};
use crate::ir::Kernel;
use crate::sample::Sample;
use crate::verify::{Verified, verify};
use core::fmt;
use core::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A change that changes nothing that the kernel promises, with the reason: an entry of a ledger of
/// survivors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Equivalent {
    /// The end of the path of the author's file; empty for any file.
    pub file: &'static str,
    /// The beginning of the instruction's text, after its results.
    pub inst: &'static str,
    /// The change, as [`Mutant::change`] has it.
    pub change: &'static str,
    /// The number of such mutants that survive; `None`: at least one.
    pub count: Option<usize>,
    /// Why nothing can tell them from the original.
    pub why: &'static str,
}

impl Equivalent {
    /// Creates an entry for some of the mutants of such instructions of a file with this change.
    pub const fn new(file: &'static str, inst: &'static str, change: &'static str, why: &'static str) -> Equivalent {
        Equivalent { file, inst, change, count: None, why }
    }

    /// Requires exactly `count` of them.
    pub const fn times(self, count: usize) -> Equivalent {
        Equivalent { count: Some(count), ..self }
    }

    /// Whether it speaks of a mutant.
    fn names(&self, mutant: &Mutant) -> bool {
        let inst = mutant.inst.rsplit(" = ").next().unwrap_or_default();
        mutant.src.file().ends_with(self.file) && inst.starts_with(self.inst) && mutant.change == self.change
    }
}

/// A mutant and what became of it.
#[derive(Debug)]
pub struct Judged {
    /// The mutant.
    pub mutant: Mutant,
    /// The finding that detected it; `None` if it survived.
    pub found: Option<String>,
    /// The entry of the ledger that excuses a survivor, by its place.
    pub excuse: Option<usize>,
}

/// The verdict on every mutant of a kernel.
///
/// A test of a kernel surveys it with the inputs and the comparison that its other tests use:
///
/// ```
/// use tilewright_codegen::sim::mutate::{Equivalent, Survey, under_seeds};
/// use tilewright_codegen::sim::{self, Arg, Launch, Memory, SimError};
/// use tilewright_codegen::{gallery, ir::{Arch, Const}};
///
/// // What is known to survive, and why. Of `block_sum`, nothing does.
/// const LEDGER: &[Equivalent] = &[];
///
/// let kernel = gallery::named("block_sum").unwrap().record(Arch::Sm90a);
/// let judge = under_seeds(0..20, |mutant, seed| {
///     let mut memory = Memory::new();
///     let x = memory.upload("x", &[1.0f32; 700]);
///     let out = memory.alloc("out", 4);
///     let args = vec![Arg::Scalar(Const::u32(700)), Arg::Ptr(x), Arg::Ptr(out)];
///     let outcome = sim::run(mutant, &Launch::new([1, 1, 1], args), &mut memory, seed)?;
///     let wrong = || match memory.download::<f32>(out, 1) {
///         Ok(sum) => (sum != [700.0]).then(|| format!("the sum is {sum:?}")),
///         Err(unwritten) => Some(unwritten.to_string()),
///     };
///     Ok::<_, SimError>(outcome.fault().map(|fault| fault.kind.name().into()).or_else(wrong))
/// });
/// let survey = Survey::of(&kernel, LEDGER, judge).unwrap();
/// assert_eq!(survey.killed(), survey.rows.len());
/// survey.expect_no_holes();
/// ```
#[derive(Debug)]
pub struct Survey {
    /// The kernel's name.
    pub kernel: String,
    /// The finding against the unchanged kernel; any finding makes the other verdicts worthless.
    pub itself: Option<String>,
    /// The mutants that were judged.
    pub sample: Sample,
    /// These mutants in the order of the text.
    pub rows: Vec<Judged>,
    /// The ledger.
    pub ledger: Vec<Equivalent>,
}

impl Survey {
    /// Judges a kernel and every mutant of it, on as many threads as there are cores. `judge` says
    /// what is wrong with one, if anything is; what the verifier rejects it does not get to see.
    ///
    /// # Errors
    /// The first that `judge` gives.
    pub fn of<E: Send>(
        kernel: &Kernel,
        ledger: &[Equivalent],
        judge: impl Fn(&Arc<Verified>) -> Result<Option<String>, E> + Sync,
    ) -> Result<Survey, E> {
        Survey::of_recordings(kernel, &[], Sample::ALL, ledger, |_, kernel| judge(kernel))
    }

    /// Surveys a kernel that is recorded for several shapes, of which some reach what others do
    /// not: what survives in the first is looked for in the others, in their order. There it is
    /// found out where every mutant is that stands for it: the same change of the same instruction
    /// at the same place of the author's; where both recordings have as many of these, the one with
    /// its number. `judge` also gets the number of the recording, 0 for the first.
    ///
    /// ```
    /// use tilewright_codegen::build::{block, record};
    /// use tilewright_codegen::ir::Arch;
    /// use tilewright_codegen::sample::Sample;
    /// use tilewright_codegen::sim::mutate::{Survey, under_seeds};
    /// use tilewright_codegen::sim::{self, Arg, Launch, Memory, SimError};
    ///
    /// // Neighbours change places, for a number of rounds: one round needs no second barrier.
    /// let turns = |rounds: u32| record("turns", Arch::Sm90a, block(64), move |k| {
    ///     let out = k.global::<u32>("out");
    ///     let tile = k.shared::<u32>("tile", 64);
    ///     k.for_(0u32, rounds, |round| {
    ///         tile.at(k.tid()).store(round);
    ///         k.barrier();
    ///         out.at(k.tid()).store(tile.at(k.tid() ^ 33).load());
    ///         k.barrier();
    ///     });
    /// });
    /// let judge = |_, kernel: &_| under_seeds(0..20, |mutant, seed| {
    ///     let mut memory = Memory::new();
    ///     let out = memory.alloc("out", 256);
    ///     let outcome = sim::run(mutant, &Launch::new([1, 1, 1], vec![Arg::Ptr(out)]), &mut memory, seed)?;
    ///     Ok::<_, SimError>(outcome.fault().map(|fault| fault.kind.name().into()))
    /// })(kernel);
    /// let alone = Survey::of(&turns(1), &[], |kernel| judge(0, kernel)).unwrap();
    /// assert!(alone.killed() < alone.rows.len());
    /// Survey::of_recordings(&turns(1), &[turns(2)], Sample::ALL, &[], judge).unwrap().expect_no_holes();
    /// ```
    ///
    /// # Errors
    /// The first that `judge` gives.
    pub fn of_recordings<E: Send>(
        kernel: &Kernel,
        others: &[Kernel],
        sample: Sample,
        ledger: &[Equivalent],
        judge: impl Fn(usize, &Arc<Verified>) -> Result<Option<String>, E> + Sync,
    ) -> Result<Survey, E> {
        let judge = |number: usize, kernel: &Kernel| match verify(kernel.clone()) {
            Ok(kernel) => judge(number, &Arc::new(kernel)),
            Err(_) => Ok(Some("rejected by the verifier".into())),
        };
        let mut itself = None;
        for (number, kernel) in [kernel].into_iter().chain(others).enumerate() {
            itself = itself.or(judge(number, kernel)?);
        }
        let plans = plans(kernel);
        let others: Vec<_> = others.iter().map(|other| Counterparts::new(&plans, other)).collect();
        let taken: Vec<_> = plans.into_iter().enumerate().filter(|(index, _)| sample.has_spread(*index)).collect();
        let found = in_parallel(taken.len(), |job| {
            let (index, plan) = &taken[job];
            let mut found = judge(0, &plan.kernel(kernel))?;
            for (number, other) in (1..).zip(&others) {
                if found.is_none() {
                    found = other.found(*index, |kernel| judge(number, kernel))?;
                }
            }
            Ok(found)
        });
        let found = found.into_iter().collect::<Result<Vec<_>, E>>()?;
        let rows = taken.into_iter().zip(found).map(|((_, plan), found)| {
            let mutant = plan.mutant(kernel);
            let entry = || ledger.iter().position(|entry| entry.names(&mutant));
            let excuse = if found.is_some() { None } else { entry() };
            Judged { mutant, found, excuse }
        });
        Ok(Survey { kernel: kernel.name.clone(), itself, sample, rows: rows.collect(), ledger: ledger.to_vec() })
    }

    /// Mutants that were found out.
    pub fn killed(&self) -> usize {
        self.rows.iter().filter(|row| row.found.is_some()).count()
    }

    /// The defects of the survey, one line each: an unchanged kernel with a finding, survivors
    /// without an excuse, and ledger entries with a wrong number of survivors.
    ///
    /// For a part of the mutants, an entry may excuse fewer.
    pub fn holes(&self) -> Vec<String> {
        let itself = self.itself.iter().map(|found| format!("{}: {found} without any change", self.kernel));
        let survivors = self.rows.iter().filter(|row| row.found.is_none() && row.excuse.is_none());
        let survivors = survivors.map(|row| format!("{} survives and is not in the ledger", self.line(&row.mutant)));
        let stale = self.ledger.iter().enumerate().filter_map(|(at, entry)| {
            let excused = self.rows.iter().filter(|row| row.excuse == Some(at)).count();
            let right = match (self.sample.is_all(), entry.count) {
                (true, Some(count)) => excused == count,
                (true, None) => excused > 0,
                (false, Some(count)) => excused <= count,
                (false, None) => true,
            };
            let Equivalent { file, inst, change, .. } = entry;
            (!right).then(|| format!("{} {file} {inst}, {change}: in the ledger, and {excused} survive", self.kernel))
        });
        itself.chain(survivors).chain(stale).collect()
    }

    /// Prints the table, as a test of the kernel ends.
    ///
    /// # Panics
    /// With the holes, where there are any.
    #[track_caller]
    pub fn expect_no_holes(&self) {
        println!("{self}");
        let holes = self.holes();
        assert!(holes.is_empty(), "{}", holes.join("\n"));
    }

    fn line(&self, mutant: &Mutant) -> String {
        let Mutant { stmt, inst, src, change, .. } = mutant;
        format!("{:12} {:5} {inst:52} {change:20} {src}", self.kernel, stmt.to_string())
    }
}

impl fmt::Display for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Judged { mutant, found, excuse } in &self.rows {
            let why = excuse.map_or("not in the ledger", |entry| self.ledger[entry].why);
            let survived = || format!("survived: {why}");
            writeln!(f, "{}: {}", self.line(mutant), found.clone().unwrap_or_else(survived))?;
        }
        let excused = self.rows.iter().filter(|row| row.excuse.is_some()).count();
        write!(f, "{}: killed {} of {}, {excused} in the ledger", self.kernel, self.killed(), self.rows.len())?;
        if self.sample.is_all() { Ok(()) } else { write!(f, ", {}", self.sample) }
    }
}

/// A judge that runs a kernel under each seed until one finds a fault.
pub fn under_seeds<E>(
    seeds: Range<u64>,
    run: impl Fn(&Arc<Verified>, u64) -> Result<Option<String>, E>,
) -> impl Fn(&Arc<Verified>) -> Result<Option<String>, E> {
    move |kernel| {
        let found = |seed| Ok(run(kernel, seed)?.map(|found| format!("{found}, seed {seed}")));
        seeds.clone().map(found).find(|found| !matches!(found, Ok(None))).unwrap_or(Ok(None))
    }
}

/// The results of jobs numbered from 0, in order, worked off by as many threads as there are cores.
fn in_parallel<T: Send>(jobs: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(jobs));
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
    use crate::sim::{self, Arg, Launch, Memory, SimError};

    /// Two barriers, of which the second orders nothing.
    fn kernel() -> Kernel {
        record("pair", Arch::Sm90a, block(64), |k| {
            let out = k.global::<u32>("out");
            let tile = k.shared::<u32>("tile", 64);
            tile.at(k.tid()).store(k.tid());
            k.barrier();
            out.at(k.tid()).store(tile.at(k.tid() ^ 33).load());
            k.barrier();
        })
    }

    fn survey(bytes: usize, ledger: &[Equivalent]) -> Survey {
        let judge = under_seeds(0..20, |mutant, seed| {
            let mut memory = Memory::new();
            let out = memory.alloc("out", bytes);
            let outcome = sim::run(mutant, &Launch::new([1, 1, 1], vec![Arg::Ptr(out)]), &mut memory, seed)?;
            Ok::<_, SimError>(outcome.fault().map(|fault| fault.kind.name().into()))
        });
        Survey::of(&kernel(), ledger, judge).expect("it launches")
    }

    #[test]
    fn a_kernel_that_is_wrong_by_itself_proves_nothing() {
        let survey = survey(252, &[]);
        assert_eq!(survey.killed(), survey.rows.len());
        assert_eq!(survey.holes(), ["pair: out of bounds, seed 0 without any change"]);
    }

    #[test]
    fn an_entry_may_excuse_fewer_of_a_part() {
        let removed = Equivalent::new("survey.rs", "bar.sync 0", "removed", "nothing comes after it");
        let holes = |count: usize, sample: Sample| {
            let mut survey = survey(256, &[removed.times(count)]);
            survey.sample = sample;
            survey.holes().into_iter().filter(|hole| hole.contains("removed")).count()
        };
        let part = Sample::new(2, 0);
        assert_eq!([holes(2, Sample::ALL), holes(2, part), holes(0, part)], [1, 0, 1]);
    }

    #[test]
    fn survivors_need_an_entry_and_entries_a_survivor() {
        let bare = survey(256, &[]);
        assert!(bare.killed() < bare.rows.len() && bare.holes().len() == bare.rows.len() - bare.killed(), "{bare}");
        let removed = Equivalent::new("survey.rs", "bar.sync 0", "removed", "nothing comes after it");
        let holes =
            |entry: Equivalent| survey(256, &[entry]).holes().into_iter().filter(|hole| hole.contains("removed"));
        assert_eq!(holes(removed).count(), 0);
        assert_eq!(holes(removed.times(1)).count(), 0);
        assert!(holes(removed.times(2)).all(|hole| hole.ends_with("in the ledger, and 1 survive")));
        assert_eq!(holes(removed.times(2)).count(), 1);
        for other in [Equivalent { file: "other.rs", ..removed }, Equivalent { inst: "bar.warp", ..removed }] {
            assert_eq!(holes(other).count(), 2, "a survivor without an entry, and an entry without a survivor");
        }
    }
}
