//! Rules on the tables: counts, ids, names, shapes, sources, arena offsets, initial values. One
//! function per rule.

use std::collections::HashMap;

use tilewright_layout::DType;

use super::kind::Kind;
use super::place::Location;
use super::report::Report;
use crate::program::{Buffer, BufferKind, Counter, MAX_RANK, Program, Source};

/// Buffers must end at most here, in bytes: offsets are signed on devices.
const MAX_BYTES: usize = isize::MAX as usize;

/// The rules on one buffer.
const BUFFER_RULES: [fn(&Buffer) -> Option<Kind>; 11] = [
    rank,
    zero_extent,
    byte_size,
    source_is_given,
    source_is_allowed,
    values_fill_the_shape,
    arena_is_allowed,
    arena_is_in_reach,
    scale_is_allowed,
    offset_is_allowed,
    multiplier_is_allowed,
];

/// Checks the tables; gives whether every buffer has a shape that later rules can compute with.
pub(super) fn check(program: &Program, report: &mut Report) -> bool {
    let lengths =
        [("buffers", program.buffers.len()), ("counters", program.counters.len()), ("tasks", program.tasks.len())];
    for (noun, found) in lengths {
        report.errors.extend(count(noun, found).map(|kind| super::Violation { at: Location::Program, kind }));
    }
    for (index, buffer) in program.buffers.iter().enumerate() {
        let rules = BUFFER_RULES.iter().filter_map(|rule| rule(buffer));
        for kind in dense_id(index, buffer.id.0).into_iter().chain(rules).chain(arena_is_aligned(buffer)) {
            report.error(Location::buffer(index, buffer), kind);
        }
    }
    names(program, report);
    for (index, counter) in program.counters.iter().enumerate() {
        for kind in dense_id(index, counter.id.0).into_iter().chain(initial_value(counter)) {
            report.error(Location::counter(index, counter), kind);
        }
    }
    for (index, task) in program.tasks.iter().enumerate() {
        if let Some(kind) = dense_id(index, task.id.0) {
            report.error(Location::task(index, task), kind);
        }
    }
    program.buffers.iter().all(is_sound)
}

/// Whether the shape can be computed with.
pub(super) fn is_sound(buffer: &Buffer) -> bool {
    rank(buffer).is_none() && zero_extent(buffer).is_none() && byte_size(buffer).is_none()
}

fn count(noun: &'static str, found: usize) -> Option<Kind> {
    let limit = u32::MAX as usize;
    (found > limit).then_some(Kind::TooMany { noun, found, limit })
}

fn dense_id(index: usize, found: u32) -> Option<Kind> {
    (found as usize != index).then_some(Kind::WrongId { found, expected: index })
}

fn names(program: &Program, report: &mut Report) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (index, buffer) in program.buffers.iter().enumerate() {
        let first = *seen.entry(&buffer.name).or_insert(index);
        if first != index {
            report.error(Location::buffer(index, buffer), Kind::DuplicateName { first });
        }
    }
}

fn rank(buffer: &Buffer) -> Option<Kind> {
    let found = buffer.shape.len();
    (found == 0 || found > MAX_RANK).then_some(Kind::Rank { found, limit: MAX_RANK })
}

fn zero_extent(buffer: &Buffer) -> Option<Kind> {
    buffer.shape.iter().position(|&extent| extent == 0).map(|dim| Kind::ZeroExtent { dim })
}

fn byte_size(buffer: &Buffer) -> Option<Kind> {
    // An extent of 0 would hide an overflow of the others; it has its own rule.
    let fits = buffer.bytes().is_some_and(|bytes| bytes <= MAX_BYTES);
    let too_large = || Kind::TooLarge {
        shape: buffer.shape.iter().copied().take(MAX_RANK).collect(),
        bytes_per_element: buffer.dtype.bytes(),
        limit: MAX_BYTES,
    };
    (!fits && buffer.shape.len() <= MAX_RANK).then(too_large)
}

fn source_is_given(buffer: &Buffer) -> Option<Kind> {
    (buffer.kind == BufferKind::Weight && buffer.source.is_none()).then_some(Kind::NoSource {})
}

fn source_is_allowed(buffer: &Buffer) -> Option<Kind> {
    let kind = buffer.kind;
    (kind != BufferKind::Weight && buffer.source.is_some()).then_some(Kind::SourceForbidden { kind })
}

fn values_fill_the_shape(buffer: &Buffer) -> Option<Kind> {
    match (&buffer.source, buffer.elements()) {
        (Some(Source::Values(values)), Some(expected)) if values.len() != expected => {
            Some(Kind::ValuesLength { found: values.len(), expected })
        }
        _ => None,
    }
}

fn arena_is_allowed(buffer: &Buffer) -> Option<Kind> {
    let kind = buffer.kind;
    (kind != BufferKind::Activation && buffer.arena.is_some()).then_some(Kind::ArenaForbidden { kind })
}

fn arena_is_in_reach(buffer: &Buffer) -> Option<Kind> {
    let offset = buffer.arena?;
    let bytes = buffer.bytes()?;
    let limit = MAX_BYTES as u64;
    let end = offset.checked_add(bytes as u64);
    end.is_none_or(|end| end > limit).then_some(Kind::ArenaEnd { offset, bytes, limit })
}

fn arena_is_aligned(buffer: &Buffer) -> Option<Kind> {
    let offset = buffer.arena?;
    let align = buffer.dtype.bytes();
    (!offset.is_multiple_of(align as u64)).then_some(Kind::ArenaAlign { offset, align })
}

fn scale_is_allowed(buffer: &Buffer) -> Option<Kind> {
    let found = buffer.scale?;
    let is_codes = buffer.kind == BufferKind::KvPool && buffer.dtype == DType::F8E4M3;
    // The reciprocal is a number too.
    let sound = found.is_normal() && found > 0.0 && found.recip().is_normal();
    (!is_codes || !sound).then_some(Kind::PoolScale { found })
}

/// Whether the elements of a buffer may differ from those of their source.
fn may_differ(buffer: &Buffer) -> bool {
    let of_tensor = matches!(buffer.source, Some(Source::Tensor(_) | Source::Part { .. } | Source::Experts { .. }));
    buffer.kind == BufferKind::Weight && buffer.dtype == DType::F32 && of_tensor
}

fn offset_is_allowed(buffer: &Buffer) -> Option<Kind> {
    let found = buffer.offset?;
    (!may_differ(buffer) || !found.is_finite()).then_some(Kind::WeightOffset { found })
}

fn multiplier_is_allowed(buffer: &Buffer) -> Option<Kind> {
    let found = buffer.multiplier?;
    (!may_differ(buffer) || !found.is_normal()).then_some(Kind::WeightMultiplier { found })
}

fn initial_value(counter: &Counter) -> Option<Kind> {
    (counter.init != 0).then_some(Kind::CounterInit { init: counter.init })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_at_most_as_many_entries_as_an_index_can_name() {
        assert_eq!(count("tasks", u32::MAX as usize), None);
        let kind = count("tasks", u32::MAX as usize + 1).expect("one too many");
        insta::assert_snapshot!(kind, @"4294967296 tasks, an index holds at most 4294967295; split the program");
    }
}
