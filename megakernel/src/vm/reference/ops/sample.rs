//! The choice that a row asks for.

use tilewright_kernels::naive;
use tilewright_kernels::sample::Request;

use super::argmax::best_of_tiles;
use super::{Context, Done, TaskFault};
use crate::program::{REQUEST_WORDS, Sample};

pub(super) fn sample(op: &Sample, on: &Context) -> Done {
    op.rows.iter().try_for_each(|row| on.write_i32(op.out, row, choose(op, on, row)?))
}

fn choose(op: &Sample, on: &Context, row: usize) -> Done<i32> {
    if on.position(op.position, row)?.is_none() {
        return Ok(-1);
    }
    let mut words = [0i32; REQUEST_WORDS];
    for (at, word) in words.iter_mut().enumerate() {
        *word = on.read_i32(op.request, row * REQUEST_WORDS + at)?;
    }
    let request: Request = bytemuck::cast(words);
    let sampling = request.sampling().map_err(|source| TaskFault::Request { row, source })?;
    if sampling.is_greedy() {
        return best_of_tiles(on, op.value, op.index, row);
    }
    let [_, vocab] = on.shape(op.logits)?;
    let logits = on.read(op.logits, row * vocab, vocab)?;
    let token = naive::sample(&logits, &sampling, request.step, request.row);
    Ok(token.map_or(-1, |token| token as i32))
}
