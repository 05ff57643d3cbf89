//! Indices beyond the extents of a tensor: the simulator names tensor, mode, index, extent and the
//! author's line.

use tilewright_codegen::build::{Builder, Global, Ptr, Val, block, record};
use tilewright_codegen::ir::{Arch, Const};
use tilewright_codegen::sim::{self, Arg, FaultKind, Launch, Memory, Outcome};
use tilewright_codegen::verify::verify;
use tilewright_kernels::tile::{Index, LayoutTensor, Modes, RegisterTensor};
use tilewright_layout::typed::{Contiguous, RowMajor, Swizzle, Swizzled};
use tilewright_layout::{Layout, Tiler};

/// The parameters of a kernel under test: the number `n` and a buffer of 4096 words.
#[derive(Clone, Copy)]
struct Given<'k> {
    k: &'k Builder,
    n: Val<'k, u32>,
    x: Ptr<'k, Global, f32>,
}

/// Runs a kernel of one warp; the fault that it makes.
fn fault(n: u32, body: impl Fn(Given<'_>)) -> Option<sim::Fault> {
    let kernel = record("strayed", Arch::Sm80, block(32), |k| {
        let n = k.param("n");
        let x = k.global("x");
        body(Given { k, n, x });
    });
    let verified = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
    let mut memory = Memory::new();
    let x = memory.upload("x", &vec![0u32; 4096]);
    let args = vec![Arg::Scalar(Const::u32(n)), Arg::Ptr(x)];
    match sim::run(&verified, &Launch::new([1, 1, 1], args), &mut memory, 3).expect("it launches") {
        Outcome::Fault(fault) => Some(*fault),
        Outcome::Finished(_) => None,
    }
}

/// A strayed index: tensor, mode, index, extent. The line is one of this file.
fn strayed(n: u32, body: impl Fn(Given<'_>)) -> Option<(String, u32, u32, u32)> {
    let fault = fault(n, body)?;
    let FaultKind::IndexOutOfBounds { tensor, mode, index, extent, src } = fault.kind.clone() else {
        panic!("{fault}")
    };
    assert!(src.file().ends_with("bounds.rs") && fault.at.src.file().ends_with("bounds.rs"), "{fault}");
    Some((tensor, mode, index, extent))
}

/// A typed matrix in global memory, read at a column known at run time: column 8 would be the next
/// row's first element.
#[test]
fn column_eight_of_eight_is_reported_with_tensor_mode_and_extent() {
    let body = |Given { k, n, x }: Given<'_>| {
        let x = LayoutTensor::new(x, RowMajor::<8, 8>::default());
        k.when(k.lane().eq(0), || x.at([0.into(), 1.into()]).store(x.load([3.into(), n.into()])));
    };
    assert_eq!(strayed(8, body), Some(("(8,8):(8,1)".into(), 1, 8, 8)));
    assert_eq!(strayed(7, body), None);
    let text = fault(9, body).expect("a fault").to_string();
    assert!(text.contains("index out of bounds in kernel strayed"), "{text}");
    assert!(
        text.contains("index 9 of mode 1 of (8,8):(8,1), whose extent is 8, at kernels/tests/tile/bounds.rs:"),
        "{text}"
    );
}

/// Shared memory: index 64 of one allocation would be the next allocation's first element.
#[test]
fn index_sixty_four_of_a_shared_run_is_reported_before_it_reads_the_next_allocation() {
    let body = |Given { k, n, x }: Given<'_>| {
        let run = LayoutTensor::<f32, Contiguous<64>, _>::shared(k, "run");
        let next = k.shared::<f32>("next", 64);
        next.at(k.lane()).store(1.0f32);
        run.at([Index::lane(k)]).store(2.0f32);
        k.barrier();
        x.at(k.lane()).store(run.at([n.into()]).load());
    };
    assert_eq!(strayed(64, body), Some(("`run` 64:1".into(), 0, 64, 64)));
    assert_eq!(strayed(5, body), None);
}

