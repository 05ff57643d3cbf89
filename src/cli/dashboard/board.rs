//! Results made ready for the views: which peer stands beside a row, what a device could do at most, what repeats.

use tilewright_codegen::target::Target;
use tilewright_megakernel::model::ModelSpec;

use crate::results::{Call, Results, Row, Summary};

/// A row with its number, which is its address on the page, and its call.
#[derive(Clone, Copy)]
pub struct Entry<'r> {
    pub number: usize,
    pub row: &'r Row,
    pub call: &'r Call,
}

/// Operations a second of the data sheet: device, 16-bit factors, 8-bit factors; dense.
const MATRIX_SHEET: [(&str, f64, f64); 2] = [("h100", 989e12, 1979e12), ("h200", 989e12, 1979e12)];

/// A ceiling, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// Bytes or operations a second.
    pub rate: f64,
    /// `this call`, `an earlier probe` or `data sheet`.
    pub known_by: &'static str,
}

/// Results, in the order in which they were read.
pub struct Board<'r> {
    pub results: &'r Results,
}

impl<'r> Board<'r> {
    pub fn new(results: &'r Results) -> Board<'r> {
        Board { results }
    }

    /// Every row.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'r>> + '_ {
        let results = self.results;
        results.rows.iter().enumerate().map(|(number, (call, row))| Entry { number, row, call: &results.calls[*call] })
    }

    /// Our rows of a suite that are no printed copies of others.
    pub fn ours(&self, suite: &str) -> Vec<Entry<'r>> {
        self.entries().filter(|e| e.row.suite == suite && e.row.is_ours() && e.row.copy_of.is_none()).collect()
    }

    /// The suites that have times, in the order in which they come.
    pub fn timed_suites(&self) -> Vec<&'r str> {
        let mut suites = Vec::new();
        for entry in self.entries().filter(|e| e.row.bytes.is_some() && e.row.median_us.is_some()) {
            if !suites.contains(&entry.row.suite.as_str()) {
                suites.push(entry.row.suite.as_str());
            }
        }
        suites
    }

    /// The fastest peer of a row: of the same call, or else of the same device and commit.
    pub fn peer(&self, entry: &Entry<'_>) -> Option<Entry<'r>> {
        let same_shape =
            |e: &Entry<'_>| e.row.suite == entry.row.suite && e.row.shape == entry.row.shape && !e.row.is_ours();
        let fastest = |near: &dyn Fn(&Entry<'_>) -> bool| {
            let peers = self.entries().filter(|e| same_shape(e) && near(e) && e.row.median_us.is_some());
            peers.min_by(|a, b| a.row.median_us.unwrap_or(f64::NAN).total_cmp(&b.row.median_us.unwrap_or(f64::NAN)))
        };
        let of_the_call = fastest(&|e| e.call.id == entry.call.id);
        of_the_call.or_else(|| {
            let known = entry.call.commit.is_some();
            fastest(&|e| known && (&e.call.device, &e.call.commit) == (&entry.call.device, &entry.call.commit))
        })
    }

    /// Of the entries that a key makes equal, the newest: calls that name their commit first, then by day and by commit's time.
    pub fn newest<K: PartialEq>(entries: Vec<Entry<'r>>, key: impl Fn(&Entry<'r>) -> K) -> Vec<Entry<'r>> {
        let mut newest: Vec<Entry<'r>> = Vec::new();
        for entry in entries {
            let age = |e: &Entry<'r>| (e.call.commit.is_some(), e.when());
            match newest.iter_mut().find(|known| key(known) == key(&entry)) {
                Some(known) if age(known) < age(&entry) => *known = entry,
                Some(_) => {}
                None => newest.push(entry),
            }
        }
        newest
    }

    /// The target whose name a device's name contains.
    pub fn target(device: &str) -> Option<Target> {
        let device = device.to_ascii_lowercase();
        Target::names().find(|name| device.contains(name)).and_then(Target::named)
    }

    /// What reading device memory could reach in a call.
    pub fn read_ceiling(call: &Call) -> Option<Ceiling> {
        let measured = call.read_peak.map(|rate| Ceiling { rate, known_by: "this call" });
        measured.or_else(|| {
            let target = Board::target(&call.device)?;
            let probed = target.read_bandwidth.map(|rate| Ceiling { rate, known_by: "an earlier probe" });
            let sheet = (target.peak_bandwidth > 0.0)
                .then_some(Ceiling { rate: target.peak_bandwidth, known_by: "data sheet" });
            probed.or(sheet)
        })
    }

    /// What matrix instructions could reach in a call; those of 8-bit factors where the suite's name says so.
    pub fn matrix_ceiling(call: &Call, suite: &str) -> Option<Ceiling> {
        let measured = call.matrix_peak.map(|rate| Ceiling { rate, known_by: "this call" });
        measured.or_else(|| {
            let target = Board::target(&call.device)?;
            let &(_, wide, narrow) = MATRIX_SHEET.iter().find(|row| row.0 == target.name)?;
            let rate = if suite.contains("e4m3") || suite.contains("s8") { narrow } else { wide };
            Some(Ceiling { rate, known_by: "data sheet" })
        })
    }

    /// The part of its ceiling that a row reaches: of the memory or of the matrix instructions, whichever is nearer.
    pub fn share_of_ceiling(entry: &Entry<'_>) -> Option<f64> {
        let part = |rate: Option<f64>, ceiling: Option<Ceiling>| Some(rate? / ceiling?.rate);
        let memory = part(entry.row.bandwidth(), Board::read_ceiling(entry.call));
        let matrix = part(entry.row.throughput(), Board::matrix_ceiling(entry.call, &entry.row.suite));
        memory.into_iter().chain(matrix).max_by(f64::total_cmp)
    }

    /// Rows of the same measurement on the same device by different calls, in the order of their commits; the
    /// measurements that only one call has are left out.
    pub fn histories(&self, suites: &[&str]) -> Vec<Vec<Entry<'r>>> {
        let mut groups: Vec<Vec<Entry<'r>>> = Vec::new();
        let timed = |e: &Entry<'_>| e.row.copy_of.is_none() && e.row.is_ours() && Summary::of(e.row).is_some();
        for entry in self.entries().filter(|e| suites.contains(&e.row.suite.as_str()) && timed(e)) {
            let same =
                |first: &Entry<'_>| first.row.is_same_measurement(entry.row) && first.call.device == entry.call.device;
            match groups.iter_mut().find(|group| same(&group[0])) {
                Some(group) => group.push(entry),
                None => groups.push(vec![entry]),
            }
        }
        groups.retain(|group| group.iter().any(|entry| entry.call.id != group[0].call.id));
        for group in &mut groups {
            group.sort_by_key(Entry::when);
        }
        groups
    }
}

