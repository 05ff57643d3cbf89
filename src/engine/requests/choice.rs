//! The choice of a token by the host, from its logits: penalties and log probabilities, which a
//! device's sampler lacks.

use std::collections::HashMap;

use tilewright_kernels::naive::sample;

use super::processor::Processor;
use super::submission::{Logprobs, Submission, Token};

/// The choice of a request's tokens.
pub struct Chooser {
    /// What is asked.
    pub submission: Submission,
    processor: Option<Processor>,
}

/// Why no token was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unchosen {
    /// A logit is NaN, or none is finite.
    NotANumber,
    /// The request's own processor says so.
    Processor(String),
}

impl Chooser {
    /// The choice of a request that has no new token.
    pub fn new(submission: Submission) -> Chooser {
        let processor = submission.processor.as_ref().map(|hook| hook.begin());
        Chooser { submission, processor }
    }

    /// Chooses the next token of a sequence whose tokens are `tokens`, the first `prompt` of them the
    /// prompt's.
    ///
    /// # Errors
    /// A logit is not a number, or the processor lets no token follow.
    pub fn choose(&mut self, tokens: &[u32], prompt: usize, logits: &[f32]) -> Result<Token, Unchosen> {
        if !is_usable(logits) {
            return Err(Unchosen::NotANumber);
        }
        let Chooser { submission, processor } = self;
        let step = (tokens.len() - prompt) as u64;
        let sampling = &submission.sampling.checked();
        let row = submission.row;
        let id = match submission.changes_logits() {
            false => sample(logits, sampling, step, row),
            true => {
                let mut changed = logits.to_vec();
                punish(submission, tokens, prompt, &mut changed);
                if let Some(processor) = processor {
                    processor.process(&tokens[prompt..], &mut changed).map_err(Unchosen::Processor)?;
                    if changed.iter().all(|&logit| logit == f32::NEG_INFINITY) {
                        return Err(Unchosen::Processor(NOTHING_FOLLOWS.to_owned()));
                    }
                }
                if submission.drops_unlikely() {
                    drop_unlikely(&mut changed, submission.min_p, sampling.temperature());
                }
                if !is_usable(&changed) {
                    return Err(Unchosen::NotANumber);
                }
                sample(&changed, sampling, step, row)
            }
        };
        let id = id.ok_or(Unchosen::NotANumber)?;
        let logprobs = submission.logprobs.map(|count| logprobs(logits, id, count));
        Ok(Token { id: id as u32, logprobs, prompt: Vec::new() })
    }
}

impl Chooser {
    /// Sets the bits of the tokens that may follow a sequence's, whose processor is a mask; none
    /// where another one is.
    ///
    /// # Errors
    /// No token may follow.
    pub fn mask(&mut self, tokens: &[u32], prompt: usize, mask: &mut [u32]) -> Result<(), Unchosen> {
        let Some(Processor::Mask(rule)) = &mut self.processor else { return Ok(()) };
        rule.allow(&tokens[prompt..], mask).map_err(Unchosen::Processor)?;
        match mask.iter().all(|&word| word == 0) {
            true => Err(Unchosen::Processor(NOTHING_FOLLOWS.to_owned())),
            false => Ok(()),
        }
    }
}

/// Why a request ends whose processor excludes all tokens.
const NOTHING_FOLLOWS: &str = "it lets no token follow";

/// Whether a token can be chosen from logits: none is NaN, and the largest is finite. Some may be
/// −∞.
pub fn is_usable(logits: &[f32]) -> bool {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    largest.is_finite() && !logits.iter().any(|x| x.is_nan())
}

/// Changes the logits as the request's penalties say.
fn punish(submission: &Submission, tokens: &[u32], prompt: usize, logits: &mut [f32]) {
    let penalties = &submission.penalties;
    if penalties.repetition != 1.0 {
        let mut seen: Vec<u32> = tokens.to_vec();
        seen.sort_unstable();
        seen.dedup();
        for token in seen {
            if let Some(x) = logits.get_mut(token as usize) {
                *x = if *x > 0.0 { *x / penalties.repetition } else { *x * penalties.repetition };
            }
        }
    }
    if penalties.presence != 0.0 || penalties.frequency != 0.0 {
        let mut counts: HashMap<u32, f32> = HashMap::new();
        tokens[prompt..].iter().for_each(|&token| *counts.entry(token).or_default() += 1.0);
        for (token, count) in counts {
            if let Some(x) = logits.get_mut(token as usize) {
                *x -= penalties.presence + penalties.frequency * count;
            }
        }
    }
    for &(token, bias) in &submission.bias {
        if let Some(x) = logits.get_mut(token as usize) {
            *x += bias;
        }
    }
    let repeated = repeated(tokens, penalties.no_repeat);
    let is_early = tokens.len() - prompt < submission.ends.min_new_tokens;
    let ends = if is_early { &submission.ends.tokens[..] } else { &[] };
    for &token in submission.suppressed.iter().chain(&repeated).chain(ends) {
        if let Some(x) = logits.get_mut(token as usize) {
            *x = f32::NEG_INFINITY;
        }
    }
}

