//! Finds the mutants of one recording of a kernel in another recording.

use super::{PlannedMutant, plans};
use crate::ir::Kernel;
use std::collections::HashMap;

/// The author's place, the instruction's name, and the change: what mutants of two recordings have
/// in common.
type Key = (&'static str, u32, u32, String, String);

fn key(plan: &PlannedMutant) -> Key {
    let inst = plan.inst.rsplit(" = ").next().unwrap_or_default();
    let name = inst.split(' ').next().unwrap_or_default();
    (plan.src.file(), plan.src.line(), plan.src.column(), name.into(), plan.change.clone())
}

/// The mutants of another recording that stand for those of a kernel.
pub(super) struct Counterparts<'k> {
    kernel: &'k Kernel,
    plans: Vec<PlannedMutant>,
    /// For each of the kernel's, which.
    of: Vec<Vec<usize>>,
}

impl<'k> Counterparts<'k> {
    /// Finds, for each mutant, those that have the same change of the same instruction at the same
    /// place of the author's. Where both recordings have as many of them, each stands for the one
    /// with its number; else all stand for each.
    pub fn new(of: &[PlannedMutant], kernel: &'k Kernel) -> Counterparts<'k> {
        let plans = plans(kernel);
        let mine = by_key(of);
        let theirs = by_key(&plans);
        let stand = |(index, plan): (usize, &PlannedMutant)| -> Vec<usize> {
            let key = key(plan);
            let mine = &mine[&key];
            let theirs = theirs.get(&key).map_or(&[][..], Vec::as_slice);
            let number = mine.iter().position(|&at| at == index).filter(|_| mine.len() == theirs.len());
            number.map_or(theirs, |number| &theirs[number..=number]).to_vec()
        };
        let of = of.iter().enumerate().map(stand).collect();
        Counterparts { kernel, plans, of }
    }

    /// The finding that detects all counterparts of a mutant, of which there must be at least one;
    /// `None` if any survives.
    pub fn found<E>(
        &self,
        mutant: usize,
        judge: impl Fn(&Kernel) -> Result<Option<String>, E>,
    ) -> Result<Option<String>, E> {
        let mut first = None;
        for &at in &self.of[mutant] {
            let Some(found) = judge(&self.plans[at].kernel(self.kernel))? else { return Ok(None) };
            first.get_or_insert(found);
        }
        Ok(first)
    }
}

fn by_key(plans: &[PlannedMutant]) -> HashMap<Key, Vec<usize>> {
    let mut all = HashMap::<Key, Vec<usize>>::new();
    for (at, plan) in plans.iter().enumerate() {
        all.entry(key(plan)).or_default().push(at);
    }
    all
}
