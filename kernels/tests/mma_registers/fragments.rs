//! `load_a` and `load_b` fill registers as the host's fragment layouts define, at every (thread,
//! value); rows reduced across lanes equal those of plain loops.

use crate::{filled, image, recorded, run};
use half::{bf16, f16};
use tilewright_codegen::build::Scalar;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ptx;
use tilewright_codegen::sim::MemoryElement;
use tilewright_codegen::verify::verify;
use tilewright_kernels::mma::{
    Accumulator, AtomGrid, AtomLayout, E4M3, InputType, MmaSync, Tf32, TiledMma, Wgmma, warpgroup_atom,
};
use tilewright_kernels::tile::{Index, LayoutTensor, RegisterTensor};
use tilewright_layout::fragment::{FragmentA, FragmentB, FragmentC, RegisterA, StaticFragment, atoms};
use tilewright_layout::typed::{ColMajor, KMajor, MnMajor, OperandTile, RowMajor, StaticLayout, Swizzle, Swizzled};

/// An element type whose bits are chosen.
trait Bits: InputType<Stored: MemoryElement> {
    fn of(bits: u32) -> Self::Stored;

    fn element(row: usize, column: usize) -> Self::Stored {
        Self::of((row * 131 + column * 7 + 1) as u32)
    }
}

macro_rules! bits {
    ($($F:ty: $of:expr;)+) => { $(
        impl Bits for $F {
            fn of(bits: u32) -> Self::Stored {
                let of: fn(u32) -> Self::Stored = $of;
                of(bits)
            }
        }
    )+ };
}

bits! {
    bf16: |bits| bf16::from_bits(bits as u16);
    f16: |bits| f16::from_bits(bits as u16);
    i8: |bits| (bits % 251) as u8 as i8;
    E4M3: |bits| (bits % 251) as u8;
    Tf32: |bits| f32::from_bits(bits << 3);
}

/// The bits of a stored element.
fn raw<T: MemoryElement>(value: T) -> u32 {
    let mut bytes = [0; 4];
    value.put(&mut bytes[..T::BYTES]);
    u32::from_le_bytes(bytes)
}

/// The word that a thread must hold of an operand whose first element stands at (row, column).
fn word<F: Bits, L: StaticFragment>(thread: usize, register: usize, [row, column]: [usize; 2]) -> u32 {
    (0..L::PACKED).fold(0, |word, j| {
        let (r, c) = L::FRAGMENT.element(thread as i64, register as i64 * L::PACKED + j);
        let element = raw(F::element(row + r as usize, column + c as usize));
        word | element << (j * F::BITS) as u32
    })
}

/// Every step's fragments of A and of B, of every warp.
fn warps<F: Bits, A: StaticLayout, B: StaticLayout, G: AtomGrid>() {
    let [m, n] = TiledMma::<MmaSync<F>, A, B, G>::PART;
    let threads = TiledMma::<MmaSync<F>, A, B, G>::THREADS;
    let steps = TiledMma::<MmaSync<F>, A, B, G>::STEPS;
    let words = steps * (4 * m / 16 + 2 * n / 8);
    let kernel = recorded(Arch::Sm90a, threads, |k| {
        let a = filled::<F::Stored, A>(k, "a");
        let b = filled::<F::Stored, B>(k, "b");
        let out = k.global::<u32>("out");
        k.barrier();
        let product = TiledMma::<MmaSync<F>, A, B, G>::new(k);
        let mut number = 0;
        for step in 0..steps {
            let a = product.load_a(a, step);
            let b = product.load_b(b, step);
            let all = a.iter().flat_map(|a| a.registers()).chain(b.iter().flat_map(|b| b.registers()));
            for &register in all {
                out.at(k.tid() * words + number).store(register);
                number += 1;
            }
        }
        assert_eq!(number, words);
    });
    let images =
        [image::<_, A>(F::of(0), F::element), image::<_, B>(F::of(0), |row, column| F::element(row + 3, column))];
    let found = run(kernel, &images, &vec![u32::MAX; (threads * words) as usize], &[]);
    for thread in 0..threads as usize {
        let warp = thread / 32;
        let lane = thread % 32;
        let down = warp % G::DOWN as usize;
        let across = warp / G::DOWN as usize;
        let mut expected = Vec::new();
        for step in 0..steps as usize {
            let column = step * F::K as usize;
            for i in 0..m as usize / 16 {
                let corner = [down * m as usize + 16 * i, column];
                expected.extend((0..4).map(|register| word::<F, F::WarpA>(lane, register, corner)));
            }
            for j in 0..n as usize / 8 {
                let corner = [across * n as usize + 8 * j + 3, column];
                expected.extend((0..2).map(|register| word::<F, F::WarpB>(lane, register, corner)));
            }
        }
        assert_eq!(found[thread * words as usize..][..words as usize], expected, "{}: thread {thread}", F::NAME);
    }
}

