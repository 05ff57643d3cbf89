//! `tilewright tune`: searches for the fastest settings of a suite's kernels and keeps those that
//! win.
//!
//! Each configuration is one row of results, appended at once; its variant is the text of its
//! settings. At the end the best and the shipped configuration are measured in turns, and one more
//! row, with the verdict [`KEPT`], has the winner.

use std::cell::Cell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use super::journal::Journal;
use super::timing::{Bench, Only};
use super::{attention, codes, decode, gemm, gemv};
use crate::cli::bench::call::{journal_of, name_of};
use crate::cli::bench::error::BenchError;
use crate::cli::bench::timing::replays;
use crate::cli::bench::tunable::Tunable;
use crate::cli::device::GpuArgs;
use crate::cli::paint::{self, Word};
use crate::cli::progress::{SearchBar, SearchProgress};
use crate::cli::subject::SubjectArgs;
use crate::cli::{Failure, number};
use crate::results::{ResultRow, Summary, difference_is_significant};
use crate::tuning::{KEPT, Settings, Tuned, search, user_file};

/// The long description of `tune`.
pub const ABOUT: &str = "Find the fastest settings of a suite's kernels on a GPU

Every configuration is checked and appended to the file at once, so that a search continues where it ended. \
Settings are kept only if they beat the shipped ones beyond the noise, in turns with them, and are as accurate. \
`generate` and `bench --tuned` use what is kept.";

/// Examples of `tune`.
pub const EXAMPLES: &str = "Examples:
  tilewright tune gemm --shape m=4096,n=14336,k=4096 --budget 60s
  tilewright tune decode --model DIR --batch 1 --context 1024 --budget 5m";

/// A suite.
#[derive(Subcommand)]
pub enum TuneCommand {
    /// Tune bf16 matrix products: tiles, stages, clusters, raster, splits of K
    #[command(after_help = "Examples:
  tilewright tune gemm --shape m=4096,n=14336,k=4096 --shape m=200,n=3000,k=5000")]
    Gemm {
        /// A shape, such as m=4096,n=4096,k=4096; repeat it for more [default: those of `bench
        /// gemm`]
        #[arg(long, value_name = "NAME=EXTENT,..", value_parser = gemm::parse_shape)]
        shape: Vec<[u32; 3]>,
        #[command(flatten)]
        search: SearchArgs,
    },
    /// Tune products of a bf16 matrix and few vectors: warps, stages, bytes in flight, groups
    #[command(after_help = "Examples:
  tilewright tune gemv --shape batch=1,n=4096,k=4096")]
    Gemv {
        /// A shape, such as batch=1,n=4096,k=4096; repeat it for more [default: those of `bench
        /// gemv`]
        #[arg(long, value_name = "NAME=EXTENT,..", value_parser = gemv::parse_shape)]
        shape: Vec<[u32; 3]>,
        #[command(flatten)]
        search: SearchArgs,
    },
    /// Tune matrix products with 4-bit weights: tiles, stages, clusters, splits of K, vectors of a
    /// tile
    #[command(after_help = "Examples:
  tilewright tune codes --shape m=64,n=14336,k=4096")]
    Codes {
        /// A shape, such as m=64,n=4096,k=4096; repeat it for more [default: those of `bench
        /// codes`]
        #[arg(long, value_name = "NAME=EXTENT,..", value_parser = codes::parse_shape)]
        shape: Vec<[u32; 3]>,
        #[command(flatten)]
        search: SearchArgs,
    },
    /// Tune attention of one token over long contexts: tiles, stages, splits
    #[command(after_help = "Examples:
  tilewright tune attention --shape batch=8,tokens=8192")]
    Attention {
        /// A shape, such as batch=8,tokens=8192 or batch=1,tokens=65536,depth=192,value_depth=128;
        /// repeat it for more [default: those of `bench attention`]
        #[arg(long, value_name = "NAME=EXTENT,..", value_parser = attention::parse_shape)]
        shape: Vec<attention::DecodeShape>,
        #[command(flatten)]
        search: SearchArgs,
    },
    /// Tune the decode megakernel of a model: its ring, register prefetch, task prefetch, placement
    #[command(after_help = "Examples:
  tilewright tune decode --model DIR --batch 1 --context 1024 --budget 5m
  tilewright tune decode --config config.json --try \"prefetch_stages=0\" --try \"prefetch_stages=2 in_flight=2\"")]
    Decode {
        #[command(flatten)]
        subject: Box<SubjectArgs>,
        #[command(flatten)]
        search: SearchArgs,
    },
}

