//! Lines that a kernel prints.

use std::sync::{Arc, Mutex, PoisonError};

use crate::ir::Ty;

/// Bytes of a launch's lines that are kept, as of a GPU.
const MOST_BYTES: usize = 1 << 20;

/// The lines that a launch prints, in the order of execution. A clone is a handle to the same lines.
#[derive(Clone, Debug, Default)]
pub struct PrintedLines(Arc<Mutex<(Vec<String>, usize)>>);

impl PrintedLines {
    /// The lines so far, which are forgotten.
    pub fn take(&self) -> Vec<String> {
        let (lines, _) = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        lines
    }

    /// Adds a line. Lines beyond 1 MiB are left out, and the last one says so.
    pub(crate) fn push(&self, line: String) {
        let (lines, bytes) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *bytes > MOST_BYTES {
            return;
        }
        *bytes += line.len() + 1;
        lines.push(if *bytes > MOST_BYTES {
            "the launch printed more than 1 MiB; the rest is left out".into()
        } else {
            line
        });
    }
}

/// Two are equal if they hold the same lines.
impl PartialEq for PrintedLines {
    fn eq(&self, other: &PrintedLines) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PrintedLines {}

/// The text with its braces replaced by values, given by type and bits.
pub(crate) fn filled(text: &str, values: impl IntoIterator<Item = (Ty, u64)>) -> String {
    let mut pieces = text.split("{}");
    let mut line = pieces.next().unwrap_or_default().to_owned();
    for (piece, (ty, bits)) in pieces.zip(values) {
        line.push_str(&number(ty, bits));
        line.push_str(piece);
    }
    line
}

fn number(ty: Ty, bits: u64) -> String {
    match ty {
        Ty::S32 => (bits as i32).to_string(),
        Ty::S64 => (bits as i64).to_string(),
        Ty::F32 => general(f64::from(f32::from_bits(bits as u32)), 9),
        Ty::F64 => general(f64::from_bits(bits), 17),
        Ty::U32 => (bits as u32).to_string(),
        _ => bits.to_string(),
    }
}

/// A float as `%.{digits}g` of C writes it.
fn general(x: f64, digits: usize) -> String {
    if !x.is_finite() {
        let sign = if x.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if x.is_nan() { "nan" } else { "inf" });
    }
    let scientific = format!("{x:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..digits as i32).contains(&exponent) {
        return trimmed(&format!("{x:.*}", (digits as i32 - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against `printf("%.9g")` and `printf("%.17g")` of the C library.
    #[test]
    fn floats_are_written_as_c_writes_them() {
        let cases = [
            (0.5, "0.5"),
            (-0.0, "-0"),
            (1e9, "1e+09"),
            (123456789.0, "123456789"),
            (1234567890.0, "1.23456789e+09"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (f64::from(0.1f32), "0.100000001"),
            (f64::INFINITY, "inf"),
            (-1e300, "-1e+300"),
        ];
        for (x, text) in cases {
            assert_eq!(general(x, 9), text);
        }
        assert_eq!(general(0.1, 17), "0.10000000000000001");
    }

    #[test]
    fn a_launch_keeps_a_mebibyte() {
        let lines = PrintedLines::default();
        (0..40_000).for_each(|_| lines.push("x".repeat(63)));
        let kept = lines.take();
        assert!(kept.len() == (1 << 14) + 1 && kept[1 << 14].contains("left out"), "{}", kept.len());
        assert!(lines.take().is_empty());
    }
}