/// Every step's fragments of A of every warpgroup.
fn warpgroups<F: Bits, A: StaticLayout, B: StaticLayout, G: AtomGrid>() {
    let m = TiledMma::<Wgmma<F>, A, B, G>::PART[0];
    let threads = TiledMma::<Wgmma<F>, A, B, G>::THREADS;
    let steps = TiledMma::<Wgmma<F>, A, B, G>::STEPS;
    let words = steps * 4 * m / 64;
    let kernel = recorded(Arch::Sm90a, threads, |k| {
        let a = filled::<F::Stored, A>(k, "a");
        let out = k.global::<u32>("out");
        k.barrier();
        let product = TiledMma::<Wgmma<F>, A, B, G>::new(k);
        let fragments = product.sums().load_a::<F, _>(product.thread(), a, product.corner()[0], steps);
        let registers = fragments.iter().flatten().flat_map(|a| a.registers().to_vec());
        (0..).zip(registers).for_each(|(number, register)| out.at(k.tid() * words + number).store(register));
    });
    let images = [image::<_, A>(F::of(0), F::element)];
    let found = run(kernel, &images, &vec![u32::MAX; (threads * words) as usize], &[]);
    for thread in 0..threads as usize {
        let down = thread / 128 % G::DOWN as usize * m as usize;
        let corners = (0..steps as usize)
            .flat_map(|step| (0..m as usize / 64).map(move |i| [down + 64 * i, step * F::K as usize]));
        let expected: Vec<u32> = corners
            .flat_map(|corner| (0..4).map(move |register| word::<F, F::WarpgroupA>(thread % 128, register, corner)))
            .collect();
        assert_eq!(found[thread * words as usize..][..words as usize], expected, "{}: thread {thread}", F::NAME);
    }
}

type Rows<const R: usize> = Swizzled<Swizzle<2, 3, 3>, RowMajor<R, 32>>;
type Columns<const R: usize> = Swizzled<Swizzle<2, 3, 3>, ColMajor<R, 32>>;

#[test]
fn fragments_are_where_their_layout_says() {
    warps::<bf16, Rows<32>, Rows<24>, AtomLayout<1, 1>>();
    warps::<f16, Columns<32>, Rows<32>, AtomLayout<2, 1>>();
    warps::<bf16, RowMajor<32, 48>, OperandTile<MnMajor, 16, 64, 48>, AtomLayout<1, 2>>();
    warps::<bf16, OperandTile<MnMajor, 16, 64, 32>, OperandTile<KMajor, 16, 16, 32>, AtomLayout<2, 2>>();
    warps::<i8, OperandTile<KMajor, 8, 32, 64>, OperandTile<KMajor, 8, 16, 64>, AtomLayout<2, 1>>();
    warps::<E4M3, RowMajor<16, 64>, RowMajor<8, 64>, AtomLayout<1, 1>>();
    warps::<Tf32, OperandTile<KMajor, 32, 32, 32>, RowMajor<24, 32>, AtomLayout<2, 1>>();
}

