//! Parameters of flows, measured on what a model makes of a text.

use thiserror::Error;
use tilewright_graph::dim::ModelShape;

use super::Algorithm;
use crate::bind::Parameters;
use crate::error::{BindError, FlowErrors};

/// The activations of a layer's heads for a text.
#[derive(Clone, Copy, Debug)]
pub struct CalibrationSample<'a> {
    /// Rotated queries, `[tokens, key heads · group, head_dim]`.
    pub queries: &'a [f64],
    /// Rotated keys, `[tokens, key heads, head_dim]`.
    pub keys: &'a [f64],
}

/// Why parameters cannot be measured.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// Nothing to measure.
    #[error("flow `{flow}` has no parameters; it runs as it is")]
    None {
        /// The flow.
        flow: &'static str,
    },
    /// No queries and keys of the same tokens.
    #[error(
        "flow `{flow}` is calibrated on {queries} queries and {keys} keys; give both of the same tokens, at least one"
    )]
    Tokens {
        /// The flow.
        flow: &'static str,
        /// Tokens of the queries.
        queries: usize,
        /// Tokens of the keys.
        keys: usize,
    },
    /// An activation that is not a number.
    #[error("flow `{flow}`: a query or key of key head {head} is not a finite number; the weights are damaged")]
    NotFinite {
        /// The flow.
        flow: &'static str,
        /// The key head.
        head: usize,
    },
    /// A requirement of the flow that the model does not meet.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A flow that cannot be traced.
    #[error(transparent)]
    Flow(#[from] FlowErrors),
}

/// The activations of a key head: its group's queries and its keys, `head_dim` numbers each.
struct HeadActivations<'a> {
    queries: Vec<&'a [f64]>,
    keys: Vec<&'a [f64]>,
}

impl Algorithm {
    /// The parameters of a layer whose heads made this of a text.
    ///
    /// | flow | parameter | formula |
    /// |---|---|---|
    /// | `q-filter` | `filter [1, D]` | the direction `u` of the largest `Σ (q·u)²` over all queries of the group, `Σ q·u ≥ 0` |
    /// | `double-sparsity` | `channels [16, D]` | one-hot rows of the channels of the largest `Σ ∣q_c∣ · Σ ∣k_c∣`, in their order |
    ///
    /// ```
    /// use tilewright_flow::ModelShape;
    /// use tilewright_flow::algorithms::{CalibrationSample, named};
    /// let model = ModelShape { kv_heads: 1, group: 1, head_dim: 4, block_tokens: 16 };
    /// let seen = CalibrationSample { queries: &[0.0, 3.0, 0.0, 4.0], keys: &[1.0; 4] };
    /// let filter = &named("q-filter")?.calibrate(&model, seen)?["filter"];
    /// assert!(filter.iter().zip([0.0, 0.6, 0.0, 0.8]).all(|(found, expected)| (found - expected).abs() < 1e-9));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`CalibrateError`]: a flow without parameters; activations that are not of the model, or no
    /// numbers.
    pub fn calibrate(&self, model: &ModelShape, seen: CalibrationSample<'_>) -> Result<Parameters, CalibrateError> {
        let flow = self.name;
        let traced = self.trace()?;
        let extents = traced.extents(model)?;
        let (Some(declared), Some(&[rows, dim])) = (traced.declared.parameters.first(), extents.parameters.first())
        else {
            return Err(CalibrateError::None { flow });
        };
        let of_token = model.kv_heads * model.head_dim;
        let queries = seen.queries.len() / (of_token * model.group);
        let keys = seen.keys.len() / of_token;
        let is_whole = seen.queries.len() == queries * of_token * model.group && seen.keys.len() == keys * of_token;
        if queries == 0 || queries != keys || !is_whole {
            return Err(CalibrateError::Tokens { flow, queries, keys });
        }
        let mut values = Vec::with_capacity(model.kv_heads * rows * dim);
        for head in 0..model.kv_heads {
            let found = HeadActivations::of(model, seen, head);
            if !found.queries.iter().chain(&found.keys).all(|row| row.iter().all(|x| x.is_finite())) {
                return Err(CalibrateError::NotFinite { flow, head });
            }
            match rows {
                1 => values.extend(found.direction(dim)),
                _ => values.extend(found.channels(rows, dim)),
            }
        }
        Ok(Parameters::from([(declared.name.clone(), values)]))
    }
}