/// Settings of the search, and the destination of its rows.
#[derive(Args)]
pub struct SearchArgs {
    #[command(flatten)]
    device: GpuArgs,
    /// Time for all shapes together, such as 10m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = number::duration)]
    budget: Duration,
    /// Append rows to this file [default: $TILEWRIGHT_TUNED, else ~/.config/tilewright/tuned.jsonl]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Measure only these settings and the shipped ones, such as "prefetch_stages=2 in_flight=2";
    /// repeat it for more
    #[arg(long = "try", value_name = "NAME=VALUE ..")]
    trials: Vec<Settings>,
    /// Search again for shapes whose settings were kept before
    #[arg(long)]
    again: bool,
    /// Seed of the search's restarts
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Timed replays of each kernel, at most 65536
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = replays())]
    replays: usize,
    /// The commit that was built [default: that of the working tree]
    #[arg(long, value_name = "NAME")]
    commit: Option<String>,
}

impl TuneCommand {
    fn search(&self) -> &SearchArgs {
        match self {
            TuneCommand::Gemm { search, .. }
            | TuneCommand::Gemv { search, .. }
            | TuneCommand::Codes { search, .. }
            | TuneCommand::Attention { search, .. }
            | TuneCommand::Decode { search, .. } => search,
        }
    }
}

