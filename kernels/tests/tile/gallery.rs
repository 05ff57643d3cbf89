//! PTX of the gallery's copies: vector widths, predicates, and nothing divided in a loop.

use crate::text::{count, instructions};
use tilewright_codegen::ir::{Arch, ArithOp, Inst, Kernel, StmtKind};
use tilewright_kernels::gallery;

fn recorded(name: &str) -> Kernel {
    let kernels = gallery::shipped();
    kernels.iter().find(|kernel| kernel.name() == name).expect("a kernel of the gallery").record(Arch::Sm90a)
}

/// Quotients and rests in the bodies of loops.
fn divided_in_loops(kernel: &Kernel) -> usize {
    let mut found = 0;
    kernel.walk(&mut |stmt| {
        if let StmtKind::For { body, .. } | StmtKind::Loop { body } = &stmt.op {
            let mut bodies = vec![body];
            while let Some(body) = bodies.pop() {
                for stmt in body {
                    match &stmt.op {
                        StmtKind::Inst(Inst::Arith(ArithOp::Div { .. } | ArithOp::Rem { .. })) => found += 1,
                        StmtKind::If { then, otherwise, .. } => bodies.extend([then, otherwise]),
                        StmtKind::For { body, .. } | StmtKind::Loop { body } => bodies.push(body),
                        StmtKind::Inst(_) | StmtKind::Break => {}
                    }
                }
            }
        }
    });
    found
}

#[test]
fn nothing_is_divided_in_a_loop() {
    let kernels = gallery::shipped();
    assert!(kernels.len() >= 10, "{}", kernels.len());
    for kernel in kernels {
        assert_eq!(divided_in_loops(&kernel.record(Arch::Sm90a)), 0, "{}", kernel.name());
    }
}

/// Words that a text has, by number.
fn counts<const N: usize>(text: &str, words: [&str; N]) -> [usize; N] {
    words.map(|word| count(text, word))
}

/// Four loads and four stores of 16 bytes, rows that the grid has and no more.
#[test]
fn unit_rows() {
    let text = instructions(recorded("unit_rows"));
    assert_eq!(counts(&text, ["ld.global.v4", "st.global.v4", "ld.global", "st.global", "div"]), [4, 4, 4, 4, 0]);
    // A thread's place among 4×32: its warp and its lane.
    assert_eq!(counts(&text, ["shr.u32", "and.b32"]), [1, 1]);
    insta::assert_snapshot!(text);
}

/// Two vectors in and two out, two exponents a row; rows are combined by two rounds of shuffles for
/// the largest and two for the sum.
#[test]
fn expert_weights() {
    let text = instructions(recorded("expert_weights"));
    assert_eq!(counts(&text, ["ld.global.v2", "st.global.v2", "ld.global", "st.global"]), [2, 2, 2, 2]);
    assert_eq!(counts(&text, ["shfl.sync.bfly", "ex2.approx"]), [8, 4]);
}

/// Fetches a box and stores its elements: a store, a load and a predicate for each of the 256
/// elements of a tile, by 128 threads.
#[test]
fn channels_first() {
    let text = instructions(recorded("channels_first"));
    assert_eq!(counts(&text, ["cp.async.bulk.tensor.5d", "st.global", "ld.shared"]), [1, 2, 2]);
    insta::assert_snapshot!(text);
}

/// Eight masked loads of a column a turn, one reduction.
#[test]
fn split_sums() {
    let text = instructions(recorded("split_sums"));
    assert_eq!(counts(&text, ["cp.reduce.async.bulk.global", "ld.global", "st.shared"]), [1, 8, 1]);
    insta::assert_snapshot!(text);
}

/// 16 bytes of a matrix a turn.
#[test]
fn batch_sums() {
    let text = instructions(recorded("batch_sums"));
    assert_eq!(
        counts(&text, ["cp.reduce.async.bulk.tensor.2d", "ld.global.v4", "ld.global", "st.shared.v4"]),
        [1, 1, 1, 1]
    );
    insta::assert_snapshot!(text);
}

/// 64 rows of 128 bytes a stage and an operand: four `cp.async` of 16 bytes a thread, for two
/// stages before the loop and one in it.
#[test]
fn gemm_tf32() {
    let text = instructions(recorded("gemm_tf32"));
    // Four steps of K: two fragments of A and four of B, two B fragments an `ldmatrix`.
    assert_eq!(counts(&text, ["cp.async.cg", "ldmatrix", "mma.sync"]), [3 * 2 * 4, 4 * (2 + 2), 4 * 2 * 4]);
    assert_eq!(counts(&text, ["ld.global", "st.shared"]), [0, 0]);
}

/// Rows that are told, promised in vectors of four: one `cp.async` of 16 bytes a thread,
/// zero-filled by a predicate; four vectors to registers, and four out of them, masked by their
/// rows.
#[test]
fn copies() {
    let text = instructions(recorded("copies"));
    assert_eq!(counts(&text, ["cp.async.cg", "ld.shared.v4", "st.global.v4", "ld.global"]), [1, 4, 4, 0], "{text}");
    insta::assert_snapshot!(text);
}
