//! Register tensors against arrays: loads, stores, maps, views, reductions; how wide memory is
//! read.

use crate::{recorded, run};
use proptest::prelude::*;
use tilewright_codegen::build::block;
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::ptx;
use tilewright_codegen::verify::verify;
use tilewright_kernels::tile::{Index, LayoutTensor, RegisterTensor, RegisterVar};
use tilewright_layout::typed::{
    BlockedProduct, ColMajor, Contiguous, Lowered, MatrixLayout, RowMajor, StaticLayout, Storage, Swizzle, Swizzled,
    Within,
};

const THREADS: u32 = 32;

/// Each thread reads an `M`×`N` tile of its own by layout `P`, computes in registers of layout `L`,
/// and writes what it has by layout `P` again; after it sums of rows, largest elements of columns,
/// and a row.
fn kernel<L, P, const M: usize, const N: usize>() -> Kernel
where
    L: Storage + MatrixLayout<M, N>,
    P: StaticLayout,
    Contiguous<M>: Storage,
    Contiguous<N>: Storage,
{
    let reach = Lowered::<P>::REACH as u32;
    let size = (M * N) as u32;
    let out_len = reach + (M + N) as u32;
    recorded(Arch::Sm80, THREADS, |k| {
        let from = k.global::<f32>("in");
        let out = k.global::<f32>("out");
        let mine = out.at(k.tid() * out_len);
        let tile = RegisterTensor::<f32, L>::load_from(LayoutTensor::new(from.at(k.tid() * reach), P::default()));
        assert_eq!(tile.registers().len(), size as usize);
        let twice = RegisterVar::new(k, &tile);
        k.for_(0, 2, |_| twice.set(&twice.get().zip_map(&tile, |a, b| a + b)));
        let changed = twice.get().map(|x| x - 1.0);
        changed.store_to(LayoutTensor::new(mine, P::default()));
        let rest = mine.at(reach);
        tile.reduce_rows(|a, b| a + b).store_to(LayoutTensor::new(rest, Contiguous::<M>::default()));
        tile.row(M - 1).store_to(LayoutTensor::new(rest.at(M as u32), Contiguous::<N>::default()));
    })
}

fn check<L, P, const M: usize, const N: usize>(seed: u32)
where
    L: Storage + MatrixLayout<M, N>,
    P: StaticLayout,
    Contiguous<M>: Storage,
    Contiguous<N>: Storage,
{
    let reach = Lowered::<P>::REACH;
    let number = |i: usize| ((i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 24) as f32 - 128.0;
    let data: Vec<f32> = (0..THREADS as usize * reach).map(number).collect();
    let out_len = reach + M + N;
    let poison = -7e9f32;
    let found =
        run(kernel::<L, P, M, N>(), std::slice::from_ref(&data), &vec![poison; THREADS as usize * out_len], &[]);
    for thread in 0..THREADS as usize {
        let at = |i: usize, j: usize| data[thread * reach + Lowered::<P>::at([i, j])];
        let mut expected = vec![poison; reach];
        for (i, j) in (0..M).flat_map(|i| (0..N).map(move |j| (i, j))) {
            expected[Lowered::<P>::at([i, j])] = 3.0 * at(i, j) - 1.0;
        }
        expected.extend((0..M).map(|i| (0..N).map(|j| at(i, j)).sum::<f32>()));
        expected.extend((0..N).map(|j| at(M - 1, j)));
        assert_eq!(found[thread * out_len..][..out_len], expected, "thread {thread}");
    }
}

type Quads = Swizzled<Swizzle<1, 2, 3>, RowMajor<4, 8>>;
type Blocks = BlockedProduct<RowMajor<2, 4>, ColMajor<2, 2>>;
/// Rows with gaps between them.
type Gaps = Within<RowMajor<4, 24>, 4, 8>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn what_registers_compute_is_what_arrays_do(seed: u32) {
        check::<RowMajor<4, 8>, RowMajor<4, 8>, 4, 8>(seed);
        check::<ColMajor<4, 8>, RowMajor<4, 8>, 4, 8>(seed);
        check::<RowMajor<4, 8>, ColMajor<4, 8>, 4, 8>(seed);
        check::<Quads, Gaps, 4, 8>(seed);
        check::<RowMajor<4, 8>, Quads, 4, 8>(seed);
        check::<RowMajor<3, 5>, RowMajor<3, 5>, 3, 5>(seed);
        check::<ColMajor<1, 7>, RowMajor<1, 7>, 1, 7>(seed);
    }
}