/// Runs the subcommand.
pub fn run(command: &TuneCommand) -> Result<ExitCode, Failure> {
    let args = command.search();
    // Whatever is wrong with the command line or the model is reported before a file exists.
    if let TuneCommand::Decode { subject, .. } = command {
        subject.flow()?;
    }
    let place = args.device.get()?;
    let name = name_of(place)?;
    let device = name.open()?;
    let out = args.out.clone().or_else(user_file).ok_or(BenchError::NoFile)?;
    if let Some(folder) = out.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let journal = Rc::new(journal_of(name, &device, args.commit.clone()).told(true).resume(&out)?);
    let stream = device.stream()?;
    let only = Only(Vec::new());
    let tuned = Tuned::default();
    let bench = Bench { device, stream, tuned, replays: args.replays, only, journal: Rc::clone(&journal) };
    let kernels = match command {
        TuneCommand::Gemm { shape, .. } => gemm::tunables(&bench, shape),
        TuneCommand::Gemv { shape, .. } => gemv::tunables(&bench, shape),
        TuneCommand::Codes { shape, .. } => codes::tunables(&bench, shape),
        TuneCommand::Attention { shape, .. } => attention::tunables(&bench, shape),
        TuneCommand::Decode { subject, .. } => decode::tunables(subject, place)?,
    };
    let until = Instant::now() + args.budget;
    let count = kernels.len() as u32;
    let mut lines = Vec::new();
    let bar = SearchBar::new("tuning", kernels.len());
    let mut measured = 0;
    for (index, prepare) in (0..).zip(kernels) {
        // Time that a shape leaves over is for the following ones.
        let share = until.saturating_duration_since(Instant::now()) / (count - index);
        let kernel = prepare()?;
        let tuner = Tuner {
            args,
            journal: &journal,
            kernel,
            since: Instant::now(),
            share,
            bar: &bar,
            index: index as usize,
            measured_before: measured,
            tried: Cell::new(0),
        };
        lines.extend(tuner.run()?);
        measured += tuner.tried.get();
    }
    drop(bar);
    if !lines.is_empty() {
        table(&mut io::stdout().lock(), &lines)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The search for one shape.
struct Tuner<'t> {
    args: &'t SearchArgs,
    journal: &'t Journal,
    kernel: Box<dyn Tunable + 't>,
    since: Instant,
    /// The time that the search may take.
    share: Duration,
    bar: &'t SearchBar,
    /// The shape's index among those of the call.
    index: usize,
    /// Configurations that were measured for the shapes before.
    measured_before: usize,
    /// Configurations that were measured for this shape.
    tried: Cell<usize>,
}

/// The result for a shape.
struct TuneLine {
    shape: String,
    shipped: Summary,
    best: Summary,
    settings: Settings,
    tried: usize,
    kept: bool,
}

/// Rounds in which the shipped and the best configuration are measured in turns.
const TURNS: usize = 3;

impl Tuner<'_> {
    fn run(&self) -> Result<Option<TuneLine>, Failure> {
        let kernel = &self.kernel;
        let space = self.kernel.space();
        let is_kept = |row: &ResultRow| row.verdict.as_deref() == Some(KEPT);
        if let Some(row) = self.journal.before(kernel.suite(), &kernel.shape(), is_kept)
            && !self.args.again
            && self.args.trials.is_empty()
        {
            let line = format!("{} {} is tuned already; --again searches again", row.suite, row.shape_line());
            self.bar.suspend(|| paint::line(Word::Note, &line));
            return Ok(None);
        }
        let shipped = space.at(space.shipped());
        let configurations = match self.args.trials.len() {
            0 => space.len(),
            trials => trials + 1,
        };
        let measure = |settings: &Settings| {
            let found = self.measure(settings);
            self.advance(configurations);
            match found {
                // If the shipped configuration fails there is nothing to compare with.
                Err(failure) if *settings != shipped => {
                    self.bar.suspend(|| failure.report());
                    Ok(None)
                }
                found => found.map(Some),
            }
        };
        let found = if self.args.trials.is_empty() {
            let over = || self.since.elapsed() >= self.share;
            search(&space, |settings| kernel.predict(settings), self.args.seed, over, measure)?
                .map(|found| (found.best, found.tried))
        } else {
            let mut best = (measure(&shipped)?, shipped.clone());
            for trial in &self.args.trials {
                let settings = trial.iter().fold(shipped.clone(), |all, (name, value)| all.with(name, value));
                let us = measure(&settings)?;
                if us.is_some_and(|us| best.0.is_none_or(|least| us < least)) {
                    best = (us, settings);
                }
            }
            Some((best.1, self.args.trials.len() + 1))
        };
        let Some((best, tried)) = found else { return Ok(None) };
        self.decide(&shipped, best, tried).map(Some)
    }

    /// Counts a configuration that was measured.
    fn advance(&self, configurations: usize) {
        self.tried.set(self.tried.get() + 1);
        // Trials that are named are measured whatever the time.
        let budget = if self.args.trials.is_empty() { self.share } else { Duration::MAX };
        let progress =
            SearchProgress { tried: self.tried.get(), configurations, elapsed: self.since.elapsed(), budget };
        self.bar.show(self.index, self.measured_before + self.tried.get(), &progress);
    }

    /// Microseconds of a configuration: measured before, or now.
    fn measure(&self, settings: &Settings) -> Result<f64, Failure> {
        let variant = settings.to_string();
        let is_same = |row: &ResultRow| row.variant == variant && row.verdict.is_none() && row.median_us.is_some();
        if let Some(row) = self.journal.before(self.kernel.suite(), &self.kernel.shape(), is_same) {
            return Ok(row.median_us.unwrap_or(f64::INFINITY));
        }
        let row = ResultRow { variant, ..self.kernel.measure(settings)? };
        let us = row.median_us.unwrap_or(f64::INFINITY);
        self.bar.suspend(|| self.journal.keep(row))?;
        Ok(us)
    }

    /// Measures the best and the shipped configuration in turns, and keeps one of them.
    fn decide(&self, shipped: &Settings, best: Settings, tried: usize) -> Result<TuneLine, Failure> {
        let mut rows: [Option<ResultRow>; 2] = [None, None];
        let rounds = if best == *shipped { 1 } else { TURNS };
        for _ in 0..rounds {
            for (settings, to) in [shipped, &best].into_iter().zip(&mut rows) {
                let now = ResultRow { variant: settings.to_string(), ..self.kernel.measure(settings)? };
                *to = Some(match to.take() {
                    Some(before) => merged(before, now),
                    None => now,
                });
            }
        }
        let [Some(old), Some(new)] = rows else { unreachable!("there is a round") };
        let kept = wins(&old, &new, self.kernel.as_right());
        let summary = |row: &ResultRow| Summary::of(row).ok_or(BenchError::NoTime);
        let shape = new.shape_line();
        let settings = if kept { best } else { shipped.clone() };
        let line = TuneLine { shape, shipped: summary(&old)?, best: summary(&new)?, settings, tried, kept };
        let row = if kept { new } else { old };
        self.bar.suspend(|| self.journal.keep(ResultRow { verdict: Some(KEPT.to_owned()), ..row }))?;
        Ok(line)
    }
}

