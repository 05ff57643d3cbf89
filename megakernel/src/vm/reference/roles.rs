//! Which buffers are the cells of a step: found by what the ops read them as, not by name.

use std::collections::BTreeMap;

use crate::program::{BufferId, BufferKind, HeadOutput, KeyOutput, Op, Place, Program};

/// What a cell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::vm) enum Role {
    Token,
    Position,
    PageTable,
    Request,
}

impl Role {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Role::Token => "token",
            Role::Position => "position",
            Role::PageTable => "page_table",
            Role::Request => "requests",
        }
    }
}

/// The pages that a page table's entries are numbers of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::vm) struct Paging {
    pub pages: usize,
    pub page_tokens: usize,
}

/// The cells of a program.
#[derive(Debug, Default)]
pub(in crate::vm) struct Cells {
    /// The buffers of each role.
    pub token: Vec<BufferId>,
    pub position: Vec<BufferId>,
    pub page_table: Vec<BufferId>,
    pub request: Vec<BufferId>,
    /// The embedding tables' rows, the least of them.
    pub vocab: Option<usize>,
    /// The distinct pagings of the pools.
    pub pagings: Vec<Paging>,
}

/// A cell that two ops read as different things.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RoleConflict {
    pub buffer: BufferId,
    pub roles: [Role; 2],
}

/// Finds the cells of a program.
pub(super) fn cells(program: &Program) -> Result<Cells, RoleConflict> {
    let mut roles = BTreeMap::new();
    let mut cells = Cells::default();
    for task in &program.tasks {
        for (buffer, role) in uses(&task.op) {
            let is_cell = program.buffers.get(buffer.index()).is_some_and(|b| b.kind == BufferKind::Cell);
            if is_cell && *roles.entry(buffer).or_insert(role) != role {
                return Err(RoleConflict { buffer, roles: [roles[&buffer], role] });
            }
        }
        let shape = |buffer: BufferId| program.buffers.get(buffer.index()).map(|b| b.shape.as_slice());
        for pool in pools(&task.op) {
            if let Some(&[_, pages, page_tokens, _]) = shape(pool) {
                let paging = Paging { pages, page_tokens };
                if !cells.pagings.contains(&paging) {
                    cells.pagings.push(paging);
                }
            }
        }
        if let Op::Embed(embed) = &task.op
            && let Some(&[vocab, _]) = shape(embed.table)
        {
            cells.vocab = Some(cells.vocab.map_or(vocab, |least| least.min(vocab)));
        }
    }
    for (buffer, role) in roles {
        match role {
            Role::Token => cells.token.push(buffer),
            Role::Position => cells.position.push(buffer),
            Role::PageTable => cells.page_table.push(buffer),
            Role::Request => cells.request.push(buffer),
        }
    }
    Ok(cells)
}

/// The cells that an op reads, and as what.
fn uses(op: &Op) -> Vec<(BufferId, Role)> {
    let place = |at: &Place| vec![(at.position, Role::Position), (at.page_table, Role::PageTable)];
    match op {
        Op::Embed(op) => vec![(op.ids, Role::Token), (op.position, Role::Position)],
        Op::Qkv(op) => place(&op.at),
        Op::Rope(op) => place(&op.at),
        Op::KvAppend(op) => place(&op.at),
        Op::Attention(op) => place(&op.at),
        Op::Sample(op) => vec![(op.position, Role::Position), (op.request, Role::Request)],
        Op::Copy(_) | Op::Add(_) | Op::SiluMul(_) | Op::RmsNorm(_) | Op::Linear(_) | Op::Combine(_) | Op::Argmax(_) => {
            vec![]
        }
    }
}

/// The pools that an op reaches through a page table.
fn pools(op: &Op) -> Vec<BufferId> {
    match op {
        Op::Qkv(op) => match op.k {
            KeyOutput::RopeAppend { pool, .. } => vec![op.v_pool, pool],
            KeyOutput::Raw { .. } => vec![op.v_pool],
        },
        Op::Rope(op) => match op.output {
            HeadOutput::Append { pool } => vec![pool],
            HeadOutput::Store { .. } => vec![],
        },
        Op::KvAppend(op) => vec![op.pool],
        Op::Attention(op) => vec![op.k_pool, op.v_pool],
        Op::Copy(_)
        | Op::Add(_)
        | Op::SiluMul(_)
        | Op::RmsNorm(_)
        | Op::Embed(_)
        | Op::Linear(_)
        | Op::Combine(_)
        | Op::Argmax(_)
        | Op::Sample(_) => vec![],
    }
}