#[test]
fn a_warpgroups_fragments_are_where_their_layout_says() {
    warpgroups::<bf16, OperandTile<KMajor, 16, 128, 32>, OperandTile<KMajor, 16, 64, 32>, AtomLayout<1, 1>>();
    warpgroups::<f16, OperandTile<MnMajor, 16, 128, 16>, OperandTile<KMajor, 16, 64, 16>, AtomLayout<2, 1>>();
    warpgroups::<i8, OperandTile<KMajor, 8, 64, 64>, OperandTile<KMajor, 8, 64, 64>, AtomLayout<1, 2>>();
    warpgroups::<Tf32, OperandTile<KMajor, 32, 64, 32>, OperandTile<KMajor, 32, 64, 32>, AtomLayout<1, 1>>();
}

/// A number for each element, few enough bits that sums are exact.
fn number(row: i64, column: i64) -> f32 {
    ((row * 17 + column * 5 + row * column) % 101 - 50) as f32
}

/// Sums and largest elements of the rows of a fragment: every thread has those of its rows.
fn rows_of<C: StaticFragment>() {
    let threads = C::FRAGMENT.threads() as u32;
    let values = C::FRAGMENT.values() as u32;
    let rows = RegisterTensor::<f32, C>::places(0.into())
        .iter()
        .map(|[row, _]| row.constant())
        .collect::<std::collections::BTreeSet<_>>();
    let count = 2 * rows.len() as u32;
    let kernel = recorded(Arch::Sm80, threads, |k| {
        let from = k.global::<f32>("in");
        let out = k.global::<f32>("out");
        let tensor = RegisterTensor::<f32, C>::from_registers(|value| from.at(k.tid() * values + value as u32).load());
        let sums = tensor.reduce_across(|a, b| a + b);
        let most = tensor.reduce_across(|a, b| a.max(b));
        let less = tensor.zip_rows(&most, |value, most| value - most);
        assert_eq!(less.registers().len(), values as usize);
        (0..).zip(sums.into_iter().chain(most)).for_each(|(i, value)| out.at(k.tid() * count + i).store(value));
    });
    let data: Vec<f32> = (0..i64::from(threads * values))
        .map(|i| C::FRAGMENT.element(i / i64::from(values), i % i64::from(values)))
        .map(|(row, column)| number(row, column))
        .collect();
    let found = run(kernel, &[data], &vec![f32::NAN; (threads * count) as usize], &[]);
    for thread in 0..i64::from(threads) {
        let first = C::FRAGMENT.element(thread, 0).0;
        let mine = rows.iter().map(|row| first + i64::from(*row));
        let all = |row: i64| (0..C::FRAGMENT.cols).map(move |column| number(row, column));
        let expected: Vec<f32> =
            mine.clone().map(|row| all(row).sum()).chain(mine.map(|row| all(row).fold(f32::MIN, f32::max))).collect();
        assert_eq!(found[(thread as u32 * count) as usize..][..count as usize], expected, "thread {thread}");
    }
}

#[test]
fn rows_of_fragments_are_reduced_across_their_lanes() {
    rows_of::<FragmentC<atoms::SM80_16x8x16_F32BF16BF16F32_TN>>();
    rows_of::<FragmentC<atoms::SM80_8x8x4_F64F64F64F64_TN>>();
    rows_of::<FragmentC<atoms::SM80_16x8x8_F32TF32TF32F32_TN>>();
    rows_of::<FragmentC<atoms::Wgmma<atoms::SM90_F32BF16BF16, 24, tilewright_layout::fragment::SharedA>>>();
}

/// Reductions across a warpgroup's tile of several atoms.
#[test]
fn rows_of_accumulators_are_reduced_across_atoms_and_lanes() {
    let down = 2;
    let columns = 40;
    let fragment = warpgroup_atom::<bf16>(columns).1;
    let count = 2 * down;
    let kernel = recorded(Arch::Sm90a, 128, |k| {
        let from = k.global::<f32>("in");
        let out = k.global::<f32>("out");
        let thread = Index::thread(k);
        let sums = Accumulator::<f32>::unset(k, fragment, down, 1);
        for pair in sums.pairs(thread) {
            for i in 0..2 {
                let at = pair.row.get(k) * columns + (pair.column + i).get(k);
                sums.registers().set(pair.first + i, from.at(at).load());
            }
        }
        let of_rows = sums.reduce_rows(|a, b| a + b);
        for (i, sum) in (0..).zip(of_rows) {
            out.at(k.tid() * count + i).store(sum);
        }
    });
    let data: Vec<f32> =
        (0..i64::from(64 * down * columns)).map(|i| number(i / i64::from(columns), i % i64::from(columns))).collect();
    let found = run(kernel, &[data], &vec![f32::NAN; 128 * count as usize], &[]);
    for thread in 0..128i64 {
        let first = fragment.element(thread, 0).0;
        for (i, row) in [first, first + 8, first + 64, first + 72].into_iter().enumerate() {
            let sum: f32 = (0..i64::from(columns)).map(|column| number(row, column)).sum();
            assert_eq!(found[thread as usize * count as usize + i], sum, "thread {thread}, row {row}");
        }
    }
}

