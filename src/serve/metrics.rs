//! Metrics in Prometheus' text format. Names with the prefix `vllm:` are those that gateways such as
//! llm-d read; they have the meaning that they have there.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::engine::{BatcherLoad, Finish, ServerEvent};

/// Upper bounds of the buckets of the time to the first token, in seconds.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0,
];
/// The same of the time from a token to the next.
const NEXT_TOKEN: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0];
/// The same of the time of a whole request.
const REQUEST: &[f64] =
    &[0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0];

/// What was counted since the server began.
pub struct Metrics {
    first_token: Histogram,
    next_token: Histogram,
    request: Histogram,
    prompt_tokens: AtomicU64,
    ends: [AtomicU64; ENDS.len()],
    refused: AtomicU64,
    connections: AtomicU64,
    open_connections: AtomicU64,
}

/// Why requests end, by the label of `vllm:request_success_total` and of our own counter.
const ENDS: [&str; 5] = ["stop", "length", "cancelled", "deadline", "fault"];

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            first_token: Histogram::new(FIRST_TOKEN),
            next_token: Histogram::new(NEXT_TOKEN),
            request: Histogram::new(REQUEST),
            prompt_tokens: AtomicU64::default(),
            ends: Default::default(),
            refused: AtomicU64::default(),
            connections: AtomicU64::default(),
            open_connections: AtomicU64::default(),
        }
    }
}

impl Metrics {
    /// Counts a request of the engine that was taken, by the tokens of its prompt.
    pub fn taken(&self, prompt: usize) {
        self.prompt_tokens.fetch_add(prompt as u64, Ordering::Relaxed);
    }

    /// Counts a request that was refused.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection while it is open.
    pub fn connected(&self) -> OpenConnection<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.open_connections.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self)
    }

    /// The metrics as text; `load` is the batcher's.
    pub fn text(&self, model: &str, load: &BatcherLoad) -> String {
        let mut page = Page { text: String::new(), label: format!("model_name=\"{}\"", escaped(model)) };
        let pages = load.pages.max(1) as f64;
        page.gauge("vllm:num_requests_running", "Requests that have a seat.", load.running as f64);
        page.gauge("vllm:num_requests_waiting", "Requests that wait for a seat or for pages.", load.waiting as f64);
        let used = load.held_pages as f64 / pages;
        page.gauge("vllm:gpu_cache_usage_perc", "Share of the KV cache's pages that running requests hold.", used);
        page.gauge("vllm:kv_cache_usage_perc", "The same, by vLLM's newer name.", used);
        page.histogram("vllm:time_to_first_token_seconds", "Time to the first token.", &self.first_token);
        page.histogram("vllm:time_per_output_token_seconds", "Time from a token to the next.", &self.next_token);
        page.histogram("vllm:e2e_request_latency_seconds", "Time of a whole request.", &self.request);
        let statistics = &load.statistics;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.counter("vllm:prompt_tokens_total", "Tokens of prompts.", read(&self.prompt_tokens));
        page.counter("vllm:generation_tokens_total", "Tokens that were generated.", statistics.tokens);
        page.counter("vllm:num_preemptions_total", "Requests that lost their pages.", statistics.preemptions);
        page.ends("vllm:request_success_total", "Requests that ended, by reason.", &self.ends[..2], &ENDS[..2]);
        page.ends("tilewright:requests_total", "Requests that ended, by reason.", &self.ends, &ENDS);
        page.counter("tilewright:requests_refused_total", "Requests that were refused.", read(&self.refused));
        page.gauge("tilewright:seats", "Most requests that run at a time.", load.seats as f64);
        page.gauge("tilewright:kv_pages", "Pages of the KV cache.", load.pages as f64);
        page.gauge("tilewright:kv_pages_held", "Pages that running requests hold.", load.held_pages as f64);
        page.counter("tilewright:steps_total", "Steps of the model.", statistics.steps);
        page.counter("tilewright:rows_total", "Rows of these steps that held a token.", statistics.rows);
        let shared = "Tokens of prompts that were found in pages of others.";
        page.counter("tilewright:shared_tokens_total", shared, statistics.shared_tokens);
        page.counter("tilewright:connections_total", "Connections that were accepted.", read(&self.connections));
        page.gauge("tilewright:connections_open", "Connections that are open.", read(&self.open_connections) as f64);
        page.text
    }
}

