//! Words and numbers of a report.

use crate::results::PeerKind;

/// Rounds to a number of significant digits, without an exponent where one can be avoided.
pub fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    // The exponent of what is left after rounding: 9.9999 is 10.0.
    let scientific = format!("{value:.*e}", (digits - 1).max(0) as usize);
    let magnitude: i32 = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    if !(-4..9).contains(&magnitude) {
        return scientific;
    }
    let step = 10f64.powi(digits - 1 - magnitude);
    let rounded = (value * step).round() / step;
    format!("{rounded:.*}", (digits - 1 - magnitude).max(0) as usize)
}

/// The name of a peer kind in headings of means.
pub fn kind_name(kind: PeerKind) -> &'static str {
    match kind {
        PeerKind::Library => "vendor libraries",
        PeerKind::Eager => "PyTorch, eager",
        PeerKind::Compiled => "PyTorch, torch.compile",
    }
}

/// A suite's heading, and a sentence on what its times are; suites that are not listed have their
/// name only.
pub fn suite_title(suite: &str) -> (String, &'static str) {
    let titles = [
        ("decode", "Decode", "Time of one decode step of the whole model: one token for each sequence of the batch."),
        ("prefill", "Prefill", "Time from a prompt's tokens to the logits of its last token, batch 1."),
        ("attention", "Attention kernels", "One launch: 32 query heads, 8 key/value heads for decode, bf16."),
        ("gemv", "GEMV", "Products of a packed bf16 matrix (rows × columns) and a batch of vectors."),
        ("gemm", "GEMM, bf16", "Products of m × n × k, f32 accumulation, bf16 result."),
        ("gemm e4m3", "GEMM, e4m3", "Products of m × n × k, e4m3 factors, sums promoted to f32 every 128 of k."),
        ("gemm e4m3 fast", "GEMM, e4m3 with fast accumulation", "Products of m × n × k, e4m3 factors."),
        ("gemm e4m3 blocks", "GEMM, e4m3 by blocks", "Products of m × n × k, scales of 1 × 128 and 128 × 128 factors."),
        ("gemm grouped", "Grouped GEMM, bf16", "Products of m × n × k for each group of rows."),
        ("gemm s8", "GEMM, s8", "Products of m × n × k, 8-bit integer factors."),
        ("gemm w4a16", "GEMM, 4-bit weights", "Products of m × n × k, weights dequantised in the kernel."),
        ("gemm w8a16", "GEMM, 8-bit weights", "Products of m × n × k, weights dequantised in the kernel."),
        ("gemm awq", "GEMM, AWQ weights", "Products of m × n × k, weights dequantised in the kernel."),
        ("gemm fp8 weights", "GEMM, fp8 weights", "Products of m × n × k, weights dequantised in the kernel."),
        ("sample", "Sampling", "One launch that chooses a token for each row of logits."),
        ("speculate", "Speculation", "Time per token of one sequence, with and without proposed tokens."),
        ("requests", "Many requests", "Time per step while requests arrive and leave."),
        (
            "python decode",
            "Decode from Python",
            "One token of a transformers Llama, by ops on its tensors and by plans.",
        ),
        (
            "candle decode",
            "Decode from candle",
            "One token of candle-transformers' Llama, with and without tilewright's ops.",
        ),
        ("python ops", "Ops from Python", "One call in a CUDA graph of 50."),
        ("host", "Host", "Work of the CPU: layouts, lowering, validation, the simulator."),
    ];
    let known = titles.iter().find(|(name, _, _)| *name == suite);
    known.map_or_else(|| (suite.to_owned(), ""), |(_, title, about)| ((*title).to_owned(), *about))
}

/// Order of suites: what a user waits for first, then kernels, then everything else.
pub fn suite_rank(suite: &str) -> usize {
    let order = ["decode", "prefill", "attention", "gemv", "gemm"];
    order.iter().position(|known| *known == suite).unwrap_or(order.len() + usize::from(!suite.starts_with("gemm")))
}

#[cfg(test)]
mod tests {
    use super::significant;

    #[test]
    fn numbers_are_rounded_to_significant_digits() {
        let rounded = [575.09, 0.012_345, 208_442.7, 1.0, 9.9999, 0.0].map(|value| significant(value, 3));
        assert_eq!(rounded, ["575", "0.0123", "208000", "1.00", "10.0", "0"]);
        assert_eq!(significant(1.7e300, 3), "1.70e300");
    }
}
