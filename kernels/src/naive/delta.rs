//! The gated delta rule of one head: token by token, and in chunks.

/// What a head is given: `[tokens, key_dim]` each of queries and keys, `[tokens, value_dim]` of
/// values, and of each token the logarithm of its decay and the strength of its change.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInputs<'a> {
    /// Queries.
    pub q: &'a [f64],
    /// Keys, of length 1.
    pub k: &'a [f64],
    /// Values.
    pub v: &'a [f64],
    /// Logarithms of decays, at most 0.
    pub decay: &'a [f64],
    /// Strengths, from 0 to 1.
    pub beta: &'a [f64],
}

impl DeltaInputs<'_> {
    fn dims(&self) -> [usize; 3] {
        let tokens = self.beta.len();
        [tokens, self.k.len() / tokens.max(1), self.v.len() / tokens.max(1)]
    }
}

/// Token by token: with `d` the exponential of a decay, the state `S`, `[key_dim, value_dim]`, becomes
/// `d S + k ⊗ β (v - (d S)ᵀ k)`, and the result is `Sᵀ q`. Gives `[tokens, value_dim]`.
pub fn delta_rule(inputs: DeltaInputs<'_>, state: &mut [f64]) -> Vec<f64> {
    let [tokens, key_dim, value_dim] = inputs.dims();
    let mut out = Vec::with_capacity(inputs.v.len());
    for token in 0..tokens {
        let [q, k] = [inputs.q, inputs.k].map(|x| &x[token * key_dim..][..key_dim]);
        let v = &inputs.v[token * value_dim..][..value_dim];
        state.iter_mut().for_each(|x| *x *= inputs.decay[token].exp());
        let seen = by_keys(k, state, value_dim);
        for (row, k) in state.chunks_exact_mut(value_dim).zip(k) {
            for ((state, v), seen) in row.iter_mut().zip(v).zip(&seen) {
                *state += k * inputs.beta[token] * (v - seen);
            }
        }
        out.extend(by_keys(q, state, value_dim));
    }
    out
}

/// In chunks of at most `chunk` tokens, which is what [`delta_rule`] gives but for rounding: products
/// of matrices in place of a change of the state for each token.
///
/// Within a chunk, with `D(t)` the product of the decays up to token `t`, the changes `u(t)` of the
/// state are `β(t) (v(t) - D(t) S₀ᵀ k(t) - Σ D(t)/D(s) (k(t)·k(s)) u(s))` over the tokens `s` before:
/// a triangular system, which is solved for `v` and for `k` (the WY form of a product of
/// reflections), so that `u = U - W S₀`. Yang, Kautz, Hatamizadeh: Gated Delta Networks, 2024,
/// section 3.3.
///
/// ```
/// use tilewright_kernels::naive::{DeltaInputs, delta_rule, delta_rule_in_chunks};
/// let [q, k, v] = [&[1.0, 0.5], &[1.0, 1.0], &[2.0, 4.0]];
/// let inputs = DeltaInputs { q, k, v, decay: &[0.0, -0.5], beta: &[1.0, 0.5] };
/// let [mut one, mut two] = [[0.0]; 2];
/// assert_eq!(delta_rule(inputs, &mut one)[0], 2.0);
/// let difference = delta_rule_in_chunks(inputs, 2, &mut two)[1] - delta_rule(inputs, &mut [0.0])[1];
/// assert!(difference.abs() < 1e-12 && (one[0] - two[0]).abs() < 1e-12);
/// ```
pub fn delta_rule_in_chunks(inputs: DeltaInputs<'_>, chunk: usize, state: &mut [f64]) -> Vec<f64> {
    let [tokens, key_dim, value_dim] = inputs.dims();
    let mut out = Vec::with_capacity(inputs.v.len());
    for first in (0..tokens).step_by(chunk) {
        let end = (first + chunk).min(tokens);
        let row = |x: &'_ [f64], dim: usize, token: usize| x[token * dim..][..dim].to_vec();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        // Logarithms of the products of decays.
        let sums: Vec<f64> = (first..end).map(|token| inputs.decay[first..=token].iter().sum()).collect();
        let between = |later: usize, earlier: usize| (sums[later - first] - sums[earlier - first]).exp();
        // The triangular system: rows of U and of W.
        let mut solved: Vec<[Vec<f64>; 2]> = Vec::new();
        for token in first..end {
            let k = row(inputs.k, key_dim, token);
            let mut own = [row(inputs.v, value_dim, token), k.iter().map(|k| k * sums[token - first].exp()).collect()];
            for (earlier, before) in (first..).zip(&solved) {
                let by = between(token, earlier) * dot(&k, &row(inputs.k, key_dim, earlier));
                for (own, before) in own.iter_mut().zip(before) {
                    own.iter_mut().zip(before).for_each(|(own, before)| *own -= by * before);
                }
            }
            own.iter_mut().flatten().for_each(|x| *x *= inputs.beta[token]);
            solved.push(own);
        }
        let change = |[u, w]: &[Vec<f64>; 2]| -> Vec<f64> {
            u.iter().zip(by_keys(w, state, value_dim)).map(|(u, seen)| u - seen).collect()
        };
        let changes: Vec<Vec<f64>> = solved.iter().map(change).collect();
        for token in first..end {
            let q = row(inputs.q, key_dim, token);
            let mut own: Vec<f64> =
                by_keys(&q, state, value_dim).iter().map(|x| x * sums[token - first].exp()).collect();
            for (earlier, change) in (first..=token).zip(&changes) {
                let by = between(token, earlier) * dot(&q, &row(inputs.k, key_dim, earlier));
                own.iter_mut().zip(change).for_each(|(own, change)| *own += by * change);
            }
            out.extend(own);
        }
        state.iter_mut().for_each(|x| *x *= sums[end - 1 - first].exp());
        for (token, change) in (first..end).zip(&changes) {
            let by = between(end - 1, token);
            for (row, k) in state.chunks_exact_mut(value_dim).zip(row(inputs.k, key_dim, token)) {
                row.iter_mut().zip(change).for_each(|(state, change)| *state += by * k * change);
            }
        }
    }
    out
}

