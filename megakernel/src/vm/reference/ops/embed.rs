//! Rows of the embedding table.

use super::{Context, Done, TaskFault};
use crate::program::Embed;

pub(super) fn embed(op: &Embed, on: &Context) -> Done {
    let [vocab, hidden] = on.shape(op.table)?;
    for row in op.rows.iter() {
        let values = match on.position(op.position, row)? {
            None => vec![0.0; op.cols.len()],
            Some(_) => {
                let id = on.read_i32(op.ids, row)?;
                let known = usize::try_from(id).ok().filter(|&id| id < vocab);
                let known = known.ok_or(TaskFault::Token { row, id, vocab })?;
                on.read(op.table, known * hidden + op.cols.lo, op.cols.len())?
            }
        };
        on.write(op.out, row * hidden + op.cols.lo, &values)?;
    }
    Ok(())
}