/// The reads and writes of global memory in the kernel's text, each spelling with its number of
/// occurrences.
fn accesses(kernel: Kernel) -> Vec<(String, usize)> {
    let text = ptx::emit(&verify(kernel).unwrap());
    let mut found: Vec<(String, usize)> = Vec::new();
    let words = text.split_whitespace().filter(|word| word.starts_with("ld.global") || word.starts_with("st.global"));
    for word in words {
        match found.iter_mut().find(|(other, _)| other == word) {
            Some((_, count)) => *count += 1,
            None => found.push((word.into(), 1)),
        }
    }
    found
}

/// A copy of one tile to another.
fn copied<L: Storage, P: StaticLayout, Q: StaticLayout>(first: u32) -> Vec<(String, usize)> {
    accesses(recorded(Arch::Sm80, THREADS, |k| {
        let from = k.global::<half::bf16>("in");
        let to = k.global::<half::bf16>("out");
        let origin = [Index::from(0), Index::from(first)];
        let from = LayoutTensor::new(from, P::default()).sub_tile_at(origin);
        RegisterTensor::<_, L>::load_from(from).store_to(LayoutTensor::new(to, Q::default()));
    }))
}

#[test]
fn vectors_are_as_wide_as_both_the_layout_and_the_start_allow() {
    let found =
        |list: &[(&str, usize)]| list.iter().map(|&(word, count)| (word.to_string(), count)).collect::<Vec<_>>();
    type L = ColMajor<4, 8>;
    let rows = copied::<L, RowMajor<4, 8>, RowMajor<4, 8>>(0);
    assert_eq!(rows.iter().map(|(_, count)| count).sum::<usize>(), 8, "four loads, four stores: {rows:?}");
    let columns = copied::<L, RowMajor<4, 8>, ColMajor<4, 8>>(0);
    assert_eq!(columns.iter().map(|(_, count)| count).sum::<usize>(), 4 + 8, "{columns:?}");
    // The tile begins at the second element: nothing is known to be aligned.
    let beside = copied::<L, RowMajor<4, 8>, RowMajor<4, 8>>(1);
    assert_eq!(beside.iter().map(|(_, count)| count).sum::<usize>(), 32 + 4, "{beside:?}");
    let odd = copied::<RowMajor<3, 5>, RowMajor<3, 5>, Within<RowMajor<3, 10>, 3, 5>>(0);
    assert_eq!(odd, found(&[("ld.global.b16", 15), ("st.global.b16", 15)]));
}

#[test]
fn views_are_the_same_values() {
    let kernel = recorded(Arch::Sm80, THREADS, |k| {
        let tile = RegisterTensor::<u32, Blocks>::from_fn(|[i, j]| k.lit((10 * i + j) as u32));
        let numbers = |values: &[tilewright_codegen::build::Val<'_, u32>]| {
            values.iter().map(|value| value.operand().as_const().map(|known| known.bits)).collect::<Option<Vec<_>>>()
        };
        assert_eq!(numbers(tile.tile::<2, 2>([1, 3]).registers()), Some(vec![26, 27, 36, 37]));
        assert_eq!(numbers(&[tile.get([3, 5])]), Some(vec![35]));
        let column = tile.cast::<u32>();
        assert_eq!(numbers(&[column.get([0, 7])]), Some(vec![7]));
        assert_eq!(numbers(&[tile.reduce(|a, b| a + b)]), Some(vec![(0..4).map(|i| 80 * i + 28).sum()]));
        assert_eq!(tile.registers().len(), 32);
    });
    assert_eq!(kernel.launch, block(THREADS));
}
