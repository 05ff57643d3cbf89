//! The readers of a cell since its last write, as lists that share their tails.
//!
//! The tiles of one level read the same cells, so thousands of cells have the same readers. A list
//! is the index of its newest node; an access that pushes on many cells makes one node for all that
//! had the same list before, and a write that meets many cells walks every node once.
//!
//! ```text
//! cells 0..9:   t3 ─── t2 ─── t1      t3 read cells 0..9 only;
//! cells 10..99:        t2 ───┘        t2 and t1 read all of them
//! ```

/// The list without readers.
pub(super) const EMPTY: u32 = 0;

/// Nodes kept before those that no cell needs are dropped; about 80 MB.
const KEPT: usize = 1 << 22;

#[derive(Clone, Copy)]
struct ReaderNode {
    task: u32,
    /// The buffer through which the task read.
    through: u32,
    /// The readers before it.
    rest: u32,
    /// The last access that met this node, and the list that it made of it, if it read.
    turn: u32,
    pushed: u32,
}

/// All lists of one walk.
pub(super) struct Lists {
    nodes: Vec<ReaderNode>,
    limit: usize,
}

impl Lists {
    pub fn new() -> Lists {
        let none = ReaderNode { task: u32::MAX, through: u32::MAX, rest: EMPTY, turn: 0, pushed: EMPTY };
        Lists { nodes: vec![none], limit: KEPT }
    }

    /// The list with one more reader. `turn` numbers the accesses, from 1.
    pub fn push(&mut self, list: u32, task: u32, through: u32, turn: u32) -> u32 {
        let node = self.nodes[list as usize];
        if (node.task, node.through) == (task, through) {
            return list;
        }
        if node.turn == turn {
            return node.pushed;
        }
        let pushed = self.nodes.len() as u32;
        self.nodes.push(ReaderNode { task, through, rest: list, turn: 0, pushed: EMPTY });
        (self.nodes[list as usize].turn, self.nodes[list as usize].pushed) = (turn, pushed);
        pushed
    }

    /// Calls `visit` with the task and buffer of every reader in a list that this access has not
    /// visited yet.
    pub fn visit(&mut self, list: u32, turn: u32, mut visit: impl FnMut(u32, u32)) {
        let mut at = list;
        // Where this access has been, it has been at all of the rest.
        while at != EMPTY && self.nodes[at as usize].turn != turn {
            let node = &mut self.nodes[at as usize];
            node.turn = turn;
            visit(node.task, node.through);
            at = node.rest;
        }
    }

    /// Whether it is time to [`Lists::compact`].
    pub fn is_full(&self) -> bool {
        self.nodes.len() > self.limit
    }

    /// Drops the nodes that none of the lists needs, and renumbers the lists.
    pub fn compact<'l>(&mut self, lists: impl Iterator<Item = &'l mut u32>) {
        let lists: Vec<&mut u32> = lists.collect();
        let mut moved = vec![u32::MAX; self.nodes.len()];
        let mut needed = vec![false; self.nodes.len()];
        needed[EMPTY as usize] = true;
        lists.iter().for_each(|list| needed[**list as usize] = true);
        // A node is younger than its rest, so going back meets every node before its rest.
        for at in (1..self.nodes.len()).rev() {
            if needed[at] {
                needed[self.nodes[at].rest as usize] = true;
            }
        }
        let mut kept = Vec::new();
        for (at, node) in self.nodes.iter().enumerate().filter(|(at, _)| needed[*at]) {
            moved[at] = kept.len() as u32;
            let rest = if at == EMPTY as usize { EMPTY } else { moved[node.rest as usize] };
            kept.push(ReaderNode { rest, turn: 0, pushed: EMPTY, ..*node });
        }
        self.nodes = kept;
        self.limit = KEPT.max(2 * self.nodes.len());
        lists.into_iter().for_each(|list| *list = moved[*list as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers(lists: &mut Lists, list: u32, turn: u32) -> Vec<u32> {
        let mut tasks = Vec::new();
        lists.visit(list, turn, |task, _| tasks.push(task));
        tasks
    }

    #[test]
    fn an_access_shares_nodes_and_meets_each_once() {
        let mut lists = Lists::new();
        let mut cells = [EMPTY; 4];
        for (turn, (task, range)) in (1..).zip([(10, 0..4), (11, 0..4), (12, 0..2)]) {
            cells[range].iter_mut().for_each(|cell| *cell = lists.push(*cell, task, 0, turn));
        }
        assert_eq!((cells[0], cells[2]), (cells[1], cells[3]));
        assert_eq!(lists.nodes.len(), 4);
        assert_eq!(lists.push(cells[0], 12, 0, 9), cells[0]);
        assert_eq!(readers(&mut lists, cells[3], 20), [11, 10]);
        assert_eq!(readers(&mut lists, cells[0], 20), [12]);
        assert_eq!(readers(&mut lists, cells[0], 21), [12, 11, 10]);
        cells[0] = EMPTY;
        cells[1] = EMPTY;
        lists.compact(cells.iter_mut());
        assert_eq!((lists.nodes.len(), cells), (3, [EMPTY, EMPTY, 2, 2]));
        assert_eq!(readers(&mut lists, cells[2], 30), [11, 10]);
    }
}