/// `Sᵀ x`.
fn by_keys(x: &[f64], state: &[f64], value_dim: usize) -> Vec<f64> {
    let mut sum = vec![0.0; value_dim];
    for (row, x) in state.chunks_exact(value_dim).zip(x) {
        sum.iter_mut().zip(row).for_each(|(sum, state)| *sum += x * state);
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers of a bell around 0, or near one of its ends.
    fn numbers(count: usize) -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(-1.0..1.0f64, count)
    }

    /// From 0 to 1: anywhere, near an end, or at one.
    fn share() -> impl Strategy<Value = f64> {
        prop_oneof![0.0..1.0f64, 0.0..1e-9f64, (0.0..1e-9f64).prop_map(|x| 1.0 - x), Just(0.0), Just(1.0)]
    }

    prop_compose! {
        fn heads()(tokens in 1usize..150, key_dim in 1usize..9, value_dim in 1usize..7)(
            q in numbers(tokens * key_dim),
            k in numbers(tokens * key_dim),
            v in numbers(tokens * value_dim),
            beta in prop::collection::vec(share(), tokens),
            kept in prop::collection::vec(share(), tokens),
            state in numbers(key_dim * value_dim),
            key_dim in Just(key_dim),
        ) -> ([Vec<f64>; 5], Vec<f64>) {
            let unit = |key: &[f64]| {
                let length = key.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-3);
                key.iter().map(|x| x / length).collect::<Vec<f64>>()
            };
            let k = k.chunks(key_dim).flat_map(unit).collect();
            // The decay of a token keeps nothing of a state, all of it, or a part.
            let decay = kept.into_iter().map(|kept| kept.max(1e-300).ln()).collect();
            ([q, k, v, decay, beta], state)
        }
    }

    proptest! {
        #[test]
        fn chunks_of_any_size_give_what_tokens_one_by_one_give(head in heads(), chunk in 1usize..80) {
            let ([q, k, v, decay, beta], start) = head;
            let inputs = DeltaInputs { q: &q, k: &k, v: &v, decay: &decay, beta: &beta };
            let mut states = [start.clone(), start];
            let expected = delta_rule(inputs, &mut states[0]);
            let found = delta_rule_in_chunks(inputs, chunk, &mut states[1]);
            let near = |found: &[f64], expected: &[f64]| {
                let largest = expected.iter().fold(1.0f64, |most, x| most.max(x.abs()));
                found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= 1e-9 * largest)
            };
            prop_assert!(near(&found, &expected), "{found:?}\n{expected:?}");
            prop_assert!(near(&states[1], &states[0]));
        }
    }

    /// Without a decay and with whole changes, a key that comes again has the value that came with it
    /// last.
    #[test]
    fn a_key_that_comes_again_replaces_its_value() {
        let (k, v) = ([1.0, 0.0, 0.0, 1.0, 1.0, 0.0], [5.0, 7.0, 9.0]);
        let inputs = DeltaInputs { q: &k, k: &k, v: &v, decay: &[0.0; 3], beta: &[1.0; 3] };
        let mut state = [0.0; 2];
        assert_eq!(delta_rule(inputs, &mut state), [5.0, 7.0, 9.0]);
        assert_eq!(state, [9.0, 7.0]);
    }
}