/// An index that its author promised to be below a bound, and is not.
#[test]
fn a_false_promise_of_a_bound_is_reported() {
    let body = |Given { k, n, x }: Given<'_>| {
        let x = LayoutTensor::new(x, RowMajor::<8, 8>::default());
        k.when(k.lane().eq(0), || x.store([Index::below(n, 8), 0.into()], k.lit(1.0f32)));
    };
    assert_eq!(strayed(8, body), Some(("(8,8):(8,1)".into(), 0, 8, 8)));
    assert_eq!(strayed(7, body), None);
}

/// Tiles, threads, rows, columns, slices and flat places are bounded as elements are.
#[test]
fn parts_of_a_tensor_are_bounded_too() {
    type Matrix = Swizzled<Swizzle<3, 2, 3>, RowMajor<32, 32>>;
    type Access = for<'k> fn(Ptr<'k, Global, f32>, Index<'k>);
    let cases: [(u32, u32, Access); 7] = [
        (4, 4, |x, n| matrix(x).tile::<8, 32>([n, 0.into()]).at([1.into(), 1.into()]).store(1.0f32)),
        (8, 8, |x, n| matrix(x).distribute::<RowMajor<4, 2>>(n).at([0.into(), 0.into()]).store(1.0f32)),
        (32, 32, |x, n| matrix(x).row(n).at([1.into()]).store(1.0f32)),
        (32, 32, |x, n| matrix(x).column(n).at([1.into()]).store(1.0f32)),
        (1024, 1024, |x, n| matrix(x).flat(n).store(1.0f32)),
        (4, 4, |x, n| {
            let tiler = Tiler::by_mode(&[Tiler::extent(8), Tiler::extent(32)]).expect("a tiler");
            value(x).tile_by(&tiler, [n, 0.into()]).at([1.into(), 1.into()]).store(1.0f32);
        }),
        (32, 32, |x, n| value(x).slice([Some(n), None]).at([1.into()]).store(1.0f32)),
    ];
    fn matrix(x: Ptr<'_, Global, f32>) -> LayoutTensor<'_, f32, Matrix, Global> {
        LayoutTensor::new(x, Matrix::default())
    }
    fn value(x: Ptr<'_, Global, f32>) -> LayoutTensor<'_, f32, Layout, Global> {
        LayoutTensor::new(x, Layout::parse("(32,32):(32,1)").expect("a layout"))
    }
    for (number, (index, extent, part)) in cases.into_iter().enumerate() {
        let body = |Given { k, n, x }: Given<'_>| k.when(k.lane().eq(0), || part(x, n.into()));
        let found = strayed(index, body);
        assert_eq!(found.map(|(_, _, index, extent)| (index, extent)), Some((index, extent)), "case {number}");
        assert_eq!(strayed(index - 1, body), None, "case {number}");
    }
}

/// Lanes that do not make the access are not checked, and an address that is computed before a
/// guard is none.
#[test]
fn guarded_accesses_are_not_reported() {
    let body = |Given { k, n, x }: Given<'_>| {
        let x = LayoutTensor::new(x, Contiguous::<8>::default());
        let place = x.at([Index::from(k.lane())]);
        k.when(k.lane().lt(n), || place.store(1.0f32));
    };
    assert_eq!(strayed(8, body), None);
    assert_eq!(strayed(10, body), Some(("8:1".into(), 0, 8, 8)));
}

/// The PTX of a kernel with bounds is that of the same addresses without.
#[test]
fn bounds_emit_nothing() {
    let text = |bounded: bool| {
        let kernel = record("same", Arch::Sm90a, block(32), |k| {
            let n = k.param::<u32>("n");
            let x = k.global::<f32>("x");
            let tensor = LayoutTensor::new(x, Contiguous::<64>::default());
            let place = if bounded { tensor.at([n.into()]) } else { x.at(n) };
            k.when(n.lt(64), || place.store(1.0f32));
        });
        tilewright_codegen::ptx::emit(&verify(kernel).unwrap_or_else(|errors| panic!("{errors}")))
    };
    assert_eq!(text(true), text(false));
}

/// A masked maximum of negative numbers: the zeros beyond the edge are refused, a fill of −∞ gives
/// the right answer.
#[test]
fn a_masked_load_into_a_maximum_wants_a_fill() {
    let largest = |fill: Option<f32>| {
        record("largest", Arch::Sm80, block(32), |k| {
            let n = k.param::<u32>("n");
            let x = k.global::<f32>("x");
            let tile = LayoutTensor::new(x, Modes::contiguous_run(n)).clipped_tile([32], [0.into()]);
            let mine = match fill {
                Some(fill) => tile.load_or([k.lane().into()], fill),
                None => tile.load([k.lane().into()]) * 2.0,
            };
            let all = mine.warp_reduce(|a, b| a.max(b));
            let out = k.global::<f32>("out");
            k.when(k.lane().eq(0), || out.store(all));
        })
    };
    let errors = verify(largest(None)).expect_err("zeros would enter").to_string();
    assert!(errors.contains("maximum or minimum of a masked load"), "{errors}");
    assert!(errors.contains("load_or") && errors.contains("bounds.rs"), "{errors}");

    let numbers: Vec<u32> = (0..20).map(|i| (-3.0 - i as f32).to_bits()).collect();
    let found = crate::run(largest(Some(f32::NEG_INFINITY)), &[20], &[&numbers], 1);
    assert_eq!(f32::from_bits(found[0]), -3.0);
}

/// Sums, clamps and registers with a fill are as they were; a minimum over registers is refused as
/// a maximum is.
#[test]
fn only_reductions_by_order_want_a_fill() {
    type Four = Contiguous<4>;
    let verified = |body: fn(LayoutTensor<'_, f32, Modes<'_, 1>, Global>)| {
        let kernel = record("four", Arch::Sm80, block(32), |k| {
            let x = LayoutTensor::new(k.global::<f32>("x"), Modes::contiguous_run(k.param::<u32>("n")));
            body(x.clipped_tile([4], [k.block_id().into()]));
        });
        verify(kernel).map(drop).map_err(|errors| errors.to_string())
    };
    assert_eq!(
        verified(|x| {
            let four = RegisterTensor::<f32, Four>::load_from(x);
            let sum = (1..4).fold(four.get([0]), |sum, i| sum + four.get([i]));
            x.builder().global::<f32>("out").store(sum.max(0.0f32));
        }),
        Ok(())
    );
    assert_eq!(
        verified(|x| {
            let four = RegisterTensor::<f32, Four>::load_or(x, f32::INFINITY);
            let least = (1..4).fold(four.get([0]), |least, i| least.min(four.get([i])));
            x.builder().global::<f32>("out").store(least);
        }),
        Ok(())
    );
    let errors = verified(|x| {
        let four = RegisterTensor::<f32, Four>::load_from(x);
        let least = (1..4).fold(four.get([0]), |least, i| least.min(four.get([i])));
        x.builder().global::<f32>("out").store(least);
    });
    assert!(errors.expect_err("zeros would enter").contains("maximum or minimum of a masked load"));
}

/// Offsets of layouts have 32 bits: a view that they do not reach is refused, and constants beyond
/// 2³¹ bytes do not wrap.
#[test]
fn views_beyond_32_bits_are_refused_and_large_constants_do_not_wrap() {
    let verified = |rows: i64| {
        let kernel = record("wide", Arch::Sm80, block(32), |k| {
            let layout = Layout::parse(&format!("({rows},65536):(65536,1)")).expect("a layout");
            let x = LayoutTensor::new(k.global::<f32>("x"), layout);
            x.at([(rows as u32 - 1).into(), 7.into()]).store(1.0f32);
        });
        verify(kernel).map_err(|errors| errors.to_string())
    };
    let errors = verified(65537).map(drop).expect_err("it is refused");
    assert!(errors.contains("offsets of layouts have 32 bits") && errors.contains("bounds.rs"), "{errors}");
    // The last row of 2^32 elements begins 17,179,607,040 bytes into the tensor.
    let text = tilewright_codegen::ptx::emit(&verified(65536).expect("it is accepted"));
    assert!(text.contains("17179607068") || text.contains("17179607040"), "{text}");
}
