//! Selects the quoted figures: the newest run of each workload, and the best peer of that run.
//!
//! The generated benchmark page, the chart of the README and the dashboard all take their figures
//! from here, so that they cannot contradict each other. The policy:
//!
//! * A *workload* is a suite, a device, a shape and a form (number format, flow). Tiles and chunk
//!   sizes are settings, not workloads. Rows of a search over settings are trials and are not
//!   quoted.
//! * A *run* is everything measured on one device at one commit. The newest run is quoted. Of
//!   several settings it counts the fastest, of several repeats the middle one (the slower of two).
//! * The peer is the fastest one measured in that run: in the same call if there is one, otherwise
//!   at the same commit.
//! * Peers are of three kinds ([`PeerKind`]); a geometric mean covers one kind only.

use std::collections::{BTreeMap, HashMap};

use super::{ResultEntry, ResultRow, Results};

/// A workload: the computation that is measured, independent of the program that runs it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Workload<'r> {
    /// The suite: `decode`, `gemv` and so on.
    pub suite: &'r str,
    /// Product name of the device.
    pub device: &'r str,
    /// Extents by name.
    pub shape: &'r BTreeMap<String, u64>,
    /// Weight format, flow and so on; empty for the plain form, the only form that is compared with
    /// peers.
    pub form: String,
}

/// The execution model of a peer; means do not mix kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PeerKind {
    /// A single kernel of a vendor's library.
    Library,
    /// A framework that launches one kernel per operation, perhaps within a CUDA graph.
    Eager,
    /// A framework whose compiler fused the operations.
    Compiled,
}

impl PeerKind {
    /// The kind of a peer by its name in the rows.
    pub fn of(who: &str) -> PeerKind {
        match who {
            who if who.contains("compile") => PeerKind::Compiled,
            who if who.starts_with("pytorch") => PeerKind::Eager,
            _ => PeerKind::Library,
        }
    }
}

/// This project's time next to the best peer of the same run.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'r> {
    /// This project's row.
    pub ours: ResultEntry<'r>,
    /// The fastest peer.
    pub peer: ResultEntry<'r>,
}

impl Comparison<'_> {
    /// The peer's time over ours: above 1, ours is faster.
    pub fn ratio(&self) -> f64 {
        self.peer.us() / self.ours.us()
    }

    /// The kind of the peer.
    pub fn kind(&self) -> PeerKind {
        PeerKind::of(&self.peer.row.who)
    }
}

/// The figures that are quoted for a workload.
#[derive(Clone, Debug)]
pub struct Figures<'r> {
    /// The workload.
    pub workload: Workload<'r>,
    /// The newest measurement.
    pub latest: ResultEntry<'r>,
    /// The newest run that measured a peer too.
    pub compared: Option<Comparison<'r>>,
}

impl Figures<'_> {
    /// Whether the newest measurement has no peer in its run.
    pub fn is_newer_than_its_peer(&self) -> bool {
        self.compared.is_none_or(|compared| compared.ours.number != self.latest.number)
    }
}

/// Geometric mean of ratios, by kind of peer: the kind, the mean, the number of workloads.
pub fn means<'c, 'r: 'c>(
    comparisons: impl IntoIterator<Item = &'c Comparison<'r>>,
) -> BTreeMap<PeerKind, (f64, usize)> {
    let mut sums: BTreeMap<PeerKind, (f64, usize)> = BTreeMap::new();
    for comparison in comparisons {
        let (sum, count) = sums.entry(comparison.kind()).or_default();
        *sum += comparison.ratio().ln();
        *count += 1;
    }
    sums.into_iter().map(|(kind, (sum, count))| (kind, ((sum / count as f64).exp(), count))).collect()
}

/// The runs of every workload, from rows in one pass.
pub struct WorkloadRuns<'r> {
    /// Our entries by workload, then by run.
    ours: HashMap<Workload<'r>, HashMap<&'r str, Vec<ResultEntry<'r>>>>,
    /// Peers by workload and run.
    peers: HashMap<(Workload<'r>, &'r str), Vec<ResultEntry<'r>>>,
}

