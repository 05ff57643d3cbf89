//! Masks of one's own against a loop, by both prefill kernels, on random lengths; a mask that
//! shows a tile whole, or hides it, where that is wrong is found.

use half::bf16;
use outside::masks::{ALIBI, DOCUMENTS, PREFIX_LM, WINDOW, prefill, record};
use proptest::prelude::*;
use tilewright::codegen::device::sim;
use tilewright::codegen::trial::{Bound, Draw, Expected, Trial};
use tilewright::codegen::verify::verify;
use tilewright::kernels::attention::{AttentionMask, CustomMask};
use tilewright::kernels::kv::Tma;
use tilewright::testing::extents;

const DEPTH: usize = 64;
const HEADS: usize = 2;

/// A mask, and what it reads.
#[derive(Clone, Copy, Debug)]
enum Masked {
    PrefixLm(u32),
    Documents,
    Window(u32),
    Alibi,
}

struct Problem {
    masked: Masked,
    queries: usize,
    tokens: usize,
    hopper: bool,
    seed: u64,
}

impl Problem {
    /// The trial with a mask in place of the right one, if there is one.
    fn trial(&self, instead: Option<CustomMask<'_>>) -> Trial {
        let &Problem { masked, queries, tokens, hopper, seed } = self;
        let kernel = match masked {
            Masked::PrefixLm(_) => prefill(false).mask(instead.unwrap_or(PREFIX_LM)),
            Masked::Documents => prefill(false).mask(instead.unwrap_or(DOCUMENTS)),
            Masked::Window(_) => prefill(true).mask(instead.unwrap_or(WINDOW)),
            Masked::Alibi => prefill(true).custom(ALIBI),
        };
        let mut draw = Draw::new(seed);
        let [q, keys, values] = [queries, tokens, tokens].map(|rows| draw.floats(HEADS * rows * DEPTH, bf16::from_f64));
        let mut document = 0;
        let documents = std::iter::repeat_with(|| {
            document += u32::from(draw.between(0..=39) == 0);
            document
        });
        let documents: Vec<u32> = documents.take(tokens).collect();
        let slopes = [0.0625f32, 0.25];

        let scale = 1.0 / (DEPTH as f64).sqrt();
        let mut expected = Vec::new();
        for (head, query) in (0..HEADS).flat_map(|head| (0..queries).map(move |query| (head, query))) {
            let row = |of: &[bf16], rows: usize, at: usize| -> Vec<f64> {
                of[(head * rows + at) * DEPTH..][..DEPTH].iter().map(|x| x.to_f64()).collect()
            };
            let position = query + tokens - queries;
            let (mut sum, mut out) = (0.0, vec![0.0; DEPTH]);
            for token in 0..tokens {
                let seen = match masked {
                    Masked::PrefixLm(prefix) => token < prefix as usize || token <= position,
                    Masked::Documents => documents[token] == documents[position],
                    Masked::Window(width) => token <= position && token + width as usize > position,
                    Masked::Alibi => token <= position,
                };
                if !seen {
                    continue;
                }
                let dot: f64 = row(&q, queries, query).iter().zip(row(&keys, tokens, token)).map(|(a, b)| a * b).sum();
                let bias = if let Masked::Alibi = masked { f64::from(slopes[head]) } else { 0.0 };
                let weight = (dot * scale - bias * (position as f64 - token as f64)).exp();
                sum += weight;
                out.iter_mut().zip(row(&values, tokens, token)).for_each(|(out, value)| *out += weight * value);
            }
            expected.extend(out.into_iter().map(|out| out / sum));
        }

        let rows = if hopper { kernel.hopper_rows() } else { 64 };
        let tiles = (queries as u32).div_ceil(rows);
        let recorded = verify(record(&kernel, hopper)).expect("a legal kernel");
        let mut trial = Trial::new(recorded, [tiles * HEADS as u32, 1, 1])
            .note(format!("{masked:?}, {queries} queries, {tokens} tokens, seed {seed}"));
        let inputs = [("q", &q, queries, 64), ("keys", &keys, tokens, 128), ("values", &values, tokens, 128)]
            .map(|(name, numbers, rows, tile)| (trial.input(name, numbers), rows as u32, tile));
        let starts = [("query_starts", queries), ("token_starts", tokens)];
        let starts = starts.map(|(name, rows)| trial.input(name, &[0, rows as u32]));
        // Values are at most 1: a weight is rounded to bf16, and so is the result.
        let bound = Bound { absolute: 3.0 * 2f64.powi(-8), relative: 0.0 };
        let out = trial.output("out", Expected::near::<bf16>(&expected, bound));
        for (buffer, rows, tile) in inputs {
            let map = || Tma::map(DEPTH as u32, [rows, HEADS as u32], [DEPTH as u32, rows * DEPTH as u32], tile, false);
            trial = if hopper { trial.map(buffer, map()) } else { trial.pass(buffer) };
        }
        trial = trial.pass(starts[0]).pass(starts[1]).pass(starts[1]).pass(0u32).pass((tokens * DEPTH) as u32);
        trial = trial.pass(tiles).pass(HEADS as u32).pass(1u32).pass((scale * std::f64::consts::LOG2_E) as f32);
        let trial = trial.pass(out);
        match masked {
            Masked::PrefixLm(number) | Masked::Window(number) => trial.pass(number),
            Masked::Documents => with(trial, "documents", &documents),
            Masked::Alibi => with(trial, "slopes", &slopes),
        }
    }
}

