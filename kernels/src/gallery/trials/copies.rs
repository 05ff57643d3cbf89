//! Random copies against lists of elements: what arrives, what is zero, and what stays as it was.

use tilewright_codegen::build::{Scalar, block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{BufferId, Draw, Expected, Trial, TrialArg, TrialElement};
use tilewright_codegen::verify::{VerifyErrors, verify};
use tilewright_layout::layout;
use tilewright_layout::typed::{
    ColMajor, KMajor, OperandTile, RowMajor, StaticLayout, Storage, Swizzle, Swizzled, notation,
};

use crate::gallery::copies::{CopyCase, CopySide, LayoutKind, TypedCopies};

/// Tiles of a view, at most.
const MOST: [u32; 2] = [2, 3];

layout! {
    /// Rows with a gap after them.
    type Padded = (4, 8):(10, 1);
}

/// Elements of a copy: any bits.
trait CopyElement: Scalar + TrialElement {
    fn of(bits: u64) -> Self;
}

macro_rules! cells {
    ($($T:ty)+) => {$(
        impl CopyElement for $T {
            fn of(bits: u64) -> $T {
                bits as $T
            }
        }
    )+};
}
cells!(u8 u16 u32 u64);

/// Draws a case of a form, and records it; the kernel alone, or on trial.
struct CopyForm {
    record: fn(Arch, u64) -> Kernel,
    draw: fn(Arch, u64) -> Result<Trial, VerifyErrors>,
}

macro_rules! forms {
    ($($T:ty, $L:ty, $P:ty, $m:literal $n:literal, $r:literal $c:literal;)+) => {
        [$(CopyForm {
            record: |arch, seed| recorded::<$T, $L, $P, $m, $n, $r, $c>(arch, seed).1,
            draw: on_trial::<$T, $L, $P, $m, $n, $r, $c>,
        }),+]
    };
}

/// Elements; the tile in shared memory; memory of a typed side, of six tiles, transposed; the
/// tile's extents; a thread's part.
const FORMS: [CopyForm; 7] = forms! {
    u32, RowMajor<16, 32>, RowMajor<96, 32>, 16 32, 4 4;
    u32, RowMajor<8, 16>, ColMajor<48, 16>, 8 16, 2 4;
    u32, Swizzled<Swizzle<2, 2, 2>, RowMajor<8, 16>>, RowMajor<48, 16>, 8 16, 1 8;
    u16, OperandTile<KMajor, 16, 8, 32>, ColMajor<96, 16>, 8 32, 2 8;
    u16, ColMajor<16, 8>, ColMajor<24, 32>, 16 8, 4 2;
    u8, RowMajor<4, 20>, RowMajor<60, 8>, 4 20, 2 2;
    u64, Padded, ColMajor<24, 8>, 4 8, 2 2;
};

fn recorded<
    T: CopyElement,
    L: StaticLayout,
    P: StaticLayout,
    const M: usize,
    const N: usize,
    const R: usize,
    const C: usize,
>(
    arch: Arch,
    seed: u64,
) -> (CopyCase, Kernel)
where
    RowMajor<R, C>: Storage,
{
    let case = CopyCase::draw(&mut Draw::new(seed), [M as u32, N as u32], size_of::<T>() as u32, MOST);
    let kernel = record("copies", arch, block(case.threads), |k| TypedCopies::<T, L, P, M, N, R, C>::record(k, &case));
    (case, kernel)
}

fn on_trial<
    T: CopyElement,
    L: StaticLayout,
    P: StaticLayout,
    const M: usize,
    const N: usize,
    const R: usize,
    const C: usize,
>(
    arch: Arch,
    seed: u64,
) -> Result<Trial, VerifyErrors>
where
    RowMajor<R, C>: Storage,
{
    let (case, kernel) = recorded::<T, L, P, M, N, R, C>(arch, seed);
    let draw = &mut Draw::new(!seed);
    let mut memory = |side: &CopySide| -> Vec<T> {
        let reach = if side.kind == LayoutKind::Typed { P::LAYOUT.cosize() as u32 } else { side.reach() };
        (0..side.offset + reach + draw.between(0..=9)).map(|_| T::of(draw.bits())).collect()
    };
    let x = memory(&case.from);
    let y = memory(&case.to);
    let mut after = y.clone();
    for place in (0..case.tiles[0]).flat_map(|i| (0..case.tiles[1]).map(move |j| [i, j])) {
        let [from, to] = [&case.from, &case.to].map(|side| side.tile(&P::LAYOUT, [M as u32, N as u32], place));
        for (from, to) in from.elements().iter().zip(to.elements()) {
            let Some(to) = to else { continue };
            let value = from.map_or(T::of(0), |from| x[(case.from.offset + from) as usize]);
            after[(case.to.offset + to) as usize] = value;
        }
    }
    let CopyCase { from, to, fill, registers, tiles, .. } = &case;
    let note = format!(
        "{} by {fill:?}{}, {:?} to {:?}, {}×{} tiles",
        notation::<L>().as_str(),
        if *registers { " and registers" } else { "" },
        from.kind,
        to.kind,
        tiles[0],
        tiles[1]
    );
    let mut trial = Trial::new(verify(kernel)?, tiles[0] * tiles[1]).note(note);
    let x = trial.input("x", &x);
    let y = trial.changed("y", &y, Expected::exact(&after));
    let numbers = from.numbers().into_iter().chain(to.numbers());
    let begin =
        |buffer: BufferId, side: &CopySide| TrialArg::Pointer(buffer, u64::from(side.offset) * size_of::<T>() as u64);
    let trial = numbers.fold(trial, Trial::pass).pass(begin(x, from)).pass(begin(y, to));
    Ok(trial)
}

/// The kernel that is shown: rows of both sides contiguous, told and edged; asynchronous, and on
/// through registers.
pub(super) fn record_copies(arch: Arch) -> Kernel {
    (FORMS[0].record)(arch, SHOWN)
}

/// The seed of the kernel that is shown.
const SHOWN: u64 = 17868;

/// A form and a case of a seed.
pub(super) fn draw_copies(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    (FORMS[(seed % FORMS.len() as u64) as usize].draw)(arch, seed)
}
