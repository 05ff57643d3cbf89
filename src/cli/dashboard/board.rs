//! Results prepared for the views: our rows by suite, the quoted runs, the measured ceilings.

use std::collections::HashMap;
use std::hash::Hash;

use crate::results::{Figures, Peaks, ResultEntry, Results, WorkloadRuns};

/// A rate that a device can reach at most, and where it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// Bytes or operations per second.
    pub rate: f64,
    /// `this run` or `other runs of the device`.
    pub measured_in: &'static str,
}

/// Results and what is computed from them once.
pub struct Board<'r> {
    pub results: &'r Results,
    /// The runs of every workload.
    pub runs: WorkloadRuns<'r>,
    /// The figures that are quoted.
    pub figures: Vec<Figures<'r>>,
    /// Measured ceilings.
    pub peaks: Peaks<'r>,
    entries: Vec<ResultEntry<'r>>,
}

impl<'r> Board<'r> {
    pub fn new(results: &'r Results) -> Board<'r> {
        let runs = WorkloadRuns::new(results);
        let figures = runs.figures();
        Board { results, figures, runs, peaks: Peaks::new(results), entries: ResultEntry::all(results).collect() }
    }

    /// Every row.
    pub fn entries(&self) -> &[ResultEntry<'r>] {
        &self.entries
    }

    /// This project's rows of a suite, without printed copies of other rows.
    pub fn ours(&self, suite: &str) -> Vec<ResultEntry<'r>> {
        let is_ours = |e: &ResultEntry<'_>| e.row.suite == suite && e.row.is_ours() && e.row.copy_of.is_none();
        self.entries.iter().copied().filter(is_ours).collect()
    }

    /// The newest of the entries that have the same key, in the order of the first of each.
    pub fn newest<K: Hash + Eq>(
        entries: Vec<ResultEntry<'r>>,
        key: impl Fn(&ResultEntry<'r>) -> K,
    ) -> Vec<ResultEntry<'r>> {
        let mut newest: Vec<ResultEntry<'r>> = Vec::new();
        let mut places: HashMap<K, usize> = HashMap::new();
        for entry in entries {
            match places.entry(key(&entry)) {
                std::collections::hash_map::Entry::Occupied(place) => {
                    let known = &mut newest[*place.get()];
                    if known.age() < entry.age() {
                        *known = entry;
                    }
                }
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(newest.len());
                    newest.push(entry);
                }
            }
        }
        newest
    }

    /// The rate at which a device read its memory: in the entry's own run, otherwise in other runs
    /// of the device.
    pub fn read_ceiling(&self, entry: &ResultEntry<'_>) -> Option<Ceiling> {
        ceiling(entry.call.read_peak, self.peaks.read(&entry.call.device))
    }

    /// The rate of bf16 matrix instructions, likewise.
    pub fn matrix_ceiling(&self, entry: &ResultEntry<'_>) -> Option<Ceiling> {
        ceiling(entry.call.matrix_peak, self.peaks.matrix(&entry.call.device))
    }
}

fn ceiling(own: Option<f64>, others: Option<f64>) -> Option<Ceiling> {
    let own = own.filter(|rate| *rate > 0.0).map(|rate| Ceiling { rate, measured_in: "this run" });
    own.or(others.map(|rate| Ceiling { rate, measured_in: "other runs of the device" }))
}
