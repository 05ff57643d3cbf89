//! Tuned settings by device, suite and shape.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Settings;
use crate::results::Results;

/// The verdict of a row whose settings are kept: measured in turns with the shipped ones they were
/// faster beyond the noise and as accurate, or they are the shipped ones and no others were.
pub const KEPT: &str = "kept";

/// Tuned settings, looked up by device, suite and shape.
///
/// A later row replaces earlier ones of the same device, suite and shape.
///
/// ```
/// use tilewright::results::Results;
/// use tilewright::tuning::Tuned;
/// let rows = concat!(
///     r#"{"call":{"id":"a","date":"2026-11-22","device":"NVIDIA H200","driver":"580.1","command":"tilewright tune"}}"#, "\n",
///     r#"{"suite":"gemm","who":"tilewright","shape":{"m":512,"n":512,"k":64},"variant":"stages=4","verdict":"kept"}"#,
/// );
/// let mut results = Results::default();
/// results.add(rows, "rows").unwrap();
/// let tuned = Tuned::of(&results);
/// let shape = [("k", 64), ("m", 512), ("n", 512)];
/// assert_eq!(tuned.settings("NVIDIA H200", Some("580.1"), "gemm", &shape).unwrap().to_string(), "stages=4");
/// assert!(tuned.settings("NVIDIA H200", None, "gemm", &shape).is_some());
/// assert!(tuned.settings("NVIDIA H200", Some("570.1"), "gemm", &shape).is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tuned {
    /// Drivers and settings, in the order of the rows.
    rows: BTreeMap<Key, Vec<(Option<String>, Settings)>>,
    /// The table for shapes that these rows lack.
    fallback: Option<Box<Tuned>>,
}

/// Device, suite, shape.
type Key = (String, String, BTreeMap<String, u64>);

impl Tuned {
    /// Collects the settings of rows with the verdict [`KEPT`]. Skips rows whose variant is not a
    /// text of settings.
    pub fn of(results: &Results) -> Tuned {
        let kept = results.rows.iter().filter(|(_, row)| row.is_ours() && row.verdict.as_deref() == Some(KEPT));
        let mut rows: BTreeMap<Key, Vec<_>> = BTreeMap::new();
        for found in kept {
            let call = results.call(found);
            let row = &found.1;
            if let Ok(settings) = row.variant.parse() {
                let key = (call.device.clone(), row.suite.clone(), row.shape.clone());
                rows.entry(key).or_default().push((call.driver.clone(), settings));
            }
        }
        Tuned { rows, fallback: None }
    }

    /// The table in the binary, which `tilewright tune` produced on an H200 (`docs/tuning.md`).
    ///
    /// ```
    /// use tilewright::tuning::Tuned;
    /// let odd = [("k", 5000), ("m", 200), ("n", 3000)];
    /// let settings = Tuned::shipped().settings("NVIDIA H200", None, "gemm", &odd).unwrap().to_string();
    /// assert!(settings.ends_with("tile=M128N112"), "{settings}");
    /// ```
    pub fn shipped() -> Tuned {
        let mut results = Results::default();
        match results.add(include_str!("shipped.jsonl"), "shipped.jsonl") {
            Ok(()) => Tuned::of(&results),
            Err(error) => unreachable!("the table in the binary: {error}"),
        }
    }

    /// Adds a table for shapes that this one lacks.
    ///
    /// ```
    /// use tilewright::tuning::Tuned;
    /// let tuned = Tuned::default().or(Tuned::shipped());
    /// assert_eq!(tuned.len(), Tuned::shipped().len());
    /// ```
    #[must_use]
    pub fn or(self, fallback: Tuned) -> Tuned {
        Tuned { fallback: Some(Box::new(fallback)), ..self }
    }

    /// The settings for a shape on a device: the last ones kept under `driver`, or under any if it
    /// is `None`.
    pub fn settings(
        &self,
        device: &str,
        driver: Option<&str>,
        suite: &str,
        shape: &[(&str, u64)],
    ) -> Option<&Settings> {
        let key =
            (device.to_owned(), suite.to_owned(), shape.iter().map(|&(n, extent)| (n.to_owned(), extent)).collect());
        let is_same = |found: &Option<String>| driver.is_none() || found.as_deref() == driver;
        let found = self.rows.get(&key).and_then(|rows| rows.iter().rev().find(|(driver, _)| is_same(driver)));
        let fallback = || self.fallback.as_deref()?.settings(device, driver, suite, shape);
        found.map(|(_, settings)| settings).or_else(fallback)
    }

