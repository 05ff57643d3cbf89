//! The memory footprint of a task: the regions that follow from an op's operands, and the step
//! inputs that it reads.

use crate::program::{BufferId, Region};

/// The regions that a task reads and writes, with in-place updates and uses of step inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Footprint {
    /// Regions read.
    pub reads: Vec<Region>,
    /// Regions written.
    pub writes: Vec<Region>,
    /// The reads that the op makes element by element, each before it writes the same element: it
    /// may write exactly such a region in place. An operand that appears twice in `reads` appears
    /// twice here.
    pub updates: Vec<Region>,
    /// The cells among the reads, and what each is read as.
    pub cells: Vec<(BufferId, CellUse)>,
    /// The written buffers that may be on another device than the task: the op stores to peers.
    pub sent: Vec<BufferId>,
}

impl Footprint {
    /// A footprint of reads and writes that do not overlap, none of them of cells.
    pub fn new(reads: Vec<Region>, writes: Vec<Region>) -> Footprint {
        Footprint { reads, writes, ..Footprint::default() }
    }

    /// Adds the step inputs that the op reads, with their uses.
    #[must_use]
    pub fn cells(mut self, cells: impl IntoIterator<Item = (BufferId, CellUse)>) -> Footprint {
        self.cells.extend(cells);
        self
    }

    /// Adds buffers that the op stores to on whatever device they lie.
    #[must_use]
    pub fn sending(mut self, buffers: impl IntoIterator<Item = BufferId>) -> Footprint {
        self.sent.extend(buffers);
        self
    }

    /// Adds reads that the op may update in place.
    #[must_use]
    pub fn updating(mut self, reads: impl IntoIterator<Item = Region>) -> Footprint {
        self.updates.extend(reads);
        self
    }

    /// Sorts reads and writes and drops repetitions: the form in which declared and computed
    /// regions are compared.
    pub fn canonical(mut self) -> Footprint {
        for list in [&mut self.reads, &mut self.writes] {
            list.sort_unstable();
            list.dedup();
        }
        self
    }
}

/// The contents of a step input (cell), which has one role in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Token ids.
    Token,
    /// Positions.
    Position,
    /// Pages of sequences.
    PageTable,
    /// The sampling requests of rows.
    Request,
    /// The request slot of each row.
    Slot,
}

impl Role {
    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Token => "token",
            Role::Position => "position",
            Role::PageTable => "page_table",
            Role::Request => "request",
            Role::Slot => "slot",
        }
    }
}

/// The use of a step input by an op. Entries are indexes, whose bounds are checked before a step
/// runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellUse {
    /// Token ids, rows of a table.
    Token {
        /// Rows of the table.
        vocab: usize,
    },
    /// Positions.
    Position,
    /// Page tables.
    PageTable {
        /// The pages that entries are numbers of; `None` where the op looks at no pool.
        paging: Option<Paging>,
    },
    /// Requests.
    Request,
    /// Slots: where what a request carries from step to step lies, and which request has the slot.
    Slot {
        /// Slots there are.
        slots: usize,
    },
}

/// Words of a slot: its number, and the number of the request that has it. Data of another request
/// in the slot counts as reset.
pub const SLOT_WORDS: usize = 2;

impl CellUse {
    /// The role of the cell.
    pub const fn role(self) -> Role {
        match self {
            CellUse::Token { .. } => Role::Token,
            CellUse::Position => Role::Position,
            CellUse::PageTable { .. } => Role::PageTable,
            CellUse::Request => Role::Request,
            CellUse::Slot { .. } => Role::Slot,
        }
    }
}

/// The pages of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paging {
    /// Pages.
    pub pages: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
}
