//! Words that the host uses while a kernel runs: it acquires one, reads what that opens, and looks
//! at another at any moment.

use super::{Io, Plant, plant};
use std::sync::Arc;
use tilewright_codegen::build::{Global, Ptr};
use tilewright_codegen::ir::attr::{AtomOp, ProxyFence, RedOrder, Scope};
use tilewright_codegen::sim::HostOrder;

/// Of the 16 words the one that the host acquires.
const FLAG: u32 = 12;
/// The word that the flag value 1 opens.
const FIRST: u32 = 13;
/// The word that the flag values 2 and 32 open in addition.
const SECOND: u32 = 14;
/// The word that the host uses at any moment.
const ANY: u32 = 15;

/// The host of all planted kernels.
pub fn host() -> HostOrder {
    let opens = |seen| {
        let words = match seen {
            1 => 1,
            2 | 32 => 2,
            _ => 0,
        };
        4 * u64::from(FIRST)..4 * (u64::from(FIRST) + words)
    };
    HostOrder::new("flags", 4 * u64::from(FLAG), Arc::new(opens)).atomic(4 * u64::from(ANY))
}

pub fn plants() -> Vec<Plant> {
    const KIND: &str = "order for the host";
    vec![
        plant("host_flag_relaxed", 32, |io, wrong| tell(io, wrong, Scope::Sys), KIND),
        plant(
            "host_flag_of_the_device",
            32,
            |io, wrong| tell(io, false, if wrong { Scope::Gpu } else { Scope::Sys }),
            KIND,
        ),
        plant("host_told_before_the_barrier", 64, told_before_the_barrier, KIND),
        plant("host_fence_of_the_device", 32, fence, KIND),
        plant("host_told_by_one_of_two", 64, counted, KIND),
        plant("host_word_stored_weakly", 32, stored_weakly, KIND),
        plant("host_word_read_weakly", 32, read_weakly, KIND),
        plant("host_reads_while_written", 32, written_again, KIND),
        plant("host_word_under_a_copy", 32, under_a_copy, KIND),
    ]
}

fn word<'k>(io: &Io<'k>, at: u32) -> Ptr<'k, Global, u32> {
    io.flags.at(at)
}

/// A thread publishes a word of its own.
fn tell(io: &Io<'_>, relaxed: bool, scope: Scope) {
    io.k.when(io.k.tid().eq(0), || {
        word(io, FIRST).store(7u32);
        if relaxed { word(io, FLAG).store_relaxed(1u32, scope) } else { word(io, FLAG).store_release(1u32, scope) }
    });
}

/// A warp publishes a word of the other warp.
fn told_before_the_barrier(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    k.when(k.tid().eq(32), || word(io, FIRST).store(7u32));
    if !wrong {
        k.barrier();
    }
    k.when(k.tid().eq(0), || word(io, FLAG).store_release(1u32, Scope::Sys));
}

/// A fence in the place of a release.
fn fence(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    k.when(k.tid().eq(0), || {
        word(io, FIRST).store(7u32);
        k.fence(if wrong { Scope::Gpu } else { Scope::Sys });
        word(io, FLAG).store_relaxed(1u32, Scope::Sys);
    });
}

/// Two threads count up, each of which wrote a word.
fn counted(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    k.when((k.tid() % 32).eq(0), || {
        let own = k.tid() / 32;
        word(io, FIRST).at(own).store(7u32);
        let second = if wrong { RedOrder::Relaxed(Scope::Sys) } else { RedOrder::Release(Scope::Sys) };
        let count = |order| word(io, FLAG).red(AtomOp::Add, 16u32, order);
        k.if_else(own.eq(0), || count(RedOrder::Release(Scope::Sys)), || count(second));
    });
}

fn stored_weakly(io: &Io<'_>, wrong: bool) {
    io.k.when(io.k.tid().eq(0), || {
        if wrong { word(io, ANY).store(1u32) } else { word(io, ANY).store_relaxed(1u32, Scope::Sys) }
    });
}

fn read_weakly(io: &Io<'_>, wrong: bool) {
    let seen = if wrong { word(io, ANY).load() } else { word(io, ANY).load_relaxed(Scope::Sys) };
    io.out.at(io.k.tid()).store(seen.cast::<f32>());
}

/// Writes a word again that the host may read already.
fn written_again(io: &Io<'_>, wrong: bool) {
    io.k.when(io.k.tid().eq(0), || {
        word(io, FIRST).store(7u32);
        word(io, FLAG).store_release(1u32, Scope::Sys);
        word(io, if wrong { FIRST } else { SECOND }).store(8u32);
    });
}

/// A bulk copy is not atomic.
fn under_a_copy(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared_aligned::<u32>("tile", 32, 128);
    tile.at(k.lane()).store(0u32);
    k.fence_proxy_async(ProxyFence::Shared);
    k.sync_warp();
    k.when(k.lane().eq(0), || {
        tile.bulk_store(word(io, if wrong { FLAG } else { FLAG - 4 }), 16);
        k.bulk_commit();
        k.bulk_wait(0);
    });
}
