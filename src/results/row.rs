//! The fields of calls and rows.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// An execution of a program on a device: the facts that all of its rows share.
///
/// A fact that the program could not determine is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Call {
    /// Identifies the call; lines with equal ids and sources are one call.
    pub id: String,
    /// Purpose of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// File that the rows were converted from; absent if the program wrote the rows itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// First line of the call in the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Start of the call: a date, or a date and time in UTC.
    pub date: String,
    /// Product name of the device.
    pub device: String,
    /// Version of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Commit of the working tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Time of that commit, or of the source if the commit is unknown; orders the calls of a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed: Option<String>,
    /// Whether the working tree was free of uncommitted changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean: Option<bool>,
    /// Command that reproduces the rows.
    pub command: String,
    /// Versions of the peers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
    /// Clock of the SMs, MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<f64>,
    /// Clock of the memory, MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mhz: Option<f64>,
    /// Power limit in force, watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_watts: Option<f64>,
    /// Bytes per second of a plain read of device memory, measured in this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_peak: Option<f64>,
    /// Operations per second of bf16 matrix instructions alone, measured in this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix_peak: Option<f64>,
    /// Lines of the source that are not rows: notes written next to the figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
}

/// A line of a converted file that is not a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Remark {
    /// Number of the line in the source, starting at 1.
    pub line: u32,
    /// Text of the line without trailing spaces.
    pub text: String,
}

/// A measurement.
///
/// ```
/// use tilewright::results::ResultRow;
/// let peer = r#"{"suite":"gemv","who":"cublas","shape":{"n":8},"us":2.5,"best_us":2.0,"bytes":64,"flops":128}"#;
/// let row: ResultRow = serde_json::from_str(peer).unwrap();
/// assert_eq!((row.median_us, row.operations), (Some(2.5), Some(128)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename = "Row", default, deny_unknown_fields)]
pub struct ResultRow {
    /// Suite: `gemm`, `decode`, `accuracy`, `fuzz` and so on.
    pub suite: String,
    /// Program that was measured: `tilewright`, or a peer's name.
    pub who: String,
    /// Extents of the workload by name.
    pub shape: BTreeMap<String, u64>,
    /// Settings that distinguish rows of one shape: tiles, splits, the level of a timeline, the
    /// name of a test.
    #[serde(alias = "note")]
    pub variant: String,
    /// Timed samples, microseconds per launch or per token: ours in the order of time, peers' as
    /// they print them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples_us: Vec<f64>,
    /// Median, microseconds.
    #[serde(alias = "us", skip_serializing_if = "Option::is_none")]
    pub median_us: Option<f64>,
    /// Shortest time, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_us: Option<f64>,
    /// Bytes that the workload must move through device memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Operations per launch; a multiply-add counts as two.
    #[serde(alias = "flops", skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// Relative error of the results checked in the same run: ‖found − exact‖ / ‖exact‖.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Mean power during the timed launches, watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
    /// Energy per launch or per token, joules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules: Option<f64>,
    /// Further quantities by name; the name ends in the unit.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
    /// Outcome of a check: `right`, `WRONG`, `ok`, or a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Note written next to the figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// Source that has this figure with all its digits; this row was printed rounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<String>,
    /// First and last line in the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<[u32; 2]>,
}

/// Value of [`ResultRow::who`] for rows of this project.
pub const OURS: &str = "tilewright";

/// A number that no measurement can have.
#[derive(Clone, Debug, PartialEq)]
pub struct OutOfRange {
    /// The field, and the key within `values`.
    pub field: String,
    /// The number.
    pub value: f64,
    /// The range of the field.
    pub expected: &'static str,
}

/// Shortest and longest time in microseconds: a femtosecond and 31 years. Sums, ratios and axes of
/// such times are finite.
const SHORTEST: f64 = 1e-9;
const LONGEST: f64 = 1e15;
/// Largest other quantity.
const LARGEST: f64 = 1e30;

/// Checks that a number of a field lies in a range.
fn within(field: &str, value: f64, range: RangeInclusive<f64>, expected: &'static str) -> Result<(), OutOfRange> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(OutOfRange { field: field.to_owned(), value, expected })
}

const TIME: &str = "microseconds, 0 or from 1e-9 to 1e15";
const QUANTITY: &str = "a number from 0 to 1e30";

impl Call {
    /// Checks that every number is possible for a device.
    pub(super) fn check(&self) -> Result<(), OutOfRange> {
        let fields = [
            ("sm_mhz", self.sm_mhz),
            ("memory_mhz", self.memory_mhz),
            ("power_limit_watts", self.power_limit_watts),
            ("read_peak", self.read_peak),
            ("matrix_peak", self.matrix_peak),
        ];
        let mut known = fields.into_iter().filter_map(|(field, value)| Some((field, value?)));
        known.try_for_each(|(field, value)| within(field, value, 0.0..=LARGEST, QUANTITY))
    }
}

impl ResultRow {
    /// Checks that every number is possible for a measurement, so that views can add, divide and
    /// draw it.
    pub(super) fn check(&self) -> Result<(), OutOfRange> {
        let times = self.samples_us.iter().map(|sample| ("samples_us", *sample));
        let times = times.chain(self.median_us.map(|us| ("median_us", us)));
        let mut times = times.chain(self.best_us.map(|us| ("best_us", us)));
        times.try_for_each(|(field, value)| match value {
            0.0 => Ok(()),
            value => within(field, value, SHORTEST..=LONGEST, TIME),
        })?;
        let fields = [("error", self.error), ("watts", self.watts), ("joules", self.joules)];
        let mut known = fields.into_iter().filter_map(|(field, value)| Some((field, value?)));
        known.try_for_each(|(field, value)| within(field, value, 0.0..=LARGEST, QUANTITY))?;
        self.values.iter().try_for_each(|(name, value)| {
            let field = format!("values.{name}");
            within(&field, *value, -LARGEST..=LARGEST, "a number from -1e30 to 1e30")
        })
    }

    /// Whether the row is this project's and not a peer's.
    pub fn is_ours(&self) -> bool {
        self.who == OURS
    }

    /// Formats the shape as a line: `batch=1 k=4096 n=4096`.
    ///
    /// ```
    /// use tilewright::results::ResultRow;
    /// let row = ResultRow { shape: [("n".to_owned(), 8), ("k".to_owned(), 4)].into(), ..ResultRow::default() };
    /// assert_eq!(row.shape_line(), "k=4 n=8");
    /// ```
    pub fn shape_line(&self) -> String {
        self.shape.iter().map(|(name, extent)| format!("{name}={extent}")).collect::<Vec<_>>().join(" ")
    }

    /// Whether two rows, perhaps of different calls, agree in suite, program, shape and variant.
    pub fn is_same_measurement(&self, other: &ResultRow) -> bool {
        (&self.suite, &self.who, &self.shape, &self.variant) == (&other.suite, &other.who, &other.shape, &other.variant)
    }

    /// Bytes per second; `None` without bytes or a time.
    pub fn bandwidth(&self) -> Option<f64> {
        Some(self.bytes.filter(|bytes| *bytes > 0)? as f64 / (self.positive_us()? * 1e-6))
    }

    /// Operations per second; `None` without operations or a time.
    pub fn throughput(&self) -> Option<f64> {
        Some(self.operations.filter(|operations| *operations > 0)? as f64 / (self.positive_us()? * 1e-6))
    }

    /// The median if it is a time that rates can be made of.
    fn positive_us(&self) -> Option<f64> {
        self.median_us.filter(|us| *us > 0.0)
    }
}
