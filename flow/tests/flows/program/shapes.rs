//! Flows on a simulated device in other shapes: heads, groups, blocks, shares of a sequence, splits
//! of the scores.

use tilewright_flow::program::Phase;
use tilewright_flow::trace;

use super::device::{Both, CUT, Cut, Given, traced};

/// Rows of 64 and 128 dimensions are dealt to several lanes, and lie swizzled in the pools; larger
/// blocks, shares of a sequence.
#[test]
fn flows_of_other_shapes_agree_with_the_reference() {
    let cuts = [
        ("quest", Cut { head_dim: 64, page_tokens: 64, seed: 3, ..CUT }),
        ("gqa-h2o", Cut { rows: 1, head_dim: 128, page_tokens: 16, seed: 4, ..CUT }),
        ("lserve", Cut { block_tokens: 32, page_tokens: 64, context: 640, seed: 5, ..CUT }),
        ("block-sparse", Cut { budget: (1, 0.6, 0, 3), context: 640, seed: 6, ..CUT }),
        ("moba", Cut { head_dim: 24, rows: 3, budget: (7, 0.0, 2, 1), seed: 7, ..CUT }),
    ];
    for (name, cut) in cuts {
        let mut both = Both::new(traced(name), Phase::Decode, cut);
        let context = cut.context as i32;
        let block = cut.block_tokens as i32;
        for position in [context / 2 + block - 1, context - block - 1] {
            let positions: Vec<i32> = (0..cut.rows as i32).map(|row| position - 17 * row).collect();
            both.check(&positions);
            both.check_fields(name);
        }
    }
}

/// Fields that come through the ring: stages of several pages, of more than are looked up together,
/// and of a part of a page.
#[test]
fn fields_that_are_streamed_agree_with_the_reference() {
    let cuts = [
        ("quest", Cut { head_dim: 32, page_tokens: 16, seed: 91, ..CUT }),
        ("block-sparse", Cut { head_dim: 64, page_tokens: 32, seed: 92, ..CUT }),
        ("quest", Cut { head_dim: 128, page_tokens: 128, rows: 1, seed: 93, ..CUT }),
        ("block-sparse", Cut { head_dim: 32, rows: 1, context: 33_600, seed: 95, ..CUT }),
        ("masked-quest", Cut { head_dim: 64, page_tokens: 128, budget: (4, 0.0, 3, 1), context: 640, seed: 94, ..CUT }),
    ];
    for (name, cut) in cuts {
        let mut both = Both::new(traced(name), Phase::Decode, cut);
        assert_eq!(both.device.plan().opcodes.iter().filter(|opcode| opcode.fills()).count(), 1, "{name}");
        let last = cut.context as i32 - 1;
        // Of the longest rows scores are stored in several turns. Pages lie anywhere, then one
        // after the other.
        for positions in [[last, last - 16], [170, -1], [last - 40, 60]] {
            both.check(&positions[..cut.rows]);
            both.table.sort_unstable();
        }
    }
}

/// Scores in several splits of a row, of which the last have fewer candidates or none; more in a
/// split than its threads, or not.
#[test]
fn selections_of_split_scores_agree_with_the_reference() {
    for (name, seed) in [("block-sparse", 71), ("quest", 72)] {
        // As many splits as have 64 blocks each.
        let cut = Cut { rows: 1, context: 3072, sms: 8, budget: (5, 0.0, 1, 1), seed, ..CUT };
        let mut both = Both::new(traced(name), Phase::Decode, cut);
        assert_eq!(both.splits(0), 3);
        for position in [3071, 16 * 12, 16 * 9 + 3, 2000] {
            both.check(&[position]);
        }
    }
}

/// More candidates than there is room for where many are equal, in several splits and in one; more
/// than threads keep.
#[test]
fn selections_of_long_rows_are_exact_for_any_scores() {
    for (context, sms) in [(8000, 8), (8000, 3), (67_200, 3)] {
        let cut = Cut { rows: 1, context, sms, budget: (6, 0.0, 1, 1), seed: 81, ..CUT };
        let mut both = Both::new(trace(&Given).expect("a flow without errors"), Phase::Decode, cut);
        for (round, kinds) in [10, 2, 1].into_iter().enumerate() {
            both.draw_scores(round as u64, kinds);
            both.check(&[context as i32 - 1 - 16 * round as i32]);
        }
    }
}

/// Groups of more query heads than an atom has columns for, as sums of products of one field, of
/// two and after a mask.
#[test]
fn groups_of_more_than_four_heads_agree_with_the_reference() {
    let cuts = [
        ("quest", Cut { group: 5, head_dim: 64, seed: 61, ..CUT }),
        ("quest", Cut { group: 8, head_dim: 128, rows: 1, seed: 62, ..CUT }),
        ("gqa-block-sparse", Cut { group: 8, head_dim: 64, seed: 63, ..CUT }),
        ("masked-quest", Cut { group: 7, head_dim: 32, rows: 1, seed: 64, ..CUT }),
    ];
    for (name, cut) in cuts {
        let mut both = Both::new(traced(name), Phase::Decode, cut);
        both.check(&[223, 160][..cut.rows]);
    }
}
