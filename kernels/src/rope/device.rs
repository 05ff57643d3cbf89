//! Norm and rotation of whole heads, for models that normalise them: a warp for each row and head.

use tilewright_codegen::build::{Global, IntoVal, Ptr, Val};

use crate::kv::PagedPool;
use crate::norm::rms_factor;
use crate::tile::Array;
use crate::warps::ConsumerWarps;

/// Cosines and sines, scaled: f32 `[positions, dim / 2, 2]`.
#[derive(Clone, Copy)]
pub struct Rotation<'k> {
    /// The table.
    pub table: Ptr<'k, Global, f32>,
    /// Half the dimensions of a head.
    pub half: u32,
}

impl<'k> Rotation<'k> {
    /// An element of a pair is rotated as `x·cos + partner·sin`: cosine, and sine with the sign
    /// that the first or the second of the pair takes.
    pub(crate) fn factors(
        self,
        position: Val<'k, u32>,
        pair: Val<'k, u32>,
        second: Val<'k, bool>,
    ) -> [Val<'k, f32>; 2] {
        // In 64 bits: the table of positions from 2³² / dim on has more elements than 32 bits
        // count.
        let [cos, sin] = self.table.at(position.mul_wide(2 * self.half)).at(pair * 2).load_vec();
        [cos, second.select(sin, -sin)]
    }
}

/// An element of a rotated pair, by the cosine and the sine with the sign that the element takes.
#[track_caller]
pub(crate) fn rotated<'k>(
    x: Val<'k, f32>,
    partner: Val<'k, f32>,
    cos: impl IntoVal<'k, f32>,
    sin: impl IntoVal<'k, f32>,
) -> Val<'k, f32> {
    x * cos + partner * sin
}

/// The first element of a rotated pair, by the sine as it is.
#[track_caller]
pub(crate) fn rotated_first<'k>(x: Val<'k, f32>, partner: Val<'k, f32>, [cos, sin]: [Val<'k, f32>; 2]) -> Val<'k, f32> {
    x * cos - partner * sin
}

/// Heads to rotate.
#[derive(Clone, Copy)]
pub struct HeadRotation<'k> {
    /// Input, `[rows, heads, dim]`.
    pub x: Array<'k>,
    /// The part of heads that is taken; `None`: all.
    pub part: Option<HeadPart>,
    /// The RMS norm before the rotation.
    pub norm: Option<HeadNorm<'k>>,
    /// The rotation; `None`: heads stay as they are.
    pub rotation: Option<Rotation<'k>>,
    /// Heads of a row of the input.
    pub heads: u32,
    /// Heads of a row of the output.
    pub out_heads: u32,
    /// First head.
    pub first_head: Val<'k, u32>,
    /// The number of heads.
    pub count: u32,
    /// Rows of the batch.
    pub rows: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
    /// The pages and positions of the rows' tokens.
    pub pages: PagedPool<'k>,
    /// `[rows, out_heads, dim]`, or `None`: the pages.
    pub out: Option<Array<'k>>,
}

/// Consecutive dimensions of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadPart {
    /// Elements of the input from one head to the next.
    pub width: u32,
    /// The first dimension that is taken.
    pub from: u32,
    /// How many are, even.
    pub dim: u32,
    /// The first dimension of a head of the output that they become.
    pub to: u32,
    /// Whether neighbours rotate, which become an element of each half.
    pub interleaved: bool,
}

/// The RMS norm of a head, or of heads together.
#[derive(Clone, Copy)]
pub struct HeadNorm<'k> {
    /// Scale of every dimension, `[dim]`; of heads together `[heads, dim]`.
    pub weight: Array<'k>,
    /// Added to the mean square.
    pub eps: f32,
    /// Heads that have one mean square: the first of the input, as many; `None`: each its own.
    pub together: Option<u32>,
}

/// Rotates.
pub fn rope<'k>(consumers: ConsumerWarps<'k>, rope: HeadRotation<'k>) {
    let k = consumers.k;
    let out_dim = rope.pages.dim;
    let HeadPart { width, from, dim, to, interleaved } =
        rope.part.unwrap_or(HeadPart { width: out_dim, from: 0, dim: out_dim, to: 0, interleaved: false });
    let half = dim / 2;
    let first = |pair: Val<'k, u32>| if interleaved { pair * 2 } else { pair };
    let second = |pair: Val<'k, u32>| if interleaved { pair * 2 + 1 } else { pair + half };
    let shifted = |at: Val<'k, u32>| if to == 0 { at } else { at + to };
    k.for_step(k.warp(), rope.rows * rope.count, consumers.warps, |item| {
        let row = rope.first_row + item / rope.count;
        let head = rope.first_head + item % rope.count;
        let position = rope.pages.position.load(row);
        let active = position.ge(0);
        let token = position.max(0).cast::<u32>();
        let start = (row * rope.heads + head) * width;
        let x = rope.x.from(if from == 0 { start } else { start + from });
        let pairs = || (0..half).step_by(32).map(|start| k.lane() + start);
        let sum = k.var(0.0f32);
        let together = rope.norm.and_then(|norm| norm.together);
        match together {
            None => {
                for pair in pairs() {
                    k.when(pair.lt(half), || {
                        let a = x.load(first(pair));
                        let b = x.load(second(pair));
                        sum.set(b.fma(b, a.fma(a, sum.get())));
                    });
                }
            }
            Some(heads) => {
                let all = rope.x.from(row * (rope.heads * dim));
                k.for_step(k.lane(), heads * dim, 32, |at| {
                    let x = all.load(at);
                    sum.set(x.fma(x, sum.get()));
                });
            }
        }
        let scale = rope.norm.map(|norm| {
            let sum = sum.get().warp_reduce(|a, b| a + b);
            rms_factor(sum, dim * together.unwrap_or(1), norm.eps)
        });
        let norm = rope.norm.map(|norm| match together {
            Some(_) => norm.weight.from(head * dim),
            None => norm.weight,
        });
        for pair in pairs() {
            k.when(pair.lt(half), || {
                let element = |at: Val<'k, u32>| match (norm, scale) {
                    (Some(weight), Some(scale)) => x.load(at) * scale * weight.load(at),
                    _ => x.load(at),
                };
                let a = element(first(pair));
                let b = element(second(pair));
                let elements = [(pair, k.lit(false), a, b), (pair + half, k.lit(true), b, a)];
                for (at, second, x, partner) in elements {
                    let y = rope.rotation.map_or(x, |rotation| {
                        let [cos, sin] = rotation.factors(token, pair, second);
                        rotated(x, partner, cos, sin)
                    });
                    match rope.out {
                        Some(out) => {
                            let y = active.select(y, 0.0f32);
                            out.store((row * rope.out_heads + head) * out_dim + shifted(at), y);
                        }
                        None => k.when(active, || {
                            rope.pages.pool.store(rope.pages.row_of(head, row, token).at(shifted(at)), y)
                        }),
                    }
                }
            });
        }
    });
}
