//! The loop over tiles: what is issued ahead, what is waited for, what is left at the end.

use std::collections::VecDeque;

use tilewright_codegen::build::{Builder, Val};

use super::{Arrived, Issued, KvBuffer, KvView, OwnRing};

/// Tiles `first`, `first + step`, … below `end`.
#[derive(Clone, Copy)]
pub struct TileSpan<'k> {
    /// The first tile.
    pub first: Val<'k, u32>,
    /// The exclusive end.
    pub end: Val<'k, u32>,
    /// The distance from tile to tile.
    pub step: u32,
}

/// The rings of keys and of values that a warp multiplies with.
pub struct KvRings<'r, K, V> {
    /// Keys.
    pub keys: &'r K,
    /// Values.
    pub values: &'r V,
}

impl<K, V> Clone for KvRings<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for KvRings<'_, K, V> {}

/// A place whose tiles were issued before, and how the next tiles are issued.
pub struct IssuedAhead<'i, 'k> {
    /// Tiles of the place.
    pub span: TileSpan<'k>,
    /// Their location.
    pub place: KvView<'k>,
    /// Issues the next tile of keys, wherever that is.
    pub issue_keys: &'i dyn Fn(),
    /// Issues the next tile of values.
    pub issue_values: &'i dyn Fn(),
}

/// Goes through the tiles of keys and values in turn: `scores(tile, keys)`, then
/// `outputs(tile, values)`.
///
/// Both buffers issue their tiles ahead before the loop, and one more in each turn, also where
/// there are fewer tiles than that.
///
/// # Panics
/// While recording, if a turn of the loop does not end with the tokens that it began with.
pub fn stream<'k, K: OwnRing<'k>, V: OwnRing<'k>>(
    k: &'k Builder,
    rings: KvRings<'_, K, V>,
    span: TileSpan<'k>,
    scores: impl Fn(Val<'k, u32>, &Arrived<'k, K::Config>),
    outputs: impl Fn(Val<'k, u32>, &Arrived<'k, V::Config>),
) {
    let KvRings { keys, values } = rings;
    assert_eq!((keys.ahead(), keys.unroll()), (values.ahead(), values.unroll()), "keys and values travel in step");
    let ahead = keys.ahead();
    let unroll = keys.unroll();
    let mut waiting = VecDeque::new();
    for turn in 0..ahead {
        let tile = span.first + turn * span.step;
        waiting
            .push_back((keys.load_from_dram(tile, tile.lt(span.end)), values.load_from_dram(tile, tile.lt(span.end))));
    }
    let before: Vec<(u32, u32)> = stages(&waiting);
    k.moving().for_step(span.first, span.end, span.step * unroll, |first: Val<'k, u32>| {
        for turn in 0..unroll {
            let tile = first + turn * span.step;
            let one = |waiting: &mut VecDeque<(Issued, Issued)>| {
                let next = Next { tile: tile + ahead * span.step, exists: &|next| next.lt(span.end) };
                turn_of(rings, waiting, tile, next, (&scores, &outputs));
            };
            if turn == 0 { one(&mut waiting) } else { k.moving().when(tile.lt(span.end), || one(&mut waiting)) }
        }
    });
    assert_eq!(stages(&waiting), before, "a turn of the loop ends with the tokens that it began with");
    // The remaining stages represent tiles beyond the end, which were not issued: nothing is in
    // flight.
    drop(waiting);
}

/// Tiles that are found one after the other.
pub trait FoundTiles<'k> {
    /// Whether there is another one.
    fn exists(&self) -> Val<'k, bool>;

    /// The next one, where there is one, and looks for the one after it.
    fn take(&self) -> Val<'k, u32>;
}

