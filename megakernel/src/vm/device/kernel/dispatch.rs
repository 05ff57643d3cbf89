//! From opcodes to device functions.

use tilewright_codegen::build::Val;

use super::call::Call;
use super::prefetch::Prefetched;
use crate::vm::device::Opcode;

/// Runs a task, whose opcode was checked.
pub(super) fn dispatch<'k>(call: Call<'k, '_>, opcodes: &[Opcode], prefetched: &Prefetched<'_, 'k>) {
    choose(call, opcodes, call.task.opcode(), 0, prefetched);
}

/// Tries the opcodes from `first` on.
fn choose<'k>(
    call: Call<'k, '_>,
    opcodes: &[Opcode],
    opcode: Val<'k, u32>,
    first: usize,
    prefetched: &Prefetched<'_, 'k>,
) {
    if let Some(function) = opcodes.get(first) {
        let most = if function.prefetch_form().is_some() { call.context.shape.prefetched_stages } else { 0 };
        call.context.k.if_else(
            opcode.eq(first as u32),
            || function.run(call, &prefetched.of(most, function.takes_pairs())),
            || choose(call, opcodes, opcode, first + 1, prefetched),
        );
    }
}
