//! Addresses, bounds, alignment, initialisation.

use super::{Io, Plant, plant};
use tilewright_codegen::build::Load;
use tilewright_codegen::ir::IndexBound;
use tilewright_codegen::ir::attr::LdCache;

pub fn plants() -> Vec<Plant> {
    vec![
        plant("global_bound", 64, global_bound, "out of bounds"),
        plant("shared_bound", 64, shared_bound, "out of bounds"),
        plant("index_of_a_tensor", 64, index_of_a_tensor, "index out of bounds"),
        plant("below_the_buffer", 32, below_the_buffer, "out of bounds"),
        plant("misaligned_vector", 32, misaligned_vector, "misaligned"),
        plant("misaligned_shared", 32, misaligned_shared, "misaligned"),
        plant("unwritten_shared", 64, unwritten_shared, "uninitialised memory"),
        plant("unwritten_global", 32, unwritten_global, "uninitialised memory"),
        plant("unset_register", 32, unset_register, "uninitialised register"),
        plant("write_to_input", 32, write_to_input, "write to read-only memory"),
        plant("read_only_path", 32, read_only_path, "read-only path"),
        plant("division", 32, division, "division by zero"),
        plant("trap", 32, trap, "trap"),
        plant("missing_barrier", 64, missing_barrier, "race"),
        plant("missing_barrier_reuse", 64, missing_barrier_reuse, "race"),
        plant("same_place_written", 64, same_place_written, "race"),
    ]
}

fn global_bound(io: &Io<'_>, wrong: bool) {
    let i = io.k.tid() + 4096 - if wrong { 63 } else { 64 };
    io.out.at(io.k.tid()).store(io.x.at(i).load());
}

fn shared_bound(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared::<f32>("tile", 64);
    tile.at(k.tid()).store(1.0f32);
    k.barrier();
    // The thread number comes through memory, so that it is not known beforehand.
    let i =
        io.x.at(k.tid())
            .load()
            .cast_as::<u32>(tilewright_codegen::ir::attr::Round::Zero, tilewright_codegen::ir::attr::Clamp::No);
    let next = if wrong { i + 1 } else { (i + 1) & 63 };
    io.out.at(k.tid()).store(tile.at(next).load());
}

fn below_the_buffer(io: &Io<'_>, wrong: bool) {
    let i = io.k.tid().cast::<i32>() - if wrong { 1 } else { 0 };
    io.out.at(io.k.tid()).store(io.x.at(i).load());
}

fn misaligned_vector(io: &Io<'_>, wrong: bool) {
    let first = io.k.tid() * 4 + if wrong { 2 } else { 0 };
    let values = io.x.at(first).load_vec::<4>();
    io.out.at(io.k.tid() * 4).store_vec(values);
}

fn misaligned_shared(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared_aligned::<f32>("tile", 256, 16);
    tile.at(k.tid() * 4).store_vec([0, 1, 2, 3].map(|i| io.x.at(i).load()));
    k.barrier();
    let first = if wrong { k.tid() * 3 } else { k.tid() * 4 };
    io.out.at(k.tid() * 4).store_vec(tile.at(first).load_vec::<4>());
}

fn unwritten_shared(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared::<f32>("tile", 64);
    let count = if wrong { 63 } else { 64 };
    k.when(k.tid().lt(count), || tile.at(k.tid()).store(1.0f32));
    k.barrier();
    io.out.at(k.tid()).store(tile.at(k.tid() ^ 1).load());
}

fn unwritten_global(io: &Io<'_>, wrong: bool) {
    let i = io.k.tid();
    if !wrong {
        io.out.at(i).store(0.0f32);
    }
    io.out.at(i).store(io.out.at(i).load() + 1.0);
}

fn unset_register(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let sum = k.regs_unset::<f32>(1);
    let count = if wrong { 31 } else { 32 };
    k.when(k.tid().lt(count), || sum.set(0, 1.0f32));
    io.out.at(k.tid()).store(sum.get(0));
}

fn write_to_input(io: &Io<'_>, wrong: bool) {
    let to = if wrong { io.x } else { io.out };
    to.at(io.k.tid()).store(1.0f32);
}

fn read_only_path(io: &Io<'_>, wrong: bool) {
    let i = io.k.tid();
    io.out.at(i).store(1.0f32);
    let cache = if wrong { LdCache::Nc } else { LdCache::Default };
    let [value] = io.out.at(i).load_as::<1>(Load::WEAK.cache(cache));
    io.out.at(i).store(value + 1.0);
}

fn division(io: &Io<'_>, wrong: bool) {
    let by = if wrong { io.k.tid() } else { io.k.tid() + 1 };
    io.out.at(io.k.tid()).store((io.k.lit(100u32) / by).cast::<f32>());
}

fn trap(io: &Io<'_>, wrong: bool) {
    let limit = if wrong { 31 } else { 32 };
    io.k.when(io.k.tid().ge(limit), || io.k.trap());
}

fn missing_barrier(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared::<f32>("tile", 64);
    tile.at(k.tid()).store(io.x.at(k.tid()).load());
    if !wrong {
        k.barrier();
    }
    io.out.at(k.tid()).store(tile.at(k.tid() ^ 32).load());
}

fn missing_barrier_reuse(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared::<f32>("tile", 64);
    for round in 0..2u32 {
        tile.at(k.tid()).store(io.x.at(k.tid() + round * 64).load());
        k.barrier();
        io.out.at(k.tid() + round * 64).store(tile.at(k.tid() ^ 32).load());
        if !wrong {
            k.barrier();
        }
    }
}

fn same_place_written(io: &Io<'_>, wrong: bool) {
    let i = if wrong { io.k.tid() / 2 } else { io.k.tid() };
    io.out.at(i).store(1.0f32);
}

fn index_of_a_tensor(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let bound = k.bound(IndexBound {
        tensor: "a row of the output".into(),
        mode: 0,
        index: k.tid().operand(),
        constant: 0,
        extent: if wrong { 63 } else { 64 },
        src: std::panic::Location::caller(),
        next: None,
    });
    io.out.at(k.tid()).bounded(Some(bound)).store(1.0f32);
}