/// Goes through tiles as [`stream`] does, which are found while it goes: `issued` and `used` find
/// the same ones.
///
/// # Panics
/// While recording, if a turn of the loop does not end with the tokens that it began with.
pub fn stream_found<'k, K: OwnRing<'k>, V: OwnRing<'k>, F: FoundTiles<'k>>(
    k: &'k Builder,
    rings: KvRings<'_, K, V>,
    [issued, used]: [&F; 2],
    scores: impl Fn(Val<'k, u32>, &Arrived<'k, K::Config>),
    outputs: impl Fn(Val<'k, u32>, &Arrived<'k, V::Config>),
) {
    let KvRings { keys, values } = rings;
    assert_eq!((keys.ahead(), keys.unroll()), (values.ahead(), values.unroll()), "keys and values travel in step");
    // The next tile to be issued, and whether there is one.
    let [tile, exists] = [0u32; 2].map(|zero| k.var(zero));
    let is_found = |_| exists.get().ne(0);
    let find = || {
        exists.set(issued.exists().as_number::<u32>());
        k.when(issued.exists(), || tile.set(issued.take()));
        Next { tile: tile.get(), exists: &is_found }
    };
    let mut waiting = VecDeque::new();
    for _ in 0..keys.ahead() {
        let Next { tile, exists } = find();
        waiting.push_back((keys.load_from_dram(tile, exists(tile)), values.load_from_dram(tile, exists(tile))));
    }
    let before: Vec<(u32, u32)> = stages(&waiting);
    k.moving().while_(
        || used.exists(),
        || {
            for turn in 0..keys.unroll() {
                let one = |waiting: &mut VecDeque<(Issued, Issued)>| {
                    let tile = used.take();
                    turn_of(rings, waiting, tile, find(), (&scores, &outputs));
                };
                if turn == 0 { one(&mut waiting) } else { k.moving().when(used.exists(), || one(&mut waiting)) }
            }
        },
    );
    assert_eq!(stages(&waiting), before, "a turn of the loop ends with the tokens that it began with");
    drop(waiting);
}

/// The tile that is issued next.
struct Next<'e, 'k> {
    tile: Val<'k, u32>,
    /// Whether there is such a tile.
    exists: &'e dyn Fn(Val<'k, u32>) -> Val<'k, bool>,
}

/// One tile of keys and values, and the issue of a later one.
fn turn_of<'k, K: OwnRing<'k>, V: OwnRing<'k>>(
    KvRings { keys, values }: KvRings<'_, K, V>,
    waiting: &mut VecDeque<(Issued, Issued)>,
    tile: Val<'k, u32>,
    Next { tile: next, exists }: Next<'_, 'k>,
    (scores, outputs): (
        &impl Fn(Val<'k, u32>, &Arrived<'k, K::Config>),
        &impl Fn(Val<'k, u32>, &Arrived<'k, V::Config>),
    ),
) {
    let Some((key, value)) = waiting.pop_front() else { return };
    let arrived = keys.copy_to_shared(key, tile);
    let key = keys.load_from_dram(next, exists(next));
    scores(tile, &arrived);
    keys.release(arrived);
    let arrived = values.copy_to_shared(value, tile);
    let value = values.load_from_dram(next, exists(next));
    outputs(tile, &arrived);
    values.release(arrived);
    waiting.push_back((key, value));
}

/// Visits the tiles of one of several places, which were issued in order: each turn issues
/// the next tile of keys and of values once.
///
/// # Panics
/// While recording, where registers take turns.
pub fn stream_issuing<'k, K: OwnRing<'k>, V: OwnRing<'k>>(
    k: &'k Builder,
    rings: KvRings<'_, K, V>,
    ahead: &IssuedAhead<'_, 'k>,
    scores: impl Fn(Val<'k, u32>, &Arrived<'k, K::Config>),
    outputs: impl Fn(Val<'k, u32>, &Arrived<'k, V::Config>),
) {
    let KvRings { keys, values } = rings;
    let IssuedAhead { span, place, issue_keys, issue_values } = ahead;
    assert_eq!((keys.unroll(), values.unroll()), (1, 1), "registers that take turns begin each place anew");
    k.for_step(span.first, span.end, span.step, |tile: Val<'k, u32>| {
        let arrived = keys.copy_at(place, Issued::by_another(), tile);
        issue_keys();
        scores(tile, &arrived);
        keys.release(arrived);
        let arrived = values.copy_at(place, Issued::by_another(), tile);
        issue_values();
        outputs(tile, &arrived);
        values.release(arrived);
    });
}

fn stages(waiting: &VecDeque<(Issued, Issued)>) -> Vec<(u32, u32)> {
    waiting.iter().map(|(key, value)| (key.stage, value.stage)).collect()
}
