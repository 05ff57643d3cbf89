//! The fields of a result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One run of a program on a device: what is the same for all of its rows.
///
/// Fields that a run could not tell are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Call {
    /// What names the call; lines with one name are one call.
    pub id: String,
    /// What it was for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The file that the rows were converted from; absent where the program wrote rows itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The line of the source that the call begins at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// When it began: a date, or a date and a time of UTC.
    pub date: String,
    /// The device's product name.
    pub device: String,
    /// Version of the device's driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The commit of the working tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// When that commit was made, or where it is not known that of the source: orders the calls of one day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed: Option<String>,
    /// Whether the working tree had no change that was not committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean: Option<bool>,
    /// The command that makes the rows again.
    pub command: String,
    /// Versions of the peers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
    /// Clock of the multiprocessors, MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<f64>,
    /// Clock of the memory, MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mhz: Option<f64>,
    /// Power limit that was in force, watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_watts: Option<f64>,
    /// Bytes a second that a plain read of device memory reached in this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_peak: Option<f64>,
    /// Operations a second that matrix instructions alone reached in this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix_peak: Option<f64>,
    /// Lines of the source that are no rows: what people wrote beside the figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
}

/// A line that is no row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Remark {
    /// Its number in the source, from 1 on.
    pub line: u32,
    /// The line, without spaces at its end.
    pub text: String,
}

/// One figure with all that is known of it.
///
/// ```
/// use tilewright::results::Row;
/// let peer = r#"{"suite":"gemv","who":"cublas","shape":{"n":8},"us":2.5,"best_us":2.0,"bytes":64,"flops":128}"#;
/// let row: Row = serde_json::from_str(peer).unwrap();
/// assert_eq!((row.median_us, row.operations), (Some(2.5), Some(128)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Row {
    /// The suite: `gemm`, `decode`, `accuracy`, `fuzz` and so on.
    pub suite: String,
    /// Whose figure it is: `tilewright`, or a peer's name.
    pub who: String,
    /// The shape, by the names of its extents.
    pub shape: BTreeMap<String, u64>,
    /// What is particular about it: tiles, splits, the level of a timeline, the name of a test.
    #[serde(alias = "note")]
    pub variant: String,
    /// Every timed sample, microseconds of one launch or one token: ours in the order of time, peers' as they print them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples_us: Vec<f64>,
    /// Median, microseconds.
    #[serde(alias = "us", skip_serializing_if = "Option::is_none")]
    pub median_us: Option<f64>,
    /// Least time, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_us: Option<f64>,
    /// Bytes that must move through device memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Operations of a launch: an addition and a multiplication are two.
    #[serde(alias = "flops", skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// Relative error, ‖found − exact‖ / ‖exact‖, of what was checked in the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Mean power while it was timed, watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
    /// Energy of one launch or one token, joules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules: Option<f64>,
    /// Further figures by name; the name ends in the unit.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
    /// What a check said: `right`, `WRONG`, `ok`, a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// What was written beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// The source that holds the same figure with all its digits; this one was printed rounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<String>,
    /// First and last line of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<[u32; 2]>,
}

/// Who a row of this project is by.
pub const OURS: &str = "tilewright";

impl Row {
    /// Whether it is this project's figure, not a peer's.
    pub fn is_ours(&self) -> bool {
        self.who == OURS
    }

    /// The shape as a line: `batch=1 k=4096 n=4096`.
    ///
    /// ```
    /// use tilewright::results::Row;
    /// let row = Row { shape: [("n".to_owned(), 8), ("k".to_owned(), 4)].into(), ..Row::default() };
    /// assert_eq!(row.shape_line(), "k=4 n=8");
    /// ```
    pub fn shape_line(&self) -> String {
        self.shape.iter().map(|(name, extent)| format!("{name}={extent}")).collect::<Vec<_>>().join(" ")
    }

    /// Whether both are the same measurement, perhaps of another call: suite, shape, variant and whose.
    pub fn is_same_measurement(&self, other: &Row) -> bool {
        (&self.suite, &self.who, &self.shape, &self.variant) == (&other.suite, &other.who, &other.shape, &other.variant)
    }

    /// Bytes a second.
    pub fn bandwidth(&self) -> Option<f64> {
        Some(self.bytes.filter(|bytes| *bytes > 0)? as f64 / (self.median_us? * 1e-6))
    }

    /// Operations a second.
    pub fn throughput(&self) -> Option<f64> {
        Some(self.operations.filter(|operations| *operations > 0)? as f64 / (self.median_us? * 1e-6))
    }
}