/// Drops the tokens whose probability at that temperature is less than `min_p` of the likeliest's.
fn drop_unlikely(logits: &mut [f32], min_p: f32, temperature: f32) {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let least = largest + min_p.ln() * temperature;
    logits.iter_mut().filter(|x| **x < least).for_each(|x| *x = f32::NEG_INFINITY);
}

/// Tokens that would complete an n-gram of length `run` that the sequence already contains.
fn repeated(tokens: &[u32], run: usize) -> Vec<u32> {
    let Some(before) = run.checked_sub(1) else { return Vec::new() };
    let Some(last) = tokens.len().checked_sub(before).map(|from| &tokens[from..]) else { return Vec::new() };
    tokens.windows(run).filter(|window| window[..before] == *last).map(|window| window[before]).collect()
}

/// The log probabilities of a token and of the likeliest ones.
pub fn logprobs(logits: &[f32], chosen: usize, count: usize) -> Logprobs {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - most).exp()).sum();
    let log = |id: usize| (f64::from(logits[id] - most) - sum.ln()) as f32;
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let likelier = |&a: &usize, &b: &usize| logits[b].total_cmp(&logits[a]).then(a.cmp(&b));
    let count = count.min(order.len());
    if count > 0 && count < order.len() {
        order.select_nth_unstable_by(count - 1, likelier);
    }
    order.truncate(count);
    order.sort_unstable_by(likelier);
    Logprobs { chosen: log(chosen), top: order.into_iter().map(|id| (id as u32, log(id))).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::super::request::Request;
    use super::super::super::sampling::Sampling;
    use super::super::processor::{LogitsHook, LogitsProcessor};
    use super::super::submission::{EndTokens, Penalties};
    use super::*;

    fn choose(submission: &Submission, tokens: &[u32], prompt: usize, logits: &[f32]) -> Option<Token> {
        Chooser::new(submission.clone()).choose(tokens, prompt, logits).ok()
    }

    fn submission(penalties: Penalties) -> Submission {
        let request = Request { prompt_ids: vec![0], max_new_tokens: 9 };
        Submission { penalties, ..Submission::from(request) }
    }

    fn chosen(penalties: Penalties, tokens: &[u32], prompt: usize, logits: &[f32]) -> u32 {
        choose(&submission(penalties), tokens, prompt, logits).expect("a token").id
    }

    #[test]
    fn repetition_divides_positive_logits_and_multiplies_negative_ones_of_prompt_and_text() {
        let twice = Penalties { repetition: 2.0, ..Penalties::NONE };
        assert_eq!(chosen(twice, &[0, 2], 1, &[3.0, 1.4, 2.9]), 0);
        assert_eq!(chosen(twice, &[0, 2], 1, &[3.0, 1.6, 2.9]), 1);
        assert_eq!(chosen(twice, &[0], 1, &[-1.0, -1.9]), 1);
        assert_eq!(chosen(twice, &[0], 1, &[-1.0, -2.1]), 0);
    }

    #[test]
    fn presence_and_frequency_count_the_new_text_alone() {
        let present = Penalties { presence: 1.0, ..Penalties::NONE };
        assert_eq!(chosen(present, &[0, 0], 2, &[1.5, 1.0]), 0);
        assert_eq!(chosen(present, &[0, 0], 1, &[1.5, 1.0]), 1);
        let often = Penalties { frequency: 0.3, ..Penalties::NONE };
        assert_eq!(chosen(often, &[5, 0], 1, &[1.5, 1.0]), 0);
        assert_eq!(chosen(often, &[5, 0, 0], 1, &[1.5, 1.0]), 1);
    }

    #[test]
    fn no_run_comes_twice_and_suppressed_tokens_never() {
        let pairs = Penalties { no_repeat: 2, ..Penalties::NONE };
        assert_eq!(chosen(pairs, &[1, 2, 1], 3, &[0.0, 1.0, 5.0]), 1);
        let single = Penalties { no_repeat: 1, ..Penalties::NONE };
        assert_eq!(chosen(single, &[2, 1], 1, &[0.0, 1.0, 5.0]), 0);
        let longer = Penalties { no_repeat: 4, ..Penalties::NONE };
        assert_eq!(chosen(longer, &[1, 2], 1, &[0.0, 1.0, 5.0]), 2);
        let never = Submission { suppressed: vec![2, 900], ..submission(Penalties::NONE) };
        assert_eq!(choose(&never, &[1], 1, &[0.0, 1.0, 5.0]).expect("a token").id, 1);
    }

    #[test]
    fn a_bias_is_added_after_penalties_and_changes_no_log_probability() {
        let asked = Submission { bias: vec![(0, 4.5), (900, 1.0)], logprobs: Some(1), ..submission(Penalties::NONE) };
        let token = choose(&asked, &[1], 1, &[0.0, 1.0, 4.0]).expect("a token");
        assert_eq!((token.id, token.logprobs.expect("asked for").top[0].0), (0, 2));
        let forbidden = Submission { bias: vec![(2, -100.0)], ..submission(Penalties::NONE) };
        assert_eq!(choose(&forbidden, &[1], 1, &[0.0, 1.0, 4.0]).expect("a token").id, 1);
    }

    #[test]
    fn a_processor_sees_the_new_tokens_and_changes_the_choice() {
        struct Next;
        impl LogitsProcessor for Next {
            fn process(&mut self, new: &[u32], logits: &mut [f32]) -> Result<(), String> {
                let allowed = new.last().map_or(1, |last| last + 1) as usize;
                (0..logits.len()).filter(|&id| id != allowed).for_each(|id| logits[id] = f32::NEG_INFINITY);
                if new.len() == 3 { Err("three are enough".into()) } else { Ok(()) }
            }
        }
        let processor = Some(LogitsHook::new(|| Box::new(Next)));
        let mut chooser = Chooser::new(Submission { processor, ..submission(Penalties::NONE) });
        let mut choose = |tokens: &[u32]| chooser.choose(tokens, 1, &[9.0, 1.0, 2.0]).map(|token| token.id);
        assert_eq!([choose(&[0]), choose(&[0, 1])], [Ok(1), Ok(2)]);
        assert_eq!(choose(&[0, 1, 2]), Err(Unchosen::Processor("it lets no token follow".into())));
        assert_eq!(choose(&[0, 1, 2, 0]), Err(Unchosen::Processor("three are enough".into())));
    }

    #[test]
    fn tokens_less_likely_than_min_p_of_the_likeliest_are_not_drawn() {
        let sampling = Sampling::default().temperature(2.0);
        let asked = Submission { min_p: 0.5, sampling, ..submission(Penalties::NONE) };
        // At temperature 2 the second is e^-0.5 = 0.61 as likely as the first, the third 0.37.
        let drawn = |row| choose(&Submission { row, ..asked.clone() }, &[0], 1, &[3.0, 2.0, 1.0]).expect("a token").id;
        let drawn: Vec<u32> = (0..200).map(drawn).collect();
        assert!(drawn.contains(&0) && drawn.contains(&1) && !drawn.contains(&2));
    }

    #[test]
    fn no_token_that_ends_a_request_is_chosen_before_its_least_tokens() {
        let ends = EndTokens { tokens: vec![2], min_new_tokens: 2, ..EndTokens::default() };
        let asked = Submission { ends, ..submission(Penalties::NONE) };
        let chosen = |tokens: &[u32]| choose(&asked, tokens, 1, &[0.0, 1.0, 4.0]).expect("a token").id;
        assert_eq!((chosen(&[0]), chosen(&[0, 1]), chosen(&[0, 1, 1])), (1, 1, 2));
    }

    #[test]
    fn log_probabilities_are_those_of_the_softmax() {
        let asked = Submission { logprobs: Some(2), ..submission(Penalties::NONE) };
        let token = choose(&asked, &[0], 1, &[1.0, 3.0, 2.0]).expect("a token");
        let found = token.logprobs.expect("asked for");
        let sum = 1f32.exp() + 2f32.exp() + 3f32.exp();
        assert_eq!((token.id, found.top[0].0, found.top[1].0, found.top.len()), (1, 1, 2, 2));
        assert!((found.chosen - (3.0 - sum.ln())).abs() < 1e-6 && found.top[0].1 == found.chosen);
        assert!((found.top[1].1 - (2.0 - sum.ln())).abs() < 1e-6);
    }

    #[test]
    fn logits_that_are_not_numbers_or_all_infinite_give_no_token() {
        let plain = submission(Penalties::NONE);
        for wrong in [[f32::INFINITY, 1.0], [f32::NEG_INFINITY; 2], [f32::INFINITY; 2]] {
            assert_eq!(choose(&plain, &[0], 1, &wrong), None, "{wrong:?}");
        }
        assert_eq!(choose(&plain, &[0], 1, &[f32::NEG_INFINITY, 1.0]).map(|token| token.id), Some(1));
        let none_left = Submission { suppressed: vec![0, 1], ..plain.clone() };
        assert_eq!(choose(&none_left, &[0], 1, &[2.0, 1.0]), None, "every token is suppressed");
        assert_eq!(choose(&submission(Penalties::NONE), &[0], 1, &[f32::NAN, 1.0]), None);
    }
}
