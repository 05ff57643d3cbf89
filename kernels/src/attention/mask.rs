//! Masks of one's own: which tokens a query sees, asked of whole tiles first.
//!
//! | answer for a tile | the kernel |
//! |---|---|
//! | its queries see none of its tokens | neither fetches nor multiplies it |
//! | they see all of them | multiplies it, and evaluates no mask |
//! | anything else | asks for each score |

use core::fmt;

use tilewright_codegen::build::{Builder, Val, Var};

use super::place::{ScorePlace, TilePlace};
use crate::kv::FoundTiles;

/// What the queries of a tile see of its tokens. Both answers may err on one side: `any` may be true
/// where nothing is seen, and `all` false where everything is.
#[derive(Clone, Copy)]
pub struct TileVisibility<'k> {
    /// Whether some query sees some token.
    pub any: Val<'k, bool>,
    /// Whether every query sees every token.
    pub all: Val<'k, bool>,
}

impl<'k> TileVisibility<'k> {
    /// Tokens that both masks show.
    #[must_use]
    #[track_caller]
    pub fn and(self, other: TileVisibility<'k>) -> TileVisibility<'k> {
        TileVisibility { any: self.any & other.any, all: self.all & other.all }
    }

    /// Tokens that either mask shows.
    #[must_use]
    #[track_caller]
    pub fn or(self, other: TileVisibility<'k>) -> TileVisibility<'k> {
        TileVisibility { any: self.any | other.any, all: self.all | other.all }
    }
}

/// The function of a mask that is asked about a tile.
pub type TileMask<'k> = Box<dyn Fn(TilePlace<'k>) -> TileVisibility<'k> + 'k>;

/// The function of a mask that is asked about a score.
pub type ScoreMask<'k> = Box<dyn Fn(ScorePlace<'k>) -> Val<'k, bool> + 'k>;

/// Which tokens a query sees. Both functions depend on their argument alone, and on memory that the
/// launch does not write.
pub struct AttentionMask<'k> {
    /// Asked about each tile by the lanes of a warp, a tile a lane.
    pub tile: TileMask<'k>,
    /// Whether a query sees a token; asked where `tile` says neither none nor all. Also called for
    /// places past the end of a sequence, as a [`CustomScore`](super::CustomScore) is.
    pub sees: ScoreMask<'k>,
}

/// A mask of one's own: a closure that declares the parameters it needs, after all others of the
/// kernel and those of its [`CustomScores`](super::CustomScores), and returns the two functions.
///
/// The mask applies in addition to causality and the kernel's window: `causal: false` leaves it
/// alone. A prefill kernel skips tiles that none of a block's queries sees; decode those that a
/// warp's query does not see, except in persistent blocks.
///
/// ```
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::attention::prefill::{Kv, Prefill, QueryLayout};
/// use tilewright_kernels::attention::{AttentionMask, CustomMask, ScoreVariant, TileVisibility};
/// use tilewright_kernels::kv::CpAsync;
///
/// // A prefix that all queries see, and causality after it.
/// let prefix_lm = CustomMask(&|k| {
///     let prefix = k.param::<u32>("prefix");
///     AttentionMask {
///         tile: Box::new(move |at| TileVisibility {
///             any: at.first_token.lt(prefix) | at.first_token.le(at.last_query),
///             all: at.last_token.lt(prefix) | at.last_token.le(at.first_query),
///         }),
///         sees: Box::new(move |at| at.token.lt(prefix) | at.token.le(at.query)),
///     }
/// });
/// let prefill = Prefill {
///     depth: 128, value_depth: None, group: 1, causal: false, queries: QueryLayout::Ragged, kv: Kv::Ragged,
///     scores: ScoreVariant::NONE, lse: false,
/// };
/// let kernel = prefill.mask(prefix_lm).record::<CpAsync<2>>(Arch::Sm80);
/// assert_eq!(kernel.params.last().map(|param| param.name.as_str()), Some("prefix"));
/// # tilewright_codegen::verify::verify(kernel)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct CustomMask<'f>(pub &'f dyn for<'k> Fn(&'k Builder) -> AttentionMask<'k>);

impl fmt::Debug for CustomMask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomMask")
    }
}

/// Tiles before a mask: `count` of them, and the number of each.
#[derive(Clone, Copy)]
pub(super) struct MaskedTiles<'a, 'k> {
    /// How many there are.
    pub count: Val<'k, u32>,
    /// The number of tile `i` in the order of visits.
    pub number: &'a dyn Fn(Val<'k, u32>) -> Val<'k, u32>,
    /// What is seen of a tile, by its number.
    pub ask: &'a dyn Fn(Val<'k, u32>) -> TileVisibility<'k>,
}

/// Tiles of which something is seen, one after the other. A warp asks about 32 at a time: a tile a
/// lane.
#[derive(Clone, Copy)]
pub(super) struct VisibleTiles<'a, 'k> {
    k: &'k Builder,
    tiles: MaskedTiles<'a, 'k>,
    /// The place after those that were asked about.
    asked: Var<'k, u32>,
    /// Those of the last 32 that are left to be visited.
    left: Var<'k, u32>,
    /// Those of the last 32 that are seen whole.
    whole: Var<'k, u32>,
    /// The bit of the tile that was taken last, if it is seen whole.
    taken: Var<'k, u32>,
}

impl<'a, 'k> VisibleTiles<'a, 'k> {
    /// The tiles of this warp, all of whose lanes come here together.
    pub fn new(k: &'k Builder, tiles: MaskedTiles<'a, 'k>) -> VisibleTiles<'a, 'k> {
        let [asked, left, whole, taken] = [0u32; 4].map(|zero| k.var(zero));
        let visible = VisibleTiles { k, tiles, asked, left, whole, taken };
        visible.ask();
        visible
    }

    /// Asks about tiles until something is seen of one.
    fn ask(&self) {
        let k = self.k;
        let MaskedTiles { count, number, ask } = self.tiles;
        k.while_(
            || self.left.get().eq(0) & self.asked.get().lt(count),
            || {
                let [any, all] = [0u32; 2].map(|zero| k.var(zero));
                let place = self.asked.get() + k.lane();
                k.when(place.lt(count), || {
                    let seen = ask(number(place));
                    any.set(seen.any.as_number::<u32>());
                    all.set(seen.all.as_number::<u32>());
                });
                self.left.set(any.get().ne(0).ballot());
                self.whole.set(all.get().ne(0).ballot());
                self.asked.set(self.asked.get() + 32);
            },
        );
    }

    /// Whether every query of the tile that was taken last sees every token of it.
    pub fn is_whole(&self) -> Val<'k, bool> {
        self.taken.get().ne(0)
    }
}

impl<'k> FoundTiles<'k> for VisibleTiles<'_, 'k> {
    fn exists(&self) -> Val<'k, bool> {
        self.left.get().ne(0)
    }

    fn take(&self) -> Val<'k, u32> {
        let left = self.left.get();
        let lowest = left & (0 - left);
        let tile = (self.tiles.number)(self.asked.get() - 1 - lowest.clz());
        self.taken.set(self.whole.get() & lowest);
        self.left.set(left ^ lowest);
        self.ask();
        tile
    }
}
