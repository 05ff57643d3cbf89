//! The current token's keys and values as packets: a waiting block polls them without a release of
//! the pools.

use tilewright_codegen::build::Val;

use crate::tile::Array;

/// Keys and values of each row's current token in addition to those in the pools: bf16 flagged
/// words `[rows, kv_heads, dim]` each, of one generation.
#[derive(Clone, Copy)]
pub struct CurrentToken<'k> {
    /// Keys.
    pub keys: Array<'k>,
    /// Values.
    pub values: Array<'k>,
}

impl<'k> CurrentToken<'k> {
    /// Stores two neighbouring numbers from an even place on, of values or of keys: the words that
    /// a pool of bf16 has.
    #[track_caller]
    pub(crate) fn store(self, is_value: Val<'k, bool>, place: Val<'k, u32>, pair: [Val<'k, f32>; 2]) {
        place.builder().if_else(is_value, || self.values.store_run(place, pair), || self.keys.store_run(place, pair));
    }
}
