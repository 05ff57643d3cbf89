//! Device offsets equal the host's: parts of random layouts, by random chains of the same names on
//! both sides.

use crate::{POISON, differences, run};
use proptest::prelude::*;
use tilewright_codegen::build::{Builder, Global, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::tile::{Index, LayoutTensor, Modes};
use tilewright_layout::view::{Split, TensorView};
use tilewright_layout::{Coord, IntTuple, Layout, Swizzle, Swizzled, Tiler};

/// A step from a tensor to a part of it. Choices are reduced to those of the tensor at hand.
#[derive(Clone, Copy, Debug)]
enum Step {
    Permute,
    Slice { mode: usize, at: u32 },
    Tile { divisor: [u32; 3], at: u32 },
    Split { mode: usize, parts: u32, multiple: u32, at: u32 },
    Distribute { threads: [u32; 3], at: u32 },
    Compose { first: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Permute),
        (0usize..3, 0u32..64).prop_map(|(mode, at)| Step::Slice { mode, at }),
        ([1u32..5, 1u32..5, 1u32..5], 0u32..64).prop_map(|(divisor, at)| Step::Tile { divisor, at }),
        (0usize..3, 1u32..5, 1u32..4, 0u32..64).prop_map(|(mode, parts, multiple, at)| Step::Split {
            mode,
            parts,
            multiple,
            at
        }),
        ([1u32..4, 1u32..4, 1u32..4], 0u32..64).prop_map(|(threads, at)| Step::Distribute { threads, at }),
        (1u32..4).prop_map(|first| Step::Compose { first }),
    ]
}

/// Extents and strides of up to three modes that repeat no offset: an order of the modes, and gaps.
fn modes() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let mode = (prop_oneof![Just(1u32), Just(2), Just(3), Just(4), Just(6), Just(8), Just(12)], 0u32..3, any::<u16>());
    proptest::collection::vec(mode, 1..=3).prop_map(|modes| {
        let mut order: Vec<usize> = (0..modes.len()).collect();
        order.sort_by_key(|&i| modes[i].2);
        let mut next = 1;
        let mut strides = vec![0; modes.len()];
        for i in order {
            strides[i] = next;
            next *= modes[i].0 + modes[i].1;
        }
        modes.iter().zip(strides).map(|(mode, stride)| (mode.0, stride)).collect()
    })
}

fn layout(modes: &[(u32, u32)]) -> Layout {
    let leaves: Vec<Layout> = modes.iter().map(|&(e, s)| Layout::leaf(e.into(), s.into()).unwrap()).collect();
    Layout::tuple(&leaves).unwrap()
}

/// The host's part and the device's, as far as both go.
struct Both<'a, 'k> {
    host: TensorView<'a, u32, Swizzled>,
    device: LayoutTensor<'k, u32, Swizzled, Global>,
}

/// A compact layout of threads.
fn threads(extents: &[u32]) -> Layout {
    let flat = IntTuple::flat(&extents.iter().map(|&e| i64::from(e)).collect::<Vec<_>>()).unwrap();
    Layout::col_major(&flat).unwrap()
}

impl<'a, 'k> Both<'a, 'k> {
    fn extents(&self) -> Vec<u32> {
        (0..self.host.rank()).map(|mode| self.host.extent(mode) as u32).collect()
    }

    /// The next part, its indices by `number`; unchanged where the host has no such part.
    fn step(self, step: Step, number: impl Fn(u32) -> Index<'k>) -> Self {
        let extents = self.extents();
        match (step, extents.len()) {
            (Step::Permute, 2) => {
                Both { host: self.host.permute(&[1, 0]).unwrap(), device: self.device.permute([1, 0]) }
            }
            (Step::Permute, 3) => {
                Both { host: self.host.permute(&[2, 0, 1]).unwrap(), device: self.device.permute([2, 0, 1]) }
            }
            (Step::Slice { mode, at }, rank @ 2..) => self.slice(mode % rank, at % extents[mode % rank], number),
            (Step::Tile { divisor, at }, 2) => {
                let tile = [0, 1].map(|i| extents[i] / gcd(extents[i], divisor[i]));
                let at = [0, 1].map(|i| at % (extents[i] / tile[i]));
                let tiler = Tiler::by_mode(&tile.map(|extent| Tiler::extent(extent.into()))).unwrap();
                match self.host.tile_by(&tiler, &at.map(|at| at as usize)) {
                    Ok(host) => Both { host, device: self.device.tile_by(&tiler, at.map(number)) },
                    Err(_) => self,
                }
            }
            (Step::Split { mode, parts, multiple, at }, rank) => {
                let split = Split { mode: mode % rank, parts: parts as usize, multiple: multiple as usize };
                let size = (extents[mode % rank].div_ceil(parts)).next_multiple_of(multiple);
                if !extents[mode % rank].is_multiple_of(size) {
                    return self;
                }
                // The host cuts a nested mode anywhere, part by part; the device's parts are of one layout.
                let whole = self.host.layout().layout().mode(mode % rank).unwrap();
                if !whole.divides_evenly(&Tiler::extent(size.into())) {
                    return self;
                }
                let at = at % (extents[mode % rank] / size);
                match self.host.split(split, at as usize) {
                    Ok(host) => Both { host, device: self.device.split(split, number(at)) },
                    Err(_) => self,
                }
            }
            (Step::Distribute { threads: counts, at }, rank) => {
                let counts: Vec<u32> = (0..rank).map(|i| gcd(extents[i], counts[i])).collect();
                let threads = threads(&counts);
                let at = at % threads.size() as u32;
                match self.host.distribute_by(&threads, at as usize) {
                    Ok(host) => Both { host, device: self.device.distribute_by(&threads, number(at)) },
                    Err(_) => self,
                }
            }
            (Step::Compose { first }, _) => {
                let size = self.host.size() as u32;
                let first = gcd(size, first);
                let order = layout(&[(first, size / first), (size / first, 1)]);
                match self.host.compose(&order) {
                    Ok(host) => Both { host, device: self.device.compose(&order) },
                    Err(_) => self,
                }
            }
            _ => self,
        }
    }