/// A connection while it is open.
pub struct OpenConnection<'m>(&'m Metrics);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.open_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The times of a request's tokens.
pub struct RequestTimes {
    arrived: Instant,
    last: Option<Instant>,
}

impl RequestTimes {
    /// The times of a request that arrived then.
    pub fn new(arrived: Instant) -> RequestTimes {
        RequestTimes { arrived, last: None }
    }

    /// Records an event of the request.
    pub fn note(&mut self, event: &ServerEvent, metrics: &Metrics) {
        let now = Instant::now();
        let end = match event {
            ServerEvent::Token { .. } => {
                match self.last.replace(now) {
                    Some(last) => metrics.next_token.observe(now - last),
                    None => metrics.first_token.observe(now - self.arrived),
                }
                return;
            }
            ServerEvent::End { completion, .. } => match completion.finish {
                Finish::Stop(_) => 0,
                Finish::Length | Finish::Positions => 1,
                Finish::Cancelled => 2,
                Finish::Deadline => 3,
            },
            ServerEvent::Fault(_) => 4,
        };
        metrics.ends[end].fetch_add(1, Ordering::Relaxed);
        metrics.request.observe(now - self.arrived);
    }
}

/// Counts of times by buckets.
struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for longer times.
    counts: Vec<AtomicU64>,
    nanoseconds: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::default()).collect();
        Histogram { bounds, counts, nanoseconds: AtomicU64::default() }
    }

    fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = self.bounds.partition_point(|&bound| bound < seconds);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// The text of the metrics.
struct Page {
    text: String,
    label: String,
}

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: std::fmt::Arguments) {
        // Writing to a text cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        let label = self.label.clone();
        self.line(format_args!("{name}{{{label}}} {value}"));
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        let label = self.label.clone();
        self.line(format_args!("{name}{{{label}}} {value}"));
    }

    fn ends(&mut self, name: &str, help: &str, counts: &[AtomicU64], reasons: &[&str]) {
        self.head(name, help, "counter");
        let label = self.label.clone();
        for (count, reason) in counts.iter().zip(reasons) {
            let count = count.load(Ordering::Relaxed);
            self.line(format_args!("{name}{{finished_reason=\"{reason}\",{label}}} {count}"));
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, help, "histogram");
        let label = self.label.clone();
        let mut sum = 0;
        let bounds = histogram.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&histogram.counts) {
            sum += count.load(Ordering::Relaxed);
            self.line(format_args!("{name}_bucket{{le=\"{bound}\",{label}}} {sum}"));
        }
        let seconds = Duration::from_nanos(histogram.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
        self.line(format_args!("{name}_sum{{{label}}} {seconds}"));
        self.line(format_args!("{name}_count{{{label}}} {sum}"));
    }
}

/// The value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_the_last_has_all() {
        let metrics = Metrics::default();
        for milliseconds in [1, 3, 70_000_000] {
            metrics.first_token.observe(Duration::from_millis(milliseconds));
        }
        let text =
            metrics.text("a \"model\"", &BatcherLoad { running: 2, pages: 4, held_pages: 1, ..BatcherLoad::default() });
        let name = "vllm:time_to_first_token_seconds";
        let label = "model_name=\"a \\\"model\\\"\"";
        for line in [
            format!("{name}_bucket{{le=\"0.001\",{label}}} 1"),
            format!("{name}_bucket{{le=\"0.005\",{label}}} 2"),
            format!("{name}_bucket{{le=\"640\",{label}}} 2"),
            format!("{name}_bucket{{le=\"+Inf\",{label}}} 3"),
            format!("{name}_count{{{label}}} 3"),
            format!("{name}_sum{{{label}}} 70000.004"),
            format!("vllm:num_requests_running{{{label}}} 2"),
            format!("vllm:gpu_cache_usage_perc{{{label}}} 0.25"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_connection_is_counted_while_it_is_open() {
        let metrics = Metrics::default();
        let open = metrics.connected();
        assert_eq!(metrics.open_connections.load(Ordering::Relaxed), 1);
        drop(open);
        assert_eq!(metrics.open_connections.load(Ordering::Relaxed), 0);
    }
}