    /// The settings of a suite for a shape with the extents `exact` and one more, `near.0`: of such
    /// shapes the one whose extent is nearest to `near.1` by ratio, and the smaller of two that are
    /// equally near.
    ///
    /// ```
    /// use tilewright::results::Results;
    /// use tilewright::tuning::Tuned;
    /// let row = |context: u64, hold: u64| format!(
    ///     r#"{{"suite":"decode","who":"tilewright","shape":{{"batch":1,"context":{context}}},"variant":"prefetch_stages={hold}","verdict":"kept"}}"#
    /// );
    /// let call = r#"{"call":{"id":"a","date":"2026-11-22","device":"GPU","command":"tilewright tune"}}"#;
    /// let mut results = Results::default();
    /// results.add(&[call, &row(200, 4), &row(4096, 2)].join("\n"), "rows").unwrap();
    /// let tuned = Tuned::of(&results);
    /// let hold = |context| tuned.nearest("GPU", "decode", &[("batch", 1)], ("context", context)).unwrap().number("prefetch_stages");
    /// assert_eq!((hold(1), hold(300), hold(2048), hold(1 << 20)), (Ok(4), Ok(4), Ok(2), Ok(2)));
    /// assert!(tuned.nearest("GPU", "decode", &[("batch", 2)], ("context", 200)).is_none());
    /// // Weights of four bits are another shape.
    /// assert!(tuned.nearest("GPU", "decode", &[("batch", 1), ("weight_bits", 4)], ("context", 200)).is_none());
    /// assert!(tuned.nearest("GPU", "decode", &[], ("context", 200)).is_none());
    /// ```
    pub fn nearest(&self, device: &str, suite: &str, exact: &[(&str, u64)], near: (&str, u64)) -> Option<&Settings> {
        let ratio = |extent: u64| (extent.max(1) as f64 / near.1.max(1) as f64).ln().abs();
        let candidates = self.rows.iter().filter_map(|((its_device, its_suite, shape), rows)| {
            let is_same = its_device == device
                && its_suite == suite
                && shape.len() == exact.len() + 1
                && exact.iter().all(|(name, extent)| shape.get(*name) == Some(extent));
            Some((ratio(*shape.get(near.0)?), rows.last()?)).filter(|_| is_same)
        });
        let found = candidates.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, (_, settings))| settings);
        found.or_else(|| self.fallback.as_deref()?.nearest(device, suite, exact, near))
    }

    /// The number of shapes with settings; a shape counts in each table that has it.
    pub fn len(&self) -> usize {
        self.rows.len() + self.fallback.as_deref().map_or(0, Tuned::len)
    }

    /// Whether no shape has settings.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The path of the user's tuned settings: `$TILEWRIGHT_TUNED`, or `tilewright/tuned.jsonl` in the
/// user's configuration folder. The file may not exist.
pub fn user_file() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("TILEWRIGHT_TUNED").or_else(|| {
        let folder = named("XDG_CONFIG_HOME").or_else(|| named("HOME").map(|home| home.join(".config")))?;
        Some(folder.join("tilewright").join("tuned.jsonl"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned(device: &str, context: u64, hold: u64) -> Tuned {
        let call =
            format!(r#"{{"call":{{"id":"a","date":"2026-11-22","device":"{device}","command":"tilewright tune"}}}}"#);
        let row = format!(
            r#"{{"suite":"decode","who":"tilewright","shape":{{"batch":1,"context":{context}}},"variant":"prefetch_stages={hold}","verdict":"kept"}}"#
        );
        let mut results = Results::default();
        results.add(&[call, row].join("\n"), "rows").expect("rows");
        Tuned::of(&results)
    }

    #[test]
    fn the_fallback_serves_shapes_that_the_table_lacks() {
        let both = tuned("A", 200, 2).or(tuned("A", 4096, 6).or(tuned("B", 4096, 4)));
        let nearest = |device: &str| {
            both.nearest(device, "decode", &[("batch", 1)], ("context", 4096)).map(|s| s.number("prefetch_stages"))
        };
        // The nearest shape of the first table that has one, even if the fallback has a nearer one.
        assert_eq!([nearest("A"), nearest("B"), nearest("C")], [Some(Ok(2)), Some(Ok(4)), None]);
        let exact = |context: u64| {
            both.settings("A", None, "decode", &[("batch", 1), ("context", context)])
                .map(|settings| settings.number("prefetch_stages"))
        };
        assert_eq!([exact(200), exact(4096), exact(300)], [Some(Ok(2)), Some(Ok(6)), None]);
        assert_eq!((both.len(), both.is_empty()), (3, false));
    }

    #[test]
    fn every_row_of_the_table_in_the_binary_has_settings() {
        let mut results = Results::default();
        results.add(include_str!("shipped.jsonl"), "shipped.jsonl").expect("rows of results");
        let shipped = Tuned::shipped();
        assert_eq!(shipped.len(), results.rows.len());
        for found in &results.rows {
            let call = results.call(found);
            let row = &found.1;
            let shape: Vec<(&str, u64)> = row.shape.iter().map(|(name, extent)| (name.as_str(), *extent)).collect();
            let settings = shipped.settings(&call.device, call.driver.as_deref(), &row.suite, &shape);
            assert_eq!(settings.map(ToString::to_string), Some(row.variant.clone()));
        }
    }
}
