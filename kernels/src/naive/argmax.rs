//! Greedy choice.

/// The index of the largest value, the lowest among equals; NaN counts as −∞. `None` only for an
/// empty slice.
///
/// ```
/// use tilewright_kernels::naive::argmax;
/// assert_eq!(argmax(&[1.0, f32::NAN, 3.0, 3.0]), Some(2));
/// assert_eq!(argmax(&[f32::NAN, f32::NEG_INFINITY]), Some(0));
/// assert_eq!(argmax(&[]), None);
/// ```
pub fn argmax(values: &[f32]) -> Option<usize> {
    let mut best = 0;
    for (i, &value) in values.iter().enumerate() {
        if value > values[best] || (values[best].is_nan() && value > f32::NEG_INFINITY) {
            best = i;
        }
    }
    (!values.is_empty()).then_some(best)
}