fn with<T: tilewright::codegen::trial::TrialElement>(mut trial: Trial, name: &str, numbers: &[T]) -> Trial {
    let buffer = trial.input(name, numbers);
    trial.pass(buffer)
}

fn masked() -> impl Strategy<Value = Masked> {
    prop_oneof![
        (0u32..300).prop_map(Masked::PrefixLm),
        Just(Masked::Documents),
        (1u32..300).prop_map(Masked::Window),
        Just(Masked::Alibi),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn masks_show_what_the_loop_sees(
        masked in masked(), queries in extents::extent(64, 150), more in 0u32..260, hopper: bool, seed: u64,
    ) {
        let (queries, tokens) = (queries as usize, (queries + more) as usize);
        let trial = Problem { masked, queries, tokens, hopper, seed }.trial(None);
        let outcome = trial.run(&sim::open(seed)).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(outcome.is_right(), "{}", outcome);
    }
}

/// The mask with another answer for tiles.
macro_rules! planted {
    ($mask:ident, $at:ident, $seen:ident, $answer:expr) => {
        CustomMask(&|k| {
            let AttentionMask { tile, sees } = $mask.0(k);
            let tile = Box::new(move |$at| {
                let mut $seen = tile($at);
                $answer;
                $seen
            });
            AttentionMask { tile, sees }
        })
    };
}

#[test]
fn planted_answers_for_tiles_are_found() {
    // A tile is said to be seen whole if some of it is; only to the last query; never to be seen
    // from its last token on.
    let whole = planted!(WINDOW, at, seen, seen.all = seen.any);
    let late = planted!(PREFIX_LM, at, seen, seen.all |= at.last_token.le(at.last_query));
    let hidden = planted!(DOCUMENTS, at, seen, seen.any &= at.last_query.ne(at.last_token));
    for (masked, mask) in [(Masked::Window(90), whole), (Masked::PrefixLm(20), late), (Masked::Documents, hidden)] {
        for hopper in [false, true] {
            let problem = Problem { masked, queries: 200, tokens: 300, hopper, seed: 1 };
            let right = problem.trial(None).run(&sim::open(0)).expect("a launch");
            assert!(right.is_right(), "{right}");
            let wrong = problem.trial(Some(mask)).run(&sim::open(0)).expect("a launch");
            assert!(!wrong.is_right(), "{masked:?}, {hopper}: nothing was found");
        }
    }
}
