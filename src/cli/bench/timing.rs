//! Timing of kernels: launches over rotating buffers, which L2 cannot hold, become one graph, whose
//! replays are timed by events.

use std::rc::Rc;

use clap::builder::RangedU64ValueParser;
use tilewright_codegen::device::backend::Work;
use tilewright_codegen::device::{Device, DeviceError, Stream};

use super::journal::Journal;
use crate::cli::bench::tunable::Tunable;
use crate::cli::{Failure, number};
use crate::results::ResultRow;
use crate::tuning::Tuned;

/// Times of one launch, microseconds, in the order of the replays.
#[derive(Clone, Debug)]
pub struct Times {
    /// One sample for each replay.
    pub samples: Vec<f64>,
}

impl Times {
    /// Multiplies each time by a number of launches.
    pub fn of_launches(mut self, launches: usize) -> Times {
        self.samples.iter_mut().for_each(|sample| *sample *= launches as f64);
        self
    }
}

/// A device that is timed.
pub struct Bench {
    /// The device.
    pub device: Device,
    /// The stream that everything runs on.
    pub stream: Stream,
    /// Tuned settings.
    pub tuned: Tuned,
    /// Replays that are timed.
    pub replays: usize,
    /// The shapes that are timed.
    pub only: Only,
    /// The destination of the rows.
    pub journal: Rc<Journal>,
}

/// Extents of `--only`.
pub(super) struct Only(pub Vec<(String, u64)>);

impl Only {
    /// Whether a shape is admitted. Extents that the shape lacks are ignored.
    pub fn admits(&self, shape: &[(&str, u64)]) -> bool {
        let differs = |name: &str, extent: u64| shape.iter().any(|&(n, e)| n == name && e != extent);
        !self.0.iter().any(|(name, extent)| differs(name, *extent))
    }

    /// The number of the shapes that are admitted.
    pub fn count<S: AsRef<[(&'static str, u64)]>>(&self, shapes: impl IntoIterator<Item = S>) -> usize {
        shapes.into_iter().filter(|shape| self.admits(shape.as_ref())).count()
    }
}

impl Bench {
    /// Whether `--only` admits a shape.
    pub fn wants(&self, shape: &[(&str, u64)]) -> bool {
        self.only.admits(shape)
    }

    /// Whether `--only` admits the whole shape of a row, it was not measured before, and there is
    /// time left.
    pub fn begins(&self, suite: &str, shape: &[(&str, u64)]) -> bool {
        self.wants(shape) && !self.journal.skips(suite, shape, 1)
    }

    /// Keeps a row.
    pub fn keep(&self, row: ResultRow) -> Result<(), Failure> {
        Ok(self.journal.keep(row)?)
    }

    /// Measures a kernel with the settings tuned for its shape, or else the shipped ones, and keeps
    /// the row.
    pub fn keep_row_of(&self, kernel: &dyn Tunable) -> Result<(), Failure> {
        let device = &self.device.properties().name;
        let row = match self.tuned.settings(device, None, kernel.suite(), &kernel.shape()) {
            Some(settings) => ResultRow { variant: settings.to_string(), ..kernel.measure(settings)? },
            None => kernel.measure(&kernel.space().at(kernel.space().shipped()))?,
        };
        self.keep(row)
    }

    /// Times these launches as one graph. Returns the time per launch.
    pub fn time(&self, work: &[Work]) -> Result<Times, DeviceError> {
        let samples = samples(&self.device, &self.stream, work, self.replays)?;
        let launches = work.len().max(1) as f64;
        Ok(Times { samples: samples.into_iter().map(|sample| sample / launches).collect() })
    }

    /// The number of buffers of `bytes` bytes to rotate over: 2.5 GB in all, at least 3 and at most
    /// 64; 1 if simulated.
    pub fn rotations(&self, bytes: u64) -> usize {
        if is_simulated(&self.device) { 1 } else { (2_500_000_000 / bytes.max(1)).clamp(3, 64) as usize }
    }
}

/// Whether a device is simulated: its times mean nothing, and a launch takes seconds.
pub fn is_simulated(device: &Device) -> bool {
    device.properties().driver == 0
}

/// The times of replays of these launches as one graph, microseconds.
fn samples(device: &Device, stream: &Stream, work: &[Work], replays: usize) -> Result<Vec<f64>, DeviceError> {
    let warm_up = if is_simulated(device) { 0 } else { 3 };
    let graph = device.graph(work)?;
    for _ in 0..warm_up {
        graph.launch(stream)?;
    }
    let mut events = vec![stream.record()?];
    for _ in 0..replays.max(1) {
        graph.launch(stream)?;
        events.push(stream.record()?);
    }
    events.windows(2).map(|pair| Ok(pair[1].since(&pair[0])?.as_secs_f64() * 1e6)).collect()
}

/// The median time of replays of these launches as one graph, microseconds.
pub fn replayed(device: &Device, stream: &Stream, work: &[Work], replays: usize) -> Result<f64, DeviceError> {
    let mut samples = samples(device, stream, work, replays)?;
    samples.sort_by(f64::total_cmp);
    Ok(samples[samples.len() / 2])
}

/// The number of timed replays, whose times are kept in memory.
pub(super) fn replays() -> RangedU64ValueParser<usize> {
    number::count(0..=65536)
}
