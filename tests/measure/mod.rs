//! Error measures for computed numbers.

/// Computes `‖found − expected‖₂ / ‖expected‖₂` in f64.
pub fn relative_l2(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
    let difference = squares(&mut found.iter().zip(expected).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    (difference / squares(&mut expected.iter().map(|b| f64::from(*b)))).sqrt()
}