/// A fragment goes from one tile of memory to another through registers, inside of larger matrices
/// of layouts `P` and `Q`.
fn moved<T: Scalar, L: StaticFragment, E: Scalar + MemoryElement + PartialEq, P, Q, const M: usize, const N: usize>(
    of: fn(u32) -> E,
) -> String
where
    P: StaticLayout,
    Q: StaticLayout,
{
    let kernel = recorded(Arch::Sm80, L::FRAGMENT.threads() as u32, |k| {
        let from = k.global::<E>("in");
        let to = k.global::<E>("out");
        let corner = [Index::from(1), Index::from(1)];
        let from = LayoutTensor::new(from, P::default()).tile::<M, N>(corner);
        let to = LayoutTensor::new(to, Q::default()).tile::<M, N>(corner);
        let thread = Index::thread(k);
        RegisterTensor::<T, L>::load_fragment(thread, from).store_fragment(thread, to);
    });
    let text = ptx::emit(&verify(kernel.clone()).unwrap());
    let number = |row: usize, column: usize| of((row * 64 + column + 1) as u32);
    let found = run(kernel, &[image::<_, P>(of(0), number)], &image::<_, Q>(of(0), |_, _| of(0)), &[]);
    let inside = |at: usize, tile: usize| at / tile == 1;
    let expected = image::<_, Q>(
        of(0),
        |row, column| {
            if inside(row, M) && inside(column, N) { number(row, column) } else { of(0) }
        },
    );
    assert!(found == expected, "{M}x{N}");
    text
}

#[test]
fn fragments_move_between_memory_and_registers_by_the_widest_vectors() {
    type Bf16 = atoms::SM80_16x8x16_F32BF16BF16F32_TN;
    let float = |bits: u32| bits as f32;
    let half = |bits: u32| bf16::from_bits(bits as u16);
    let rows = moved::<f32, FragmentC<Bf16>, f32, RowMajor<32, 16>, RowMajor<32, 16>, 16, 8>(float);
    assert_eq!([rows.matches("ld.global.v2").count(), rows.matches("st.global.v2").count()], [2, 2]);
    let columns = moved::<f32, FragmentC<Bf16>, f32, ColMajor<32, 16>, RowMajor<32, 16>, 16, 8>(float);
    assert_eq!([columns.matches("ld.global.v2").count(), columns.matches("st.global.v2").count()], [0, 2]);
    moved::<u32, FragmentA<Bf16>, bf16, RowMajor<32, 32>, Swizzled<Swizzle<2, 3, 3>, RowMajor<32, 32>>, 16, 16>(half);
    moved::<u32, FragmentB<Bf16>, bf16, RowMajor<16, 32>, RowMajor<16, 32>, 8, 16>(half);
    moved::<u32, FragmentA<atoms::SM80_16x8x32_S32S8S8S32_TN>, u8, RowMajor<32, 64>, RowMajor<32, 64>, 16, 32>(
        |bits| bits as u8,
    );
    type Group = atoms::Wgmma<atoms::SM90_F32F16F16, 24, RegisterA>;
    moved::<f32, FragmentC<Group>, f32, RowMajor<128, 48>, ColMajor<128, 48>, 64, 24>(float);
    moved::<u32, FragmentA<Group>, f16, RowMajor<128, 32>, RowMajor<128, 32>, 64, 16>(|bits| {
        f16::from_bits(bits as u16)
    });
}
