//! Finds tasks that touch the same bytes, by comparison of byte sets. The generators derive waits
//! from it.

use std::collections::BTreeSet;

use crate::program::{Program, Region};

use super::oracle::{Byte, bytes};

/// Bytes read and bytes written by every task.
#[derive(Clone, Debug)]
pub struct Touched {
    /// Bytes read, by task.
    pub reads: Vec<BTreeSet<Byte>>,
    /// Bytes written, by task.
    pub writes: Vec<BTreeSet<Byte>>,
}

impl Touched {
    /// The touched bytes of a program.
    pub fn of(program: &Program) -> Touched {
        let all = |regions: &[Region]| regions.iter().flat_map(|region| bytes(program, region)).collect();
        Touched {
            reads: program.tasks.iter().map(|task| all(&task.reads)).collect(),
            writes: program.tasks.iter().map(|task| all(&task.writes)).collect(),
        }
    }

    /// Whether two tasks touch a byte that one of them writes.
    pub fn clash(&self, a: usize, b: usize) -> bool {
        !self.writes[a].is_disjoint(&self.writes[b])
            || !self.writes[a].is_disjoint(&self.reads[b])
            || !self.reads[a].is_disjoint(&self.writes[b])
    }
}
