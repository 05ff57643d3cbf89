//! Copies of whatever is drawn: global memory, shared memory, registers, global memory.
//!
//! | file | what it holds |
//! |---|---|
//! | `case` | what is drawn: how either side lies in memory and is cut into tiles, and who copies |
//! | `sides` | a side on the device: views by the names of `tile` |
//! | `dense` | the same side on the host, element by element |

mod case;
mod dense;
mod sides;

pub use case::{CopyCase, CopySide, LayoutKind, TileFill};

use crate::tile::prelude::*;
use sides::GlobalSide;
use tilewright_codegen::build::Scalar;
use tilewright_layout::typed::{RowMajor, StaticLayout, Storage};

/// Types and layouts of a copy: elements `T`; tiles of `M`×`N` in shared memory by the layout `L`;
/// sides whose layout is a type lie in memory as `P`, of which the view is the transpose; a
/// thread's own part is `R`×`C`.
pub struct TypedCopies<T, L, P, const M: usize, const N: usize, const R: usize, const C: usize>(
    core::marker::PhantomData<(T, L, P)>,
);

impl<T: Scalar, L: StaticLayout, P: StaticLayout, const M: usize, const N: usize, const R: usize, const C: usize>
    TypedCopies<T, L, P, M, N, R, C>
where
    RowMajor<R, C>: Storage,
{
    /// A tile of the view of `x` to the same tile of the view of `y`, by way of shared memory and
    /// registers: a tile a block. Elements missing in x are zero in y; elements outside y's view
    /// are unchanged. Parameters: the numbers of x's side, those of y's, `x`, `y`.
    pub fn record(k: &Builder, case: &CopyCase) {
        let from = case.from.told(k, "x");
        let to = case.to.told(k, "y");
        let x = k.global::<T>("x");
        let y = k.global::<T>("y");
        let place = case.place(k);
        let staged = LayoutTensor::<T, L, _>::shared(k, "staged");
        match case.from.kind {
            LayoutKind::Typed => Self::fill(k, case, case.from.typed::<T, P, M, N>(x, place), staged),
            LayoutKind::Value => Self::fill(k, case, case.from.value(x, &from, place, [M, N]), staged),
            LayoutKind::Told => Self::fill(k, case, case.from.modes(x, &from, place, [M, N]), staged),
        }
        k.barrier();
        match case.to.kind {
            LayoutKind::Typed => Self::empty(k, case, staged, case.to.typed::<T, P, M, N>(y, place)),
            LayoutKind::Value => Self::empty(k, case, staged, case.to.value(y, &to, place, [M, N])),
            LayoutKind::Told => Self::empty(k, case, staged, case.to.modes(y, &to, place, [M, N])),
        }
    }

    /// The threads that have a part of their own.
    const OWNERS: [usize; 2] = [M / R, N / C];

    #[track_caller]
    fn fill<'k, V: GlobalSide<'k, T>>(
        k: &'k Builder,
        case: &CopyCase,
        from: V,
        staged: LayoutTensor<'k, T, L, Shared>,
    ) {
        let all = ThreadGroup::block(k);
        let warp = ThreadGroup::warp(k);
        let dealt = || (from.dealt(Self::OWNERS, k), sides::dealt(staged, Self::OWNERS, k));
        let owner = k.tid().lt((Self::OWNERS[0] * Self::OWNERS[1]) as u32);
        match case.fill {
            TileFill::Block => all.copy(from, staged),
            TileFill::BlockAsync => all.copy_async(from, staged),
            TileFill::Warp => k.when(k.warp().eq(0), || warp.copy(from, staged)),
            TileFill::Thread => k.when(owner, || copy(dealt().0, dealt().1)),
            TileFill::ThreadAsync => k.when(owner, || copy_async(dealt().0, dealt().1)),
        }
        if matches!(case.fill, TileFill::BlockAsync | TileFill::ThreadAsync) {
            k.cp_async_commit();
            k.cp_async_wait(0);
        }
    }

    #[track_caller]
    fn empty<'k, V: GlobalSide<'k, T>>(k: &'k Builder, case: &CopyCase, staged: LayoutTensor<'k, T, L, Shared>, to: V) {
        if !case.registers {
            return ThreadGroup::block(k).copy(staged, to);
        }
        let [down, across] = Self::OWNERS.map(|owners| owners as u32);
        let mine = [Index::thread(k) / across, Index::thread(k) % across];
        k.when(k.tid().lt(down * across), || {
            let held = RegisterVar::<T, RowMajor<R, C>>::unset(k);
            copy(staged.tile::<R, C>(mine), held);
            copy(held, to.part([R, C], mine));
        });
    }
}