impl<'r> WorkloadRuns<'r> {
    /// Sorts rows with a time by workload and run.
    pub fn new(results: &'r Results) -> WorkloadRuns<'r> {
        let (mut ours, mut peers): (HashMap<_, HashMap<_, Vec<_>>>, HashMap<_, Vec<_>>) = Default::default();
        for entry in
            ResultEntry::all(results).filter(|entry| entry.row.copy_of.is_none() && entry.row.median_us.is_some())
        {
            let workload =
                |form| Workload { suite: &entry.row.suite, device: &entry.call.device, shape: &entry.row.shape, form };
            if !entry.row.is_ours() {
                peers.entry((workload(String::new()), run(&entry))).or_default().push(entry);
            } else if let Some(form) = form(&entry) {
                ours.entry(workload(form)).or_default().entry(run(&entry)).or_default().push(entry);
            }
        }
        WorkloadRuns { ours, peers }
    }

    /// The figures that are quoted, ordered by suite, device and shape.
    pub fn figures(&self) -> Vec<Figures<'r>> {
        let mut figures: Vec<Figures<'r>> = Vec::with_capacity(self.ours.len());
        for (workload, runs) in &self.ours {
            // The name of the run decides between runs of one age, so that the order does not
            // depend on hashes.
            let newest = |(run, entries): &(&&'r str, &Vec<ResultEntry<'r>>)| {
                (entries.iter().map(ResultEntry::age).max(), **run)
            };
            let Some(latest) = runs.iter().max_by_key(newest).map(|(run, _)| self.quoted(workload, run)) else {
                continue;
            };
            let compared = runs
                .iter()
                .filter(|(run, _)| self.peers_of(workload, run).is_some())
                .max_by_key(newest)
                .and_then(|(run, _)| self.comparison(workload, run));
            if let Some(latest) = latest {
                figures.push(Figures { workload: workload.clone(), latest, compared });
            }
        }
        figures.sort_by(|a, b| {
            let key = |figures: &Figures<'r>| (figures.workload.suite, figures.workload.device, figures.latest.order());
            key(a).cmp(&key(b)).then_with(|| a.workload.cmp(&b.workload))
        });
        figures
    }

    /// The quoted entry of every run of a workload, from old to new.
    pub fn history(&self, workload: &Workload<'r>) -> Vec<ResultEntry<'r>> {
        let runs = self.ours.get(workload).into_iter().flat_map(HashMap::keys);
        let mut history: Vec<ResultEntry<'r>> = runs.filter_map(|run| self.quoted(workload, run)).collect();
        history.sort_by_key(|entry| (entry.age(), entry.number));
        history
    }

    fn peers_of(&self, workload: &Workload<'r>, run: &'r str) -> Option<&Vec<ResultEntry<'r>>> {
        self.peers.get(&(workload.clone(), run))
    }

    /// Our entry that stands for a run: among those of calls with a peer, if there are any, the
    /// fastest setting's middle.
    fn quoted(&self, workload: &Workload<'r>, run: &'r str) -> Option<ResultEntry<'r>> {
        let entries = self.ours.get(workload)?.get(run)?;
        let calls: Vec<&str> =
            self.peers_of(workload, run).into_iter().flatten().map(|peer| peer.call.id.as_str()).collect();
        let beside: Vec<ResultEntry<'r>> =
            entries.iter().copied().filter(|entry| calls.contains(&entry.call.id.as_str())).collect();
        let entries = if beside.is_empty() { entries.clone() } else { beside };
        let mut settings: BTreeMap<&str, Vec<ResultEntry<'r>>> = BTreeMap::new();
        for entry in entries {
            settings.entry(&entry.row.variant).or_default().push(entry);
        }
        let middles = settings.into_values().filter_map(|mut repeats| {
            repeats.sort_by(|a, b| a.us().total_cmp(&b.us()));
            repeats.get(repeats.len() / 2).copied()
        });
        middles.min_by(|a, b| a.us().total_cmp(&b.us()))
    }

    fn comparison(&self, workload: &Workload<'r>, run: &'r str) -> Option<Comparison<'r>> {
        let ours = self.quoted(workload, run)?;
        let peers = self.peers_of(workload, run)?;
        let fastest = |near: &dyn Fn(&ResultEntry<'r>) -> bool| {
            peers.iter().copied().filter(near).min_by(|a, b| a.us().total_cmp(&b.us()))
        };
        let peer = fastest(&|peer| peer.call.id == ours.call.id).or_else(|| fastest(&|_| true))?;
        (ours.us() > 0.0 && peer.us() > 0.0).then_some(Comparison { ours, peer })
    }
}

/// The identity of a run of a device: the commit, or the call if its commit is unknown.
fn run<'r>(entry: &ResultEntry<'r>) -> &'r str {
    entry.call.commit.as_deref().unwrap_or(&entry.call.id)
}

/// Suites that profile or search; their rows are not quoted.
const NOT_QUOTED: [&str; 4] = ["timeline", "launches", "counters", "decode trials"];

/// Width of the smallest model that is quoted; smaller ones exist for tests.
const LEAST_WIDTH: u64 = 1024;

/// Beginnings of the parts of a variant that name a number format, a flow or a transport.
const FORMS: [&str; 9] = ["w4", "w8", "fp8", "mxfp", "nvfp", "GPTQ", "AWQ", "act-order", "flow "];

