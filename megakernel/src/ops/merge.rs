//! The merge of the splits of attention, which a product applies to its input.

use crate::oracle::{Context, Done};
use crate::program::{BufferId, Span};

/// Appends the merged splits of some heads of a row, `[heads, head_dim]`: with `M = max_s m_s` and
/// `w_s = exp(m_s − M)` (0 where `l_s = 0`), `Σ_s w_s·acc[r, h, s, d] / Σ_s w_s·l_s`; 0 where no
/// split has tokens.
pub(crate) fn merge(on: &Context, acc: BufferId, stats: BufferId, row: usize, span: Span, out: &mut Vec<f32>) -> Done {
    let [_, heads, splits, dim] = on.shape(acc)?;
    let mut part = Vec::new();
    for head in span.iter() {
        let at = (row * heads + head) * splits;
        let stats = on.read(stats, at * 2, splits * 2)?;
        let stats = stats.as_chunks::<2>().0;
        let max = stats.iter().fold(f32::NEG_INFINITY, |max, &[m, _]| if m > max { m } else { max });
        let first = out.len();
        out.resize(first + dim, 0.0);
        let mut sum = 0.0;
        for (split, &[m, l]) in stats.iter().enumerate().filter(|(_, [_, l])| *l != 0.0) {
            let weight = (m - max).exp();
            sum += weight * l;
            part.clear();
            on.read_onto(acc, (at + split) * dim, dim, &mut part)?;
            for (out, acc) in out[first..].iter_mut().zip(&part) {
                *out += weight * acc;
            }
        }
        if sum != 0.0 {
            out[first..].iter_mut().for_each(|out| *out /= sum);
        }
    }
    Ok(())
}
