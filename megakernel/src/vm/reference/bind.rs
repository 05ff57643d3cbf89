//! Weights to buffers, without copies, and where everything else lies.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use tilewright_layout::DType;

use crate::oracle::{BoundSlot, zeroed};
use crate::program::{Buffer, BufferId, BufferKind, Program, Source};
use crate::vm::BindError;
use crate::vm::binding::{experts, quantized, weight};
use crate::weights::Weights;

/// Binds every buffer; gives the slots and the words of memory that they need.
pub(super) fn slots(program: &Program, weights: &dyn Weights) -> Result<(Vec<BoundSlot>, usize), BindError> {
    let (bases, words) = lay_out(program);
    let mut pools = 0..;
    let slot = |(buffer, base): (&Buffer, usize)| match buffer.kind {
        BufferKind::Weight => weight_slot(buffer, weights),
        BufferKind::KvPool => Ok(BoundSlot::Pool { index: pools.next().unwrap_or(usize::MAX) }),
        BufferKind::Activation | BufferKind::Cell | BufferKind::Input | BufferKind::Output => {
            Ok(BoundSlot::Memory { base })
        }
    };
    Ok((program.buffers.iter().zip(bases).map(slot).collect::<Result<_, _>>()?, words))
}

/// Binds a weight: of all experts each by itself.
fn weight_slot(buffer: &Buffer, weights: &dyn Weights) -> Result<BoundSlot, BindError> {
    if matches!(buffer.source, Some(Source::Experts { .. })) {
        let each = experts(buffer)?;
        return each
            .iter()
            .map(|expert| weight_slot(expert, weights))
            .collect::<Result<_, _>>()
            .map(BoundSlot::Experts);
    }
    match quantized(buffer, weights)? {
        Some(codes) => Ok(BoundSlot::Quantized(Arc::clone(codes.matrix()))),
        None => weight(buffer, weights).map(BoundSlot::Weight),
    }
}

/// Memory of that many words.
pub(super) fn memory(words: usize) -> Result<Vec<AtomicU32>, BindError> {
    zeroed(words).ok_or(BindError::Memory { bytes: words.saturating_mul(4) })
}

/// The first element of every buffer that lies in the machine's memory, counted in its own elements
/// (0 for others), and the words of it all. Buffers that overlap in the program's arena overlap
/// here.
fn lay_out(program: &Program) -> (Vec<usize>, usize) {
    let bytes = |buffer: &Buffer| buffer.bytes().unwrap_or(0);
    let mut bases = vec![0; program.buffers.len()];
    let mut end = 0usize;
    let mut place = |at: usize, length: usize, id: BufferId, dtype: DType| {
        bases[id.index()] = at / dtype.bytes();
        end = end.max(at.saturating_add(length));
        end.next_multiple_of(4)
    };
    let in_memory = |b: &&Buffer| {
        matches!(b.kind, BufferKind::Activation | BufferKind::Cell | BufferKind::Input | BufferKind::Output)
    };
    let (mut arena, alone): (Vec<&Buffer>, Vec<&Buffer>) =
        program.buffers.iter().filter(in_memory).partition(|b| b.arena.is_some());
    let mut next = 0;
    for buffer in alone {
        next = place(next, bytes(buffer), buffer.id, buffer.dtype);
    }
    // The arena without its gaps: runs of buffers that overlap keep their distances.
    arena.sort_by_key(|buffer| buffer.arena);
    let mut run: Option<(u64, usize, u64)> = None;
    for buffer in arena {
        let offset = buffer.arena.unwrap_or(0);
        let finish = offset.saturating_add(bytes(buffer) as u64);
        let (start, at, last) = match run {
            Some((start, at, last)) if offset < last => (start, at, last),
            _ => (offset & !3, next, offset),
        };
        next = place(at.saturating_add((offset - start) as usize), bytes(buffer), buffer.id, buffer.dtype);
        run = Some((start, at, last.max(finish)));
    }
    (bases, end.div_ceil(4))
}

#[cfg(test)]
mod tests {
    use tilewright_codegen::target::Target;

    use super::*;

    #[test]
    fn buffers_overlap_where_the_arena_says_and_nowhere_else() {
        let mut program = Program::new("arena", Target::host(1));
        let mut add = |name, dtype, len, arena| {
            let id = program.add_buffer(name, BufferKind::Activation, dtype, &[len]);
            program.buffers[id.index()].arena = arena;
        };
        add("alone", DType::BF16, 3, None);
        add("a", DType::F32, 4, Some(1 << 40));
        add("b", DType::BF16, 4, Some((1 << 40) + 10));
        add("c", DType::F32, 2, Some((1 << 40) + 16));
        add("far", DType::BF16, 1, Some(1 << 50));
        let (bases, words) = lay_out(&program);
        // 6 bytes round up to 8; then a at 8..24, b at 18..26, c at 24..32; the gap to `far` is
        // left out.
        assert_eq!(bases, [0, 2, 9, 6, 16]);
        assert_eq!(words, 9);
    }
}
