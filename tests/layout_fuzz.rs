//! Fuzzing of layout expressions: bytes, mutants of a stored corpus, and a grammar.
//!
//! Whatever the text is, it is read or refused, evaluated or refused, within a bound of time and
//! size. `TILEWRIGHT_LONG=1` tries 50 times as many. A text that fails belongs into
//! `tests/corpus/layout_expressions.txt`.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use tilewright::algebra::expression::Parsed;
use tilewright::algebra::{LayoutValue, Mistake, evaluate, locate};
use tilewright::layout::Composed;

const CORPUS: &str = include_str!("corpus/layout_expressions.txt");

/// The longest that an evaluation may take on a machine under load.
const PATIENCE: Duration = Duration::from_secs(20);

fn config() -> ProptestConfig {
    let long = std::env::var("TILEWRIGHT_LONG").is_ok_and(|value| value == "1");
    ProptestConfig::with_cases(if long { 100_000 } else { 2_000 })
}

/// Holds a text to what every text is promised; `true` where it has a value.
fn holds(text: &str) -> Result<bool, String> {
    let start = Instant::now();
    let outcome = locate(text);
    if start.elapsed() > PATIENCE {
        return Err(format!("{text:?} took {:?}", start.elapsed()));
    }
    if let Ok(parsed) = Parsed::new(text) {
        let printed = parsed.expression.to_string();
        let again =
            Parsed::new(&printed).map_err(|mistake| format!("{text:?} printed {printed:?}: {}", mistake.refusal))?;
        if again.expression != parsed.expression {
            return Err(format!("{text:?} printed {printed:?}, which is another expression"));
        }
    }
    match outcome {
        Ok(value) => reads_back(text, &value).map(|()| true),
        Err(mistake) => points(text, &mistake).map(|()| false),
    }
}

/// A value prints in the notation, and evaluates to itself.
fn reads_back(text: &str, value: &LayoutValue) -> Result<(), String> {
    let printed = value.to_string();
    let plain = !matches!(value, LayoutValue::Bool(_) | LayoutValue::Word(_))
        && !printed.contains("true")
        && !printed.contains("false");
    match evaluate(&printed) {
        Ok(again) if again == *value || again.to_string() == printed || again == simplified(value) => Ok(()),
        Ok(again) => Err(format!("{text:?} = {printed}, which evaluates to {again}")),
        // The smallest integer has no notation of its own; nor has a list deeper than an
        // expression.
        Err(_) if !plain || printed.contains("-9223372036854775808") || printed.contains("((((((((") => Ok(()),
        Err(refusal) => Err(format!("{text:?} = {printed}, which is refused: {refusal}")),
    }
}

/// A value as the notation is read: a swizzle that changes nothing is left out.
fn simplified(value: &LayoutValue) -> LayoutValue {
    match value {
        LayoutValue::Swizzled(swizzled) => {
            Composed::new(swizzled.swizzle(), swizzled.start(), swizzled.layout()).into()
        }
        value => value.clone(),
    }
}

/// A refusal is one line, and its excerpt the expression with carets beneath that are not wider.
fn points(text: &str, mistake: &Mistake) -> Result<(), String> {
    let line = mistake.refusal.to_string();
    if line.is_empty() || line.contains('\n') {
        return Err(format!("{text:?} is refused with {line:?}"));
    }
    let Some(excerpt) = mistake.excerpt() else { return Ok(()) };
    let lines: Vec<&str> = excerpt.lines().collect();
    let [shown, carets] = lines[..] else { return Err(format!("{text:?}: the excerpt {excerpt:?} has not two lines")) };
    let width = |line: &str| line.chars().count();
    let marks = carets.trim_start();
    let fits = !marks.is_empty() && marks.chars().all(|mark| mark == '^') && width(carets) <= width(shown).max(2) + 1;
    if fits && width(shown) <= 104 { Ok(()) } else { Err(format!("{text:?}: the excerpt {excerpt:?}")) }
}

