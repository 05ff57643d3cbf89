//! A row of results together with its run, and the names that a reader sees.

use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_megakernel::model::ModelSpec;

use super::{Call, ResultRow, Results};

/// A row, its run, and its position in [`Results::rows`].
#[derive(Clone, Copy, Debug)]
pub struct ResultEntry<'r> {
    /// Index into [`Results::rows`].
    pub number: usize,
    /// The measurement.
    pub row: &'r ResultRow,
    /// The run that it belongs to.
    pub call: &'r Call,
}

/// Orders runs: day, commit time (the start of the run if the commit time is unknown), start of the
/// run.
pub type Age<'r> = (&'r str, &'r str, &'r str);

impl<'r> ResultEntry<'r> {
    /// Iterates over all rows in the order in which they were read.
    pub fn all(results: &'r Results) -> impl Iterator<Item = ResultEntry<'r>> {
        results.rows.iter().enumerate().map(|(number, (call, row))| ResultEntry {
            number,
            row,
            call: &results.calls[*call],
        })
    }

    /// Orders measurements from old to new.
    pub fn age(&self) -> Age<'r> {
        let date = self.call.date.as_str();
        (self.day(), self.call.committed.as_deref().unwrap_or(date), date)
    }

    /// The day of the run, `YYYY-MM-DD`.
    pub fn day(&self) -> &'r str {
        self.call.date.get(..10).unwrap_or(&self.call.date)
    }

    /// The commit, at most eight digits.
    pub fn commit(&self) -> Option<&'r str> {
        self.call.commit.as_deref().map(|commit| commit.get(..8).unwrap_or(commit))
    }

    /// An extent of the shape, by name.
    pub fn extent(&self, name: &str) -> Option<u64> {
        self.row.shape.get(name).copied()
    }

    /// Orders workloads of a suite for a reader: by model and devices, then by kind, then by size.
    pub fn order(&self) -> (bool, [Option<u64>; 10]) {
        let names = ["hidden", "devices", "causal", "depth", "batch", "context", "m", "n", "k", "tokens"];
        (self.row.shape.contains_key("queries"), names.map(|name| self.extent(name)))
    }

    /// The median time, microseconds; NaN if the row has none.
    pub fn us(&self) -> f64 {
        self.row.median_us.unwrap_or(f64::NAN)
    }

    /// Number of devices that shared the work.
    pub fn devices(&self) -> u64 {
        self.extent("devices").unwrap_or(1).max(1)
    }

    /// The known model with the row's width and depth.
    pub fn model(&self) -> Option<(&'static str, ModelSpec)> {
        let hidden = self.extent("hidden")?;
        let layers = self.extent("layers")?;
        let named = Llama::names().filter_map(|name| Some((name, ModelSpec::named(name)?)));
        let mut same = named.filter(|(_, spec)| (spec.hidden as u64, spec.layers as u64) == (hidden, layers));
        same.next()
    }

    /// The published model with the row's width and depth that is not a [`Llama`].
    fn other_model(&self) -> Option<&'static str> {
        const OTHERS: [([u64; 2], &str); 11] = [
            ([2304, 26], "Gemma-2-2B"),
            ([2560, 34], "Gemma-3-4B"),
            ([3072, 32], "Phi-4-mini"),
            ([4096, 40], "GLM-4-9B"),
            ([2048, 40], "Granite-3.3-2B"),
            ([2048, 36], "SmolLM3-3B"),
            ([2048, 48], "Qwen3-30B-A3B"),
            ([2048, 12], "12 layers of Qwen3-30B-A3B"),
            ([2048, 2], "2 layers of Qwen3-30B-A3B"),
            ([2880, 24], "gpt-oss-20b"),
            ([2880, 2], "2 layers of gpt-oss-20b"),
        ];
        let sizes = [self.extent("hidden")?, self.extent("layers")?];
        OTHERS.iter().find_map(|(known, name)| (*known == sizes).then_some(*name))
    }

    /// The device's short name, such as `H100`, or its full product name if the device is unknown.
    pub fn device(&self) -> String {
        device_name(&self.call.device)
    }

    /// The name of the model, such as `Llama-3.2-1B`, or its extents if the model is unknown.
    fn model_name(&self) -> String {
        match self.model() {
            Some((name, _)) => name
                .split('-')
                .map(|part| match part.strip_suffix('b') {
                    Some(size) => format!("{size}B"),
                    None => format!("{}{}", part[..1].to_uppercase(), &part[1..]),
                })
                .collect::<Vec<_>>()
                .join("-"),
            None => self.other_model().map_or_else(
                || {
                    let extent = |name| self.extent(name).map_or_else(|| "?".to_owned(), |extent| extent.to_string());
                    format!("a model of width {} and {} layers", extent("hidden"), extent("layers"))
                },
                str::to_owned,
            ),
        }
    }

    /// The workload in words: model, batch, context, precision, devices; of a kernel, its extents.
    ///
    /// ```
    /// use tilewright::results::{ResultEntry, Results};
    /// let text = r#"{"suite": "decode", "who": "tilewright", "median_us": 575.0,
    ///     "shape": {"hidden": 2048, "layers": 16, "batch": 8, "context": 1024, "devices": 2}}"#;
    /// let mut results = Results::default();
    /// results.add(&text.replace('\n', ""), "a.jsonl").unwrap();
    /// let entry = ResultEntry::all(&results).next().unwrap();
    /// assert_eq!(entry.label(), "Llama-3.2-1B, batch 8, context 1024, 2 GPUs");
    /// ```
    pub fn label(&self) -> String {
        let extent = |name: &str| self.extent(name).unwrap_or_default();
        let mut label = match self.row.suite.as_str() {
            "decode" => format!("{}, batch {}, context {}", self.model_name(), extent("batch"), extent("context")),
            "prefill" => format!("{}, {} tokens", self.model_name(), extent("tokens")),
            "attention" if self.row.shape.contains_key("queries") => {
                let causal = if extent("causal") == 1 { "causal" } else { "full" };
                format!("prefill, {} tokens, {causal}, head size {}", extent("tokens"), extent("depth"))
            }
            "attention" => {
                let batch = extent("batch");
                let depth = extent("depth");
                let plural = if batch == 1 { "" } else { "s" };
                let seen = |name: &str, word| self.extent(name).map(|tokens| format!(", {word} {tokens}"));
                let [window, room] = [seen("window", "a window of"), seen("capacity", "room for")];
                let rest = [window, room].map(Option::unwrap_or_default).concat();
                format!("decode, {batch} sequence{plural} × {} tokens, head size {depth}{rest}", extent("tokens"))
            }
            "gemv" => format!("{} × {}, batch {}", extent("n"), extent("k"), extent("batch")),
            suite if suite.starts_with("gemm") => {
                let groups = self.extent("groups").filter(|groups| *groups > 1);
                let groups = groups.map(|groups| format!("{groups} groups of ")).unwrap_or_default();
                format!("{groups}{} × {} × {}", extent("m"), extent("n"), extent("k"))
            }
            _ if self.model().is_some() => {
                let rest = self.row.shape.iter().filter(|(name, _)| !["hidden", "layers"].contains(&name.as_str()));
                let rest: Vec<String> = rest.map(|(name, extent)| format!("{name} {extent}")).collect();
                format!("{}, {}", self.model_name(), rest.join(", "))
            }
            _ => {
                let shape: Vec<String> =
                    self.row.shape.iter().map(|(name, extent)| format!("{name} {extent}")).collect();
                shape.join(", ")
            }
        };
        if ["decode", "prefill"].contains(&self.row.suite.as_str()) {
            let gpus = (self.devices() > 1).then(|| format!("{} GPUs", self.devices()));
            let codes = self.extent("weight_bits").map(|bits| format!("{bits}-bit weights"));
            let cache = self.extent("kv_bits").map(|bits| format!("{bits}-bit KV cache"));
            let flow = self.extent("flow_blocks").map(|blocks| format!("{blocks} blocks of keys selected"));
            for part in [gpus, codes, cache, flow].into_iter().flatten() {
                label = format!("{label}, {part}");
            }
        } else if let Some(bits) = self.extent("bits").filter(|bits| *bits < 16) {
            label = format!("{label}, {bits}-bit weights");
        }
        label
    }

    /// The peer's name in words, such as `PyTorch (torch.compile)`.
    pub fn peer_name(&self) -> String {
        let attention = ["cudnn", "flash"].into_iter().find(|name| self.row.variant.contains(name));
        match (self.row.who.as_str(), attention) {
            ("pytorch-compile-cuda-graph" | "pytorch-compile", _) => "PyTorch (torch.compile)".to_owned(),
            ("pytorch-cuda-graph", _) => "PyTorch (eager, CUDA graph)".to_owned(),
            ("pytorch", Some("cudnn")) => "PyTorch (eager, cuDNN attention)".to_owned(),
            ("pytorch", Some(_)) => "PyTorch (eager, Flash attention)".to_owned(),
            ("pytorch", None) => "PyTorch (eager)".to_owned(),
            ("cublas", _) => "cuBLAS".to_owned(),
            ("cudnn", _) => "cuDNN".to_owned(),
            ("flash2", _) => "FlashAttention-2".to_owned(),
            ("nccl", _) => "NCCL".to_owned(),
            ("deepgemm", _) => "DeepGEMM".to_owned(),
            ("triton", _) => "Triton".to_owned(),
            ("cub", _) => "CUB".to_owned(),
            ("cublas bmm", _) => "cuBLAS (batched)".to_owned(),
            (who, _) => who.to_owned(),
        }
    }
}

/// The name of the known target that a product name contains, or the product name itself.
pub fn device_name(product: &str) -> String {
    target_of(product).map_or_else(|| product.to_owned(), |target| target.name.to_uppercase())
}

/// The known target that a product name contains.
pub fn target_of(product: &str) -> Option<Target> {
    let product = product.to_ascii_lowercase();
    Target::names().find(|name| product.contains(name)).and_then(Target::named)
}
