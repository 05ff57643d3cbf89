//! Iterators visit what the host's visit, count without dividing, and end where a run-time extent
//! does.

use crate::{POISON, differences, run};
use proptest::prelude::*;
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, ArithOp, Inst, Kernel, StmtKind};
use tilewright_kernels::tile::{Index, LayoutTensor, Modes};
use tilewright_layout::typed::RowMajor;
use tilewright_layout::view::{Along, TensorView};

/// Quotients and rests that a kernel has.
fn divisions(kernel: &Kernel) -> usize {
    let mut count = 0;
    kernel.walk(&mut |stmt| {
        if let StmtKind::Inst(Inst::Arith(ArithOp::Div { .. } | ArithOp::Rem { .. })) = &stmt.op {
            count += 1;
        }
    });
    count
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The block's parts of a row, 32 elements each but the last: each element becomes the index of
    /// its part's begin.
    #[test]
    fn parts_along_a_told_extent(extent in 0u32..300, step in 1u32..4, first in 0u32..3, size in prop_oneof![Just(32u32), Just(24)]) {
        let kernel = record("parts", Arch::Sm80, block(32), |k| {
            let n = k.param::<u32>("n");
            let x = LayoutTensor::new(k.global::<u32>("out"), Modes::contiguous_run(n));
            let mine = Index::thread(k);
            x.parts_along(0, size).from(first.into()).every(step).each(|part, at| {
                k.when(k.tid().lt(size), || part.store([mine], at.get(k)));
            });
        });
        prop_assert_eq!(divisions(&kernel), 0);
        let mut expected = vec![POISON; 400];
        for start in (first * size..extent).step_by((step * size) as usize) {
            (start..(start + size).min(extent)).for_each(|i| expected[i as usize] = start);
        }
        prop_assert_eq!(differences(&run(kernel, &[extent], &[], 400), &expected), []);
    }

    /// A walk in a circle is the host's.
    #[test]
    fn parts_in_a_circle(extent in 1usize..40, size in 1usize..10, turns in 1u32..20) {
        let kernel = record("circle", Arch::Sm80, block(32), |k| {
            let n = k.param::<u32>("n");
            let x = LayoutTensor::new(k.global::<u32>("out"), Modes::row_major([n.into(), 2.into()], 2u32));
            let ring = x.parts_along(0, size as u32).circular().start();
            k.for_(0, turns, |turn| {
                k.when(k.tid().eq(0), || ring.here().store([0.into(), 1.into()], turn));
                ring.advance();
            });
        });
        let mut expected = vec![POISON; 80];
        let numbers: Vec<u32> = (0..80).collect();
        let host = TensorView::<u32, tilewright_layout::Layout>::with_layout(
            &numbers,
            tilewright_layout::Layout::parse(&format!("({extent},2):(2,1)")).unwrap(),
        ).unwrap();
        for (turn, part) in host.parts_along(0, size).unwrap().circular().take(turns as usize).enumerate() {
            expected[*part.get([0, 1]).unwrap() as usize] = turn as u32;
        }
        prop_assert_eq!(differences(&run(kernel, &[extent as u32], &[], 80), &expected), []);
    }

    #[test]
    fn tiles_by_steps_and_to_a_told_end(end in 0u32..=6, step in 1u32..4) {
        let kernel = record("tiles", Arch::Sm80, block(32), |k| {
            let end = k.param::<u32>("end");
            let tensor = LayoutTensor::new(k.global::<u32>("out"), RowMajor::<6, 12>::default());
            tensor.tiles_along::<3, 2>(k, Along::Columns, 1.into()).until(end).every(step).each(|tile, number| {
                k.when(k.tid().eq(0), || tile.at([2.into(), 1.into()]).store(number.get(k)));
            });
        });
        prop_assert_eq!(divisions(&kernel), 0);
        let mut expected = vec![POISON; 72];
        (0..end).step_by(step as usize).for_each(|tile| expected[(5 * 12 + tile * 2 + 1) as usize] = tile);
        prop_assert_eq!(differences(&run(kernel, &[end], &[], 72), &expected), []);
    }
}
