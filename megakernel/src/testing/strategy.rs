//! Programs as strategies: what fails becomes smaller by a task, a wait, a signal or a place at a
//! time.

use proptest::prelude::*;
use proptest::strategy::{NewTree, ValueTree};
use proptest::test_runner::TestRunner;

use super::shrink::smaller;
use super::{Rng, generate, judge};
use crate::program::Program;

/// Small programs whose tasks are ordered wherever they have to be, with queues or without; so are
/// those that they shrink to.
pub fn programs() -> impl Strategy<Value = Program> {
    Programs { make: generate::valid, keep: |program| judge(program).is_ok() }
}

/// Small programs near the border: now and then a wait is missing, a threshold is too low, a buffer
/// lies over another. About half of them are safe.
pub fn borderline_programs() -> impl Strategy<Value = Program> {
    Programs { make: generate::borderline, keep: |_| true }
}

#[derive(Debug)]
struct Programs {
    make: fn(&mut Rng) -> Program,
    /// Whether a program is a valid result of shrinking.
    keep: fn(&Program) -> bool,
}

impl Strategy for Programs {
    type Tree = Shrinking;
    type Value = Program;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Programs> {
        let seed = any::<u64>().new_tree(runner)?.current();
        let program = (self.make)(&mut Rng::new(seed));
        Ok(Shrinking { failing: program.clone(), program, left: Vec::new(), keep: self.keep })
    }
}

/// A program, and what it may shrink to.
struct Shrinking {
    program: Program,
    /// The smallest that failed.
    failing: Program,
    /// Programs one step smaller that are still to be tried.
    left: Vec<Program>,
    keep: fn(&Program) -> bool,
}

impl Shrinking {
    fn next(&mut self) -> bool {
        while let Some(program) = self.left.pop() {
            if (self.keep)(&program) {
                self.program = program;
                return true;
            }
        }
        self.program = self.failing.clone();
        false
    }
}

impl ValueTree for Shrinking {
    type Value = Program;

    fn current(&self) -> Program {
        self.program.clone()
    }

    fn simplify(&mut self) -> bool {
        self.failing = self.program.clone();
        self.left = smaller(&self.failing);
        self.left.reverse();
        self.next()
    }

    fn complicate(&mut self) -> bool {
        self.next()
    }
}