    fn slice(self, mode: usize, at: u32, number: impl Fn(u32) -> Index<'k>) -> Self {
        let rank = self.host.rank();
        let coordinate: Vec<Coord> =
            (0..rank).map(|i| if i == mode { Coord::of(IntTuple::int(at.into())) } else { Coord::ALL }).collect();
        let Ok(host) = self.host.slice(&Coord::tuple(&coordinate).unwrap()) else { return self };
        let index = |i| (i == mode).then(|| number(at));
        let device = match rank {
            2 => self.device.slice([0, 1].map(index)),
            _ => self.device.slice([0, 1, 2].map(index)),
        };
        Both { host, device }
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Every element of the part holds its flat coordinate, and nothing else was written.
    #[test]
    fn parts_of_values_are_the_hosts(
        modes in modes(), swizzle in prop_oneof![Just((0i64, 0, 0)), Just((1, 2, 2)), Just((2, 0, 2)), Just((2, 1, 3))],
        steps in proptest::collection::vec(step(), 0..4), at_run_time: bool,
    ) {
        let swizzle = Swizzle::new(swizzle.0, swizzle.1, swizzle.2).unwrap();
        let map = Swizzled::new(swizzle, 0, layout(&modes));
        let mut expected = vec![POISON; 8192];
        let kernel = {
            let cells = std::cell::Cell::from_mut(&mut expected[..]).as_slice_of_cells();
            record("parts", Arch::Sm80, block(32), |k: &Builder| {
                let host = vec![0u32; 8192];
                let zero = k.param::<u32>("zero");
                let number = |at: u32| {
                    if at_run_time { Index::below(zero + at, at + 1) } else { Index::from(at) }
                };
                let out = k.global::<u32>("out");
                let host = TensorView::<u32, Swizzled>::with_layout(&host, map).unwrap();
                let mut both = Both { host, device: LayoutTensor::new(out, map) };
                for &step in &steps {
                    both = both.step(step, number);
                }
                let part = both.host.layout();
                k.when(k.tid().eq(0), || {
                    for i in 0..both.host.size() {
                        both.device.flat(Index::from(i as u32)).store(i as u32);
                        cells[part.at(i as i64) as usize].set(i as u32);
                    }
                });
            })
        };
        prop_assert_eq!(differences(&run(kernel, &[0], &[], 8192), &expected), []);
    }
}

/// The expected tensor of extents and strides known at run time: the host coordinates of its
/// elements.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Tile { extents: [u32; 2], at: u32 },
    Split { mode: usize, parts: u32, multiple: u32, at: u32 },
    Distribute { threads: [u32; 2], at: u32 },
    Permute,
}

fn cut() -> impl Strategy<Value = Cut> {
    prop_oneof![
        ([1u32..9, 1u32..9], 0u32..64).prop_map(|(extents, at)| Cut::Tile { extents, at }),
        (0usize..2, 1u32..5, 1u32..4, 0u32..8).prop_map(|(mode, parts, multiple, at)| Cut::Split {
            mode,
            parts,
            multiple,
            at
        }),
        ([1u32..5, 1u32..5], 0u32..64).prop_map(|(threads, at)| Cut::Distribute { threads, at }),
        Just(Cut::Permute),
    ]
}

/// The coordinates of a view, along each mode those of the tensor; what a tile lacks is `None`.
type Model = [Vec<Option<u32>>; 2];

