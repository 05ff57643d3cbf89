//! What was found: settings by device, suite and shape.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Settings;
use crate::results::Results;

/// The verdict of a row whose settings are kept: in turns with those that ship they were faster beyond the noise and as
/// right, or they are those that ship and nothing was.
pub const KEPT: &str = "kept";

/// Settings that were tuned.
///
/// Later rows of the same device, suite and shape take the place of earlier ones.
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
}

/// Device, suite, shape.
type Key = (String, String, BTreeMap<String, u64>);

impl Tuned {
    /// The settings that the rows say are kept. Rows whose variant is no text of settings are passed over.
    pub fn of(results: &Results) -> Tuned {
        let kept = results.rows.iter().filter(|(_, row)| row.is_ours() && row.verdict.as_deref() == Some(KEPT));
        let mut rows: BTreeMap<Key, Vec<_>> = BTreeMap::new();
        for found in kept {
            let (call, row) = (results.call(found), &found.1);
            if let Ok(settings) = row.variant.parse() {
                let key = (call.device.clone(), row.suite.clone(), row.shape.clone());
                rows.entry(key).or_default().push((call.driver.clone(), settings));
            }
        }
        Tuned { rows }
    }

    /// The settings for a shape on a device: the last that were kept under a driver, or under any.
    pub fn settings(
        &self,
        device: &str,
        driver: Option<&str>,
        suite: &str,
        shape: &[(&str, u64)],
    ) -> Option<&Settings> {
        let shape = shape.iter().map(|&(name, extent)| (name.to_owned(), extent)).collect();
        let rows = self.rows.get(&(device.to_owned(), suite.to_owned(), shape))?;
        let is_same = |found: &Option<String>| driver.is_none() || found.as_deref() == driver;
        rows.iter().rev().find(|(driver, _)| is_same(driver)).map(|(_, settings)| settings)
    }

    /// The settings of a suite for a shape that has these extents, and of those the one whose extent `near.0` is nearest to
    /// `near.1` by ratio; the smaller of two that are as near.
    ///
    /// ```
    /// use tilewright::results::Results;
    /// use tilewright::tuning::Tuned;
    /// let row = |context: u64, hold: u64| format!(
    ///     r#"{{"suite":"decode","who":"tilewright","shape":{{"batch":1,"context":{context}}},"variant":"hold={hold}","verdict":"kept"}}"#
    /// );
    /// let call = r#"{"call":{"id":"a","date":"2026-11-22","device":"GPU","command":"tilewright tune"}}"#;
    /// let mut results = Results::default();
    /// results.add(&[call, &row(200, 4), &row(4096, 2)].join("\n"), "rows").unwrap();
    /// let tuned = Tuned::of(&results);
    /// let hold = |context| tuned.nearest("GPU", "decode", &[("batch", 1)], ("context", context)).unwrap().number("hold");
    /// assert_eq!((hold(1), hold(300), hold(2048), hold(1 << 20)), (Ok(4), Ok(4), Ok(2), Ok(2)));
    /// assert!(tuned.nearest("GPU", "decode", &[("batch", 2)], ("context", 200)).is_none());
    /// ```
    pub fn nearest(&self, device: &str, suite: &str, exact: &[(&str, u64)], near: (&str, u64)) -> Option<&Settings> {
        let ratio = |extent: u64| (extent.max(1) as f64 / near.1.max(1) as f64).ln().abs();
        let candidates = self.rows.iter().filter_map(|((its_device, its_suite, shape), rows)| {
            let is_same = its_device == device
                && its_suite == suite
                && exact.iter().all(|(name, extent)| shape.get(*name) == Some(extent));
            Some((ratio(*shape.get(near.0)?), rows.last()?)).filter(|_| is_same)
        });
        candidates.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, (_, settings))| settings)
    }

    /// Shapes that have settings.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no shape has.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// The user's file of settings: `$TILEWRIGHT_TUNED`, or `tilewright/tuned.jsonl` in the folder of the user's configuration. It need
/// not be there.
///
pub fn user_file() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("TILEWRIGHT_TUNED").or_else(|| {
        let folder = named("XDG_CONFIG_HOME").or_else(|| named("HOME").map(|home| home.join(".config")))?;
        Some(folder.join("tilewright").join("tuned.jsonl"))
    })
}