impl<'r> Entry<'r> {
    /// The day, and when the commit was made.
    pub fn when(&self) -> (&'r str, Option<&'r str>) {
        (self.call.date.get(..10).unwrap_or(&self.call.date), self.call.committed.as_deref())
    }

    /// An extent of the shape.
    pub fn extent(&self, name: &str) -> Option<u64> {
        self.row.shape.get(name).copied()
    }

    /// The known model of that width and depth.
    pub fn model(&self) -> Option<(&'static str, ModelSpec)> {
        let (hidden, layers) = (self.extent("hidden")?, self.extent("layers")?);
        let named = ModelSpec::names().filter_map(|name| Some((name, ModelSpec::named(name)?)));
        let mut same = named.filter(|(_, spec)| (spec.hidden as u64, spec.layers as u64) == (hidden, layers));
        same.next()
    }

    /// The shape in few words: the model's name in place of its extents where it is known.
    pub fn label(&self) -> String {
        let Some((name, _)) = self.model() else { return self.row.shape_line() };
        let rest = self.row.shape.iter().filter(|(extent, _)| !["hidden", "layers"].contains(&extent.as_str()));
        let rest: Vec<String> = rest.map(|(name, extent)| format!("{name}={extent}")).collect();
        format!("{name} {}", rest.join(" "))
    }

    /// The device in few words: `H100`, or its whole name.
    pub fn device(&self) -> String {
        Board::target(&self.call.device).map_or_else(|| self.call.device.clone(), |target| target.name.to_uppercase())
    }
}