fn cut_model(model: &Model, cut: Cut) -> Model {
    let length = |mode: usize| model[mode].len() as u32;
    let part = |mode: usize, start: u32, size: u32| -> Vec<Option<u32>> {
        (start..start + size).map(|i| model[mode].get(i as usize).copied().flatten()).collect()
    };
    match cut {
        Cut::Permute => [model[1].clone(), model[0].clone()],
        Cut::Tile { extents, at } => {
            [0, 1].map(|m| part(m, extents[m] * (at % length(m).div_ceil(extents[m])), extents[m]))
        }
        Cut::Split { mode, parts, multiple, at } => [0, 1].map(|m| {
            let size = length(m).div_ceil(parts).next_multiple_of(multiple);
            if m == mode { part(m, size * at, size) } else { model[m].clone() }
        }),
        Cut::Distribute { threads, at } => {
            let at = at % (threads[0] * threads[1]);
            let place = [at % threads[0], at / threads[0]];
            [0, 1].map(|m| {
                let rounds = length(m).div_ceil(threads[m]);
                (0..rounds).map(|i| model[m].get((place[m] + i * threads[m]) as usize).copied().flatten()).collect()
            })
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Tiles of extents and strides that the kernel is told: what is inside is written, what is not
    /// stays.
    #[test]
    fn masks_end_where_the_extents_do(
        extents in [1u32..20, 1u32..20], gap in 0u32..5, rows_first: bool, known: bool,
        cuts in proptest::collection::vec(cut(), 0..4),
    ) {
        let stride = if rows_first { extents[1] + gap } else { extents[0] + gap };
        let mut model: Model = extents.map(|extent| (0..extent).map(Some).collect());
        for &cut in &cuts {
            model = cut_model(&model, cut);
        }
        let flipped = cuts.iter().filter(|cut| matches!(cut, Cut::Permute)).count() % 2 == 1;
        let mut expected = vec![POISON; 1024];
        for (i, a) in model[0].iter().enumerate() {
            for (j, b) in model[1].iter().enumerate() {
                if let (Some(a), Some(b)) = (a, b) {
                    let (row, column) = if flipped { (b, a) } else { (a, b) };
                    let at = if rows_first { row * stride + column } else { column * stride + row };
                    expected[at as usize] = (i * 100 + j) as u32;
                }
            }
        }
        let kernel = record("masks", Arch::Sm80, block(32), |k: &Builder| {
            let told = ["m", "n", "stride"].map(|name| k.param::<u32>(name));
            let zero = k.param::<u32>("zero");
            let number = |i: usize, value: u32| if known { Index::from(value) } else { Index::any(told[i]) };
            let [m, n] = [0, 1].map(|i| number(i, extents[i]));
            let stride = number(2, stride);
            let modes = if rows_first { Modes::row_major([m, n], stride) } else { Modes::col_major([m, n], stride) };
            let mut tensor = LayoutTensor::new(k.global::<u32>("out"), modes);
            let mut lengths = extents;
            let mut shape: Model = extents.map(|extent| (0..extent).map(Some).collect());
            for &cut in &cuts {
                let count = |m: usize, size: u32| lengths[m].div_ceil(size);
                tensor = match cut {
                    Cut::Permute => tensor.permute([1, 0]),
                    Cut::Tile { extents, at } => {
                        tensor.clipped_tile(extents, [0, 1].map(|m| Index::any(zero + at % count(m, extents[m]))))
                    }
                    Cut::Split { mode, parts, multiple, at } => {
                        let split = Split { mode, parts: parts as usize, multiple: multiple as usize };
                        tensor.split(split, Index::any(zero + at))
                    }
                    Cut::Distribute { threads: counts, at } => {
                        let at = at % (counts[0] * counts[1]);
                        tensor.distribute_by(&threads(&counts), Index::any(zero + at))
                    }
                };
                shape = cut_model(&shape, cut);
                lengths = [shape[0].len() as u32, shape[1].len() as u32];
            }
            k.when(k.tid().eq(0), || {
                for i in 0..lengths[0] {
                    for j in 0..lengths[1] {
                        tensor.store([zero + i, zero + j].map(Index::any), k.lit(i * 100 + j));
                    }
                }
            });
        });
        let found = run(kernel, &[extents[0], extents[1], stride, 0], &[], 1024);
        prop_assert_eq!(differences(&found, &expected), []);
    }
}

#[test]
fn a_slice_of_three_modes_keeps_the_edge_of_what_was_sliced() {
    let kernel = record("slices", Arch::Sm80, block(32), |k| {
        let [a, b, c] = ["a", "b", "c"].map(|name| k.param::<u32>(name));
        let modes = Modes::new([a.into(), b.into(), c.into()], [100.into(), 10.into(), 1.into()]);
        let tensor = LayoutTensor::new(k.global::<u32>("out"), modes);
        // Slice 3 is beyond the edge; of slice 1 the second row of tiles has two rows.
        for at in [1u32, 3] {
            let matrix = tensor.slice([Some(at.into()), None, None]).clipped_tile([4, 4], [1.into(), 0.into()]);
            k.when(k.tid().lt(16), || {
                matrix.store([Index::thread(k) / 4, Index::thread(k) % 4], k.tid() + at * 1000);
            });
        }
    });
    let found = run(kernel, &[3, 6, 3], &[], 400);
    for (at, &word) in found.iter().enumerate() {
        let slice = at / 100;
        let row = at / 10 % 10;
        let column = at % 10;
        let written = slice == 1 && (4..6).contains(&row) && column < 3;
        let expected = if written { 1000 + (row - 4) * 4 + column } else { POISON as usize };
        assert_eq!(word as usize, expected, "{at}");
    }
}