/// Merges two rows of one configuration.
fn merged(mut before: ResultRow, now: ResultRow) -> ResultRow {
    before.samples_us.extend(now.samples_us);
    before.error = before.error.zip(now.error).map(|(a, b)| a.max(b));
    (before.median_us, before.best_us) = (None, None);
    let summary = Summary::of(&before);
    (before.median_us, before.best_us) = summary.map(|summary| (summary.median, summary.best)).unzip();
    before
}

/// The factor by which an error may grow if sums have another order.
const AS_RIGHT: f64 = 1.1;

/// Whether a configuration is faster than the shipped one beyond the noise, and as accurate.
fn wins(shipped: &ResultRow, found: &ResultRow, right: f64) -> bool {
    let as_right = match (shipped.error, found.error) {
        (Some(old), Some(new)) => new <= (old * AS_RIGHT).max(right),
        (None, None) => true,
        _ => false,
    };
    let (Some(old), Some(new)) = (Summary::of(shipped), Summary::of(found)) else { return false };
    as_right && new.median < old.median && difference_is_significant(old, new)
}

fn table(to: &mut dyn Write, lines: &[TuneLine]) -> io::Result<()> {
    writeln!(to, "{:44} {:>10} {:>10} {:>7} {:>6} settings", "shape", "shipped us", "found us", "ratio", "tried")?;
    let mut ratios = Vec::new();
    for TuneLine { shape, shipped, best, settings, tried, kept } in lines {
        let ratio = if *kept { shipped.median / best.median } else { 1.0 };
        ratios.push(ratio.ln());
        let told = if *kept { settings.to_string() } else { "the shipped ones".to_owned() };
        let old = shipped.median;
        let new = best.median;
        writeln!(to, "{shape:44} {old:10.2} {new:10.2} {ratio:7.3} {tried:6} {told}")?;
    }
    if !ratios.is_empty() {
        let mean = (ratios.iter().sum::<f64>() / ratios.len() as f64).exp();
        writeln!(to, "geometric mean of {} ratios: {mean:.3}", ratios.len())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::bench::tunable::ShapeExtents;

    fn row(samples_us: &[f64], error: Option<f64>) -> ResultRow {
        ResultRow { samples_us: samples_us.to_vec(), error, ..ResultRow::default() }
    }

    #[test]
    fn kept_settings_are_faster_beyond_the_noise_and_as_accurate() {
        let shipped = row(&[100.0, 101.0, 99.0, 100.0, 100.0], Some(1e-3));
        assert!(wins(&shipped, &row(&[90.0, 91.0, 90.0, 90.0, 89.0], Some(1e-3)), 0.0));
        assert!(!wins(&shipped, &row(&[110.0, 111.0, 110.0, 110.0, 109.0], Some(1e-3)), 0.0), "slower");
        assert!(
            !wins(&shipped, &row(&[99.5, 99.6, 99.4, 99.5, 99.5], Some(1e-3)), 0.0),
            "less than a hundredth faster"
        );
        assert!(!wins(&shipped, &row(&[60.0, 140.0, 95.0, 130.0, 70.0], Some(1e-3)), 0.0), "noise");
        assert!(!wins(&shipped, &row(&[90.0, 91.0, 90.0, 90.0, 89.0], Some(2e-3)), 0.0), "twice the error");
        assert!(!wins(&shipped, &row(&[90.0, 91.0, 90.0, 90.0, 89.0], None), 0.0), "not checked");
        assert!(wins(&shipped, &row(&[90.0, 91.0, 90.0, 90.0, 89.0], Some(2e-3)), 2e-3), "as right as any");
    }

    #[test]
    fn rows_of_a_configuration_are_merged_with_the_larger_error() {
        let all = merged(row(&[1.0, 2.0, 3.0], Some(1e-3)), row(&[5.0, 4.0], Some(2e-3)));
        assert_eq!((all.median_us, all.best_us, all.error), (Some(3.0), Some(1.0), Some(2e-3)));
    }

    #[test]
    fn a_shape_has_the_extents_that_its_suite_names_and_no_others() {
        let named = |text: &str| ShapeExtents::parse(text).and_then(|extents| extents.named(["n", "k"]));
        assert_eq!(named("k=64,n=8").expect("is a shape"), [8, 64]);
        for wrong in ["n=8", "n=8,k=64,m=1", "n=8,n=8", "n=0,k=64", "n=4294967296,k=64", "n=8,k", ""] {
            assert_eq!(named(wrong).expect_err(wrong).to_string().lines().count(), 1);
        }
    }
}
