//! Finds the buffers of the step inputs, by the roles in which ops read them, not by name.

use std::collections::BTreeMap;

use crate::ops::{CellUse, Operands, Paging, Role};
use crate::program::{BufferId, Program};

/// The cells of a program.
#[derive(Debug, Default)]
pub(in crate::vm) struct CellRoles {
    /// The buffers of each role.
    pub token: Vec<BufferId>,
    pub position: Vec<BufferId>,
    pub page_table: Vec<BufferId>,
    pub request: Vec<BufferId>,
    pub slot: Vec<BufferId>,
    /// Slots of requests, the least of them.
    pub slots: Option<usize>,
    /// The embedding tables' rows, the least of them.
    pub vocab: Option<usize>,
    /// The distinct pagings of the pools.
    pub pagings: Vec<Paging>,
}

/// Finds the cells of a valid program.
pub(in crate::vm) fn cell_roles(program: &Program) -> CellRoles {
    let operands = Operands::new(&program.buffers);
    used_as(program.tasks.iter().filter_map(|task| task.op.footprint(&operands).ok()).flat_map(|f| f.cells))
}

/// Finds the cells by what ops read them as. A buffer has one role: the validator refuses others.
pub(in crate::vm) fn used_as(uses: impl IntoIterator<Item = (BufferId, CellUse)>) -> CellRoles {
    let mut roles = BTreeMap::new();
    let mut cells = CellRoles::default();
    for (buffer, used) in uses {
        roles.insert(buffer, used.role());
        match used {
            CellUse::Token { vocab } => cells.vocab = Some(cells.vocab.map_or(vocab, |least| least.min(vocab))),
            CellUse::PageTable { paging: Some(paging) } if !cells.pagings.contains(&paging) => {
                cells.pagings.push(paging)
            }
            CellUse::Slot { slots } => cells.slots = Some(cells.slots.map_or(slots, |least| least.min(slots))),
            CellUse::PageTable { .. } | CellUse::Position | CellUse::Request => {}
        }
    }
    for (buffer, role) in roles {
        match role {
            Role::Token => cells.token.push(buffer),
            Role::Position => cells.position.push(buffer),
            Role::PageTable => cells.page_table.push(buffer),
            Role::Request => cells.request.push(buffer),
            Role::Slot => cells.slot.push(buffer),
        }
    }
    cells
}
