//! PTX of representative copies: vector widths, predicates, addresses; what a hand would write.

use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::ptx;
use tilewright_codegen::verify::verify;
use tilewright_kernels::tile::{Index, LayoutTensor, Modes, ThreadGroup, copy};
use tilewright_layout::typed::{KMajor, OperandTile, RowMajor};

fn body(build: impl FnOnce(&Builder)) -> String {
    instructions(record("body", Arch::Sm80, block(128), build))
}

/// The instructions of a kernel, without its declarations.
pub fn instructions(kernel: Kernel) -> String {
    let text = ptx::emit(&verify(kernel).unwrap_or_else(|errors| panic!("{errors}")));
    let lines = text.split_once("{\n").map_or("", |(_, body)| body).lines();
    let told = |line: &&str| !line.trim_start().starts_with('.') && !line.trim().is_empty();
    lines.filter(told).collect::<Vec<_>>().join("\n")
}

pub fn count(text: &str, word: &str) -> usize {
    text.lines().filter(|line| line.contains(word)).count()
}

type Tile = OperandTile<KMajor, 16, 64, 64>;

/// Rows that the kernel is told of, 64 bf16 each, to a swizzled tile: 16 bytes a `cp.async`, a
/// predicate a row.
#[test]
fn an_edged_tile_by_cp_async() {
    let text = body(|k| {
        let [rows, stride] = ["rows", "stride"].map(|name| k.param::<u32>(name));
        let x = k.global::<half::bf16>("x");
        let x = LayoutTensor::new(x, Modes::row_major([rows.into(), 64.into()], stride).vectors(8));
        let tile = LayoutTensor::<half::bf16, Tile, _>::shared(k, "tile");
        ThreadGroup::block(k).copy_async(x.clipped_tile([64, 64], [k.block_id().into(), 0.into()]), tile);
        k.cp_async_commit();
    });
    assert_eq!(
        (count(&text, "cp.async.cg"), count(&text, "setp"), count(&text, "div"), count(&text, "rem")),
        (4, 4, 0, 0)
    );
    insta::assert_snapshot!(text);
}

/// Whole tiles of a typed layout: vectors of 16 bytes by loads and stores, and no predicate.
#[test]
fn a_whole_tile_by_words() {
    let text = body(|k| {
        let x = LayoutTensor::new(k.global::<half::bf16>("x"), RowMajor::<256, 64>::default());
        let tile = LayoutTensor::<half::bf16, Tile, _>::shared(k, "tile");
        ThreadGroup::block(k).copy(x.tile::<64, 64>([Index::below(k.block_id(), 4), 0.into()]), tile);
    });
    assert_eq!((count(&text, "ld.global.v4"), count(&text, "st.shared.v4"), count(&text, "setp")), (4, 4, 0));
    insta::assert_snapshot!(text);
}

/// A thread's vectors, dealt by a thread layout in the type.
#[test]
fn vectors_dealt_by_a_type() {
    let text = body(|k| {
        let x = LayoutTensor::new(k.global::<f32>("x"), RowMajor::<16, 64>::default());
        let tile = LayoutTensor::<f32, RowMajor<16, 64>, _>::shared(k, "tile");
        let thread = Index::thread(k);
        copy(
            x.vectorize::<1, 4>().distribute::<RowMajor<8, 16>>(thread),
            tile.vectorize::<1, 4>().distribute::<RowMajor<8, 16>>(thread),
        );
    });
    assert_eq!((count(&text, "ld.global.v4"), count(&text, "st.shared.v4")), (2, 2));
    insta::assert_snapshot!(text);
}

/// A row of run-time length, a part of it for each turn of the block: one predicate, one addition
/// and one load a turn.
#[test]
fn a_row_of_told_length() {
    let text = body(|k| {
        let n = k.param::<u32>("n");
        let x = LayoutTensor::new(k.global::<f32>("x"), Modes::contiguous_run(n).vectors(4));
        let sum = k.var(0.0f32);
        x.parts_along(0, 512).each(|part, _| {
            let four = part.vectorize::<0, 4>().load([Index::thread(k)]);
            sum.set(four.into_iter().fold(sum.get(), |sum, x| sum + x));
        });
        k.global::<f32>("y").at(k.tid()).store(sum.get());
    });
    assert_eq!((count(&text, "ld.global.v4"), count(&text, "div"), count(&text, "rem")), (1, 0, 0));
    insta::assert_snapshot!(text);
}
