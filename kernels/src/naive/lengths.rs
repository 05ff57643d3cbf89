//! Checks of the lengths of oracle operands: an oracle that ignored excess elements would agree
//! with a kernel that does.

/// Checks that two operands have the same length.
///
/// # Panics
/// Where they differ; the text names both.
#[track_caller]
pub(super) fn same(op: &str, [a, b]: [&str; 2], [of_a, of_b]: [usize; 2]) {
    assert!(of_a == of_b, "{op}: {a} has {of_a} elements and {b} has {of_b}; they must be as many");
}

/// The first operand is a whole number of the second.
///
/// # Panics
/// Where it is not, or where there is nothing to divide by; the text names both.
#[track_caller]
pub(super) fn whole(op: &str, [a, b]: [&str; 2], [of_a, of_b]: [usize; 2]) {
    assert!(
        of_b > 0 && of_a.is_multiple_of(of_b),
        "{op}: {a} has {of_a} elements, which is no whole number of {b}, which has {of_b}"
    );
}

#[cfg(test)]
mod tests {
    use crate::activation::Activation;
    use crate::naive::{add, attention, attention_to, gated, head_norm, linear, rms_norm, rope};
    use std::panic::catch_unwind;

    /// Every oracle refuses operands that do not belong together, and names them.
    #[test]
    fn operands_of_other_lengths_are_refused() {
        let cases: [(fn(), &str); 10] = [
            (|| drop(rms_norm(&[1.0f32; 4], &[1.0; 3], 0.0)), "rms_norm: x has 4 elements and weight has 3"),
            (|| drop(rms_norm(&[1.0f32; 3], &[1.0; 4], 0.0)), "rms_norm: x has 3 elements and weight has 4"),
            (|| drop(head_norm(&[1.0f32; 5], &[1.0; 2], 0.0)), "head_norm: x has 5 elements, which is no whole number"),
            (|| drop(linear(&[1.0f32; 2], &[1.0; 5], None)), "linear: weight has 5 elements, which is no whole number"),
            (|| drop(linear(&[1.0f32; 2], &[1.0; 4], Some(&[0.0]))), "linear: bias has 1 elements and rows of weight"),
            (|| drop(add(&[1.0f32; 2], &[1.0; 3])), "add: a has 2 elements and b has 3"),
            (|| drop(gated(Activation::Silu, &[1.0f32; 3], &[1.0; 2])), "gated: gate has 3 elements and up has 2"),
            (|| drop(rope(&[1.0f32; 6], &[1.0; 2], 0, 1.0)), "rope: x has 6 elements and 2 * inv_freq has 4"),
            (
                || drop(attention(&[1.0f32; 2], &[1.0; 4], &[1.0; 2], 1.0, None)),
                "attention: keys has 4 elements and values",
            ),
            (
                || drop(attention_to(&[1.0f32; 2], &[1.0; 4], &[1.0; 3], 1, |_, score| score)),
                "attention: values has 3 elements and tokens times columns has 2",
            ),
        ];
        for (case, text) in cases {
            let payload = catch_unwind(case).expect_err(text);
            let found = payload.downcast_ref::<String>().expect("a text");
            assert!(found.starts_with(text), "{found}");
        }
    }
}