impl<'a> HeadActivations<'a> {
    fn of(model: &ModelShape, seen: CalibrationSample<'a>, head: usize) -> HeadActivations<'a> {
        let ModelShape { kv_heads, group, head_dim, .. } = *model;
        let queries = seen.queries.chunks_exact(head_dim).enumerate();
        let keys = seen.keys.chunks_exact(head_dim).enumerate();
        HeadActivations {
            queries: queries.filter(|(at, _)| at / group % kv_heads == head).map(|(_, row)| row).collect(),
            keys: keys.filter(|(at, _)| at % kv_heads == head).map(|(_, row)| row).collect(),
        }
    }

    /// The first right singular vector of the queries, by power iteration on `Σ q qᵀ`.
    fn direction(&self, dim: usize) -> Vec<f64> {
        /// Iterations at most: two directions that share the queries' energy are not told apart,
        /// and either will do.
        const MOST: usize = 2000;
        let mut moments = vec![0.0; dim * dim];
        for q in &self.queries {
            for (row, &x) in moments.chunks_exact_mut(dim).zip(*q) {
                row.iter_mut().zip(*q).for_each(|(sum, &y)| *sum += x * y);
            }
        }
        // A start that no direction is at right angles to, but by chance.
        let mut found = normal((0..dim).map(|i| 1.0 + (i * 37 % 101) as f64 / 101.0).collect());
        for _ in 0..MOST {
            let next = normal(moments.chunks_exact(dim).map(|row| dot(row, &found)).collect());
            let moved: f64 = next.iter().zip(&found).map(|(a, b)| (a - b).powi(2)).sum();
            found = next;
            if moved < 1e-24 {
                break;
            }
        }
        let sum: f64 = self.queries.iter().map(|q| dot(q, &found)).sum();
        if sum < 0.0 {
            found.iter_mut().for_each(|x| *x = -*x);
        }
        found
    }

    /// One-hot rows of the channels with the largest weights; rows after the last channel are 0.
    fn channels(&self, rows: usize, dim: usize) -> Vec<f64> {
        let size = |all: &[&[f64]], channel: usize| all.iter().map(|row| row[channel].abs()).sum::<f64>();
        let weights: Vec<f64> = (0..dim).map(|c| size(&self.queries, c) * size(&self.keys, c)).collect();
        let mut best: Vec<usize> = (0..dim).collect();
        best.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
        best.truncate(rows);
        best.sort_unstable();
        let mut values = vec![0.0; rows * dim];
        best.into_iter().enumerate().for_each(|(row, channel)| values[row * dim + channel] = 1.0);
        values
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A vector of length 1 in the direction of another; that itself where it has none.
fn normal(mut x: Vec<f64>) -> Vec<f64> {
    let norm = dot(&x, &x).sqrt();
    if norm > 0.0 {
        x.iter_mut().for_each(|x| *x /= norm);
    }
    x
}

#[cfg(test)]
mod tests {
    use super::super::named;
    use super::*;

    /// A model with two key heads of two query heads each.
    const MODEL: ModelShape = ModelShape { kv_heads: 2, group: 2, head_dim: 24, block_tokens: 16 };

    /// A linear congruence's numbers from -1 to 1.
    fn drawn(count: usize, seed: u64) -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / f64::from(1u32 << 23) - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_filter_is_the_direction_that_a_heads_queries_were_drawn_along() {
        let tokens = 60;
        let mut queries = drawn(tokens * 4 * 24, 3);
        let directions = [drawn(24, 8), drawn(24, 9)].map(normal);
        for (at, q) in queries.chunks_exact_mut(24).enumerate() {
            let along = 20.0 + (at % 7) as f64;
            q.iter_mut().zip(&directions[at / 2 % 2]).for_each(|(x, d)| *x = *x * 0.05 + along * d);
        }
        let keys = drawn(tokens * 2 * 24, 5);
        let seen = CalibrationSample { queries: &queries, keys: &keys };
        let found = named("q-filter").unwrap().calibrate(&MODEL, seen).unwrap().remove("filter").unwrap();
        for (found, direction) in found.chunks_exact(24).zip(&directions) {
            assert!((dot(found, found) - 1.0).abs() < 1e-12);
            // Not less than 1 by the square of the noise's share.
            assert!(dot(found, direction) > 0.999, "{}", dot(found, direction));
        }
    }

    #[test]
    fn channels_are_those_that_queries_and_keys_are_large_in() {
        let tokens = 9;
        let large = [2usize, 5, 7, 11, 23];
        let mut queries = drawn(tokens * 4 * 24, 1);
        let mut keys = drawn(tokens * 2 * 24, 2);
        for row in queries.chunks_exact_mut(24) {
            large.iter().for_each(|&channel| row[channel] += 50.0);
        }
        // A channel that the keys are 0 in counts for nothing, however large the queries are.
        keys.chunks_exact_mut(24).for_each(|row| row[7] = 0.0);
        let seen = CalibrationSample { queries: &queries, keys: &keys };
        let found = named("double-sparsity").unwrap().calibrate(&MODEL, seen).unwrap().remove("channels").unwrap();
        assert_eq!(found.len(), 2 * 16 * 24);
        for head in found.chunks_exact(16 * 24) {
            let ones: Vec<usize> = head.chunks_exact(24).filter_map(|row| row.iter().position(|&x| x == 1.0)).collect();
            assert_eq!((head.iter().sum::<f64>(), ones.len()), (16.0, 16));
            assert!(ones.is_sorted() && !ones.contains(&7), "{ones:?}");
            assert!(large.iter().filter(|channel| **channel != 7).all(|channel| ones.contains(channel)), "{ones:?}");
        }
    }

    #[test]
    fn what_cannot_be_measured_is_said() {
        let calibrate = |name, queries: &[f64], keys: &[f64]| {
            named(name).unwrap().calibrate(&MODEL, CalibrationSample { queries, keys }).unwrap_err().to_string()
        };
        assert!(calibrate("quest", &[1.0; 96], &[1.0; 48]).contains("has no parameters"));
        assert!(calibrate("q-filter", &[1.0; 96], &[1.0; 96]).contains("1 queries and 2 keys"));
        assert!(calibrate("q-filter", &[], &[]).contains("at least one"));
        let mut queries = [1.0; 96];
        queries[50] = f64::NAN;
        assert!(calibrate("q-filter", &queries, &[1.0; 48]).contains("key head 1 is not a finite number"));
    }
}