fn lines() -> Vec<&'static str> {
    CORPUS.lines().collect()
}

/// Operations that the corpus names.
fn names() -> Vec<String> {
    let words = |line: &'static str| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut names: Vec<String> = lines()
        .into_iter()
        .flat_map(words)
        .filter(|word| word.contains('_') && word.len() > 2)
        .map(str::to_owned)
        .collect();
    names.extend(
        ["coalesce", "filter", "complement", "upcast", "downcast", "append", "slice", "zip", "index"]
            .map(str::to_owned),
    );
    names.sort();
    names.dedup();
    names
}

/// A line of the corpus with bytes changed, removed and inserted, or the head of one with the tail
/// of another.
fn mutant() -> impl Strategy<Value = String> {
    let line = || prop::sample::select(lines());
    let edits = prop::collection::vec(
        (any::<prop::sample::Index>(), 0u8..4, prop::sample::select(b"(),:_o-0123456789S<> \xff".to_vec())),
        0..6,
    );
    (line(), line(), any::<prop::sample::Index>(), any::<bool>(), edits).prop_map(|(one, other, cut, splice, edits)| {
        let mut bytes = one.as_bytes().to_vec();
        if splice {
            bytes.truncate(cut.index(bytes.len() + 1));
            bytes.extend_from_slice(&other.as_bytes()[cut.index(other.len() + 1)..]);
        }
        for (place, kind, byte) in edits {
            let at = place.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                2 if at < bytes.len() => drop(bytes.remove(at)),
                _ => {}
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Sentences of the grammar: most are read, many have a value.
fn sentence() -> impl Strategy<Value = String> {
    let number =
        prop_oneof![12 => 0i64..9, 2 => -4i64..40, 1 => any::<i64>(), 1 => (0u32..63).prop_map(|bit| 1i64 << bit)];
    let extents = prop::collection::vec(prop_oneof![8 => 1i64..7, 1 => 0i64..100], 1..4);
    let layout =
        (extents, prop::collection::vec(number.clone(), 4), any::<bool>()).prop_map(|(shape, strides, int)| {
            let join = |values: &[i64]| values.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
            match int && shape.len() == 1 {
                true => format!("{}:{}", shape[0], strides[0]),
                false => format!("({}):({})", join(&shape), join(&strides[..shape.len()])),
            }
        });
    let swizzle = (0i64..5, 0i64..5, -4i64..5).prop_map(|(bits, base, shift)| format!("S<{bits},{base},{shift}>"));
    let leaf = prop_oneof![
        6 => layout,
        4 => number.prop_map(|number| number.to_string()),
        1 => swizzle,
        1 => prop::sample::select(vec!["_", "()", "LayoutRight", "K_SW64"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let items = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            6 => (prop::sample::select(names()), items()).prop_map(|(name, items)| format!("{name}({})", items.join(", "))),
            3 => items().prop_map(|items| items.join(" o ")),
            2 => items().prop_map(|items| format!("({})", items.join(","))),
        ]
    })
}

#[test]
fn the_corpus_is_read_or_refused() {
    let values = lines().into_iter().filter(|line| holds(line).unwrap_or_else(|broken| panic!("{broken}"))).count();
    assert!(values > 30 && values < lines().len() - 10, "{values} values");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        holds(&String::from_utf8_lossy(&bytes)).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn mutants_of_the_corpus_are_read_or_refused(text in mutant()) {
        holds(&text).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn sentences_of_the_grammar_are_read_or_refused(text in sentence()) {
        holds(&text).map_err(TestCaseError::fail)?;
    }
}

/// The grammar reaches values often enough to test their operations.
#[test]
fn sentences_of_the_grammar_have_values() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, TestRunner};
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let values = (0..500)
        .filter(|_| {
            let text = sentence().new_tree(&mut runner).expect("a sentence").current();
            holds(&text).unwrap_or_else(|broken| panic!("{broken}"))
        })
        .count();
    assert!(values >= 50, "{values} of 500 have a value");
}