/// The form of an entry, or `None` for a trial.
///
/// A trial is a row of a search (`tilewright tune`), one whose variant has a setting (`stages=4`),
/// one whose variant has a word that this function does not know, or one of a model that exists for
/// tests.
fn form(entry: &ResultEntry<'_>) -> Option<String> {
    let ResultRow { suite, variant, .. } = entry.row;
    if NOT_QUOTED.contains(&suite.as_str()) || entry.call.command.contains("tune") || variant.contains('=') {
        return None;
    }
    if entry.extent("hidden").is_some_and(|hidden| hidden < LEAST_WIDTH) {
        return None;
    }
    match suite.as_str() {
        "attention" => ["decode", "prefill"].contains(&variant.as_str()).then(String::new),
        "gemv" => (variant.is_empty() || variant.starts_with("wgmma ")).then(String::new),
        suite if suite.starts_with("gemm") => Some(String::new()),
        "decode" | "prefill" => {
            let mut forms: Vec<&str> = Vec::new();
            for part in variant.split(", ").filter(|part| !part.is_empty()) {
                let counted = ["launches of ", "chunks of ", "median of "].iter().any(|start| part.starts_with(start));
                match part {
                    "launches of 1" => forms.push("one launch per token"),
                    "graph" => {}
                    _ if counted => {}
                    "NCCL" => forms.push("all-reduce by NCCL"),
                    part if FORMS.iter().any(|form| part.starts_with(form)) => forms.push(part),
                    _ => return None,
                }
            }
            // Old prefill rows name the format of the weights in their command only.
            if suite == "prefill" && forms.is_empty() {
                forms.extend(option(&entry.call.command, "--weights"));
            }
            Some(forms.join(", "))
        }
        _ => Some(variant.clone()),
    }
}

/// The value of an option in a command line.
fn option<'c>(command: &'c str, name: &str) -> Option<&'c str> {
    let mut words = command.split_whitespace().skip_while(|word| *word != name);
    words.next()?;
    words.next()
}

/// Rates that a device reached in the runs of these results: the median over its calls, which is
/// the measured ceiling of calls that did not measure their own.
pub struct Peaks<'r> {
    by_device: HashMap<&'r str, [Option<f64>; 2]>,
}

/// The least time that a row's bytes and operations allow, and the share of it that was reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// Floor over time: 1 would be the limit of the device.
    pub share: f64,
    /// Whether the row's own call measured the rate; otherwise the device's other calls did.
    pub measured_in_call: bool,
}

impl<'r> Peaks<'r> {
    /// Collects the read and matrix peaks of every device.
    pub fn new(results: &'r Results) -> Peaks<'r> {
        let mut rates: HashMap<&str, [Vec<f64>; 2]> = HashMap::new();
        for call in &results.calls {
            let of_device = rates.entry(&call.device).or_default();
            for (rates, rate) in of_device.iter_mut().zip([call.read_peak, call.matrix_peak]) {
                rates.extend(rate.filter(|rate| *rate > 0.0));
            }
        }
        let median = |mut rates: Vec<f64>| {
            rates.sort_by(f64::total_cmp);
            rates.get(rates.len() / 2).copied()
        };
        Peaks { by_device: rates.into_iter().map(|(device, rates)| (device, rates.map(median))).collect() }
    }

    /// Bytes per second that a device read, median of its calls.
    pub fn read(&self, device: &str) -> Option<f64> {
        self.by_device.get(device)?[0]
    }

    /// Operations per second of bf16 matrix instructions, median of the device's calls.
    pub fn matrix(&self, device: &str) -> Option<f64> {
        self.by_device.get(device)?[1]
    }

    /// The share of the measured floor that an entry reaches: memory or matrix instructions,
    /// whichever binds. `None` if a needed rate was not measured; the matrix peak is that of bf16,
    /// so products of 8-bit factors have no floor.
    pub fn floor(&self, entry: &ResultEntry<'_>) -> Option<Floor> {
        let ResultEntry { row, call, .. } = entry;
        // The batched decode graph and prefill count the bytes of bf16 weights even if theirs are
        // codes.
        let codes = row.shape.contains_key("weight_bits") || call.command.contains("--weights");
        let miscounted = codes && (row.suite == "prefill" || row.variant.starts_with("graph"));
        if miscounted || ["e4m3", "s8"].iter().any(|narrow| row.suite.contains(narrow)) {
            return None;
        }
        let devices = entry.devices() as f64;
        let share = |rate: Option<f64>, own: Option<f64>, others: Option<f64>| {
            let own = own.filter(|peak| *peak > 0.0);
            Some(Floor { share: rate? / (own.or(others)? * devices), measured_in_call: own.is_some() })
        };
        let memory = share(row.bandwidth(), call.read_peak, self.read(&call.device));
        let matrix = share(row.throughput(), call.matrix_peak, self.matrix(&call.device));
        let nearest = memory.into_iter().chain(matrix).max_by(|a, b| a.share.total_cmp(&b.share));
        nearest.filter(|floor| floor.share.is_finite())
    }
}
