//! `tilewright doctor`: driver, GPUs, NCCL and files of this machine, and what runs here.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use clap::Args;
use nvml_wrapper::Nvml;
use serde::Serialize;
use tilewright_codegen::device::{Device, cuda};
use tilewright_codegen::ir::Arch;

use super::Failure;
use crate::engine::NoFirstGpu;
use crate::results::Results;
use crate::shipped;
use crate::tuning::{Tuned, user_file};

/// Report what this machine has and which commands run on it
///
/// Looks for the CUDA driver, GPUs, NCCL, the driver's cache of compiled kernels and the file of
/// tuned settings, and says of each feature whether it runs here and why not. Nothing is changed.
/// Always exits with 0.
#[derive(Args)]
#[command(after_help = "Examples:\n  tilewright doctor\n  tilewright doctor --json")]
pub struct DoctorArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The findings of `doctor`.
#[derive(Serialize)]
struct DoctorReport {
    version: &'static str,
    platform: String,
    cores: usize,
    cuda: Finding,
    /// Version of the kernel driver, as `nvidia-smi` prints it.
    nvidia_driver: Option<String>,
    gpus: Vec<GpuReport>,
    nccl: Finding,
    kernel_cache: Finding,
    tuned_settings: Finding,
    runs: Vec<FeatureSupport>,
}

/// A component that was found, or the reason why not.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Finding {
    Found(String),
    Missing(String),
}

#[derive(Serialize)]
struct GpuReport {
    device: String,
    name: String,
    capability: String,
    /// Architecture that kernels are generated for.
    arch: Option<String>,
    multiprocessors: u32,
    memory_bytes: u64,
    free_bytes: Option<u64>,
    /// Shipped kernels that run on it, of all.
    kernels: [usize; 2],
}

/// A feature, and why it does not run here.
#[derive(Serialize)]
struct FeatureSupport {
    feature: &'static str,
    runs: bool,
    why: Option<String>,
}

/// Runs the subcommand.
pub fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let report = DoctorReport::of_this_machine();
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)?;
    } else {
        write!(io::stdout(), "{report}")?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Finding {
    fn of<E: fmt::Display>(found: Result<String, E>) -> Finding {
        found.map_or_else(|error| Finding::Missing(error.to_string()), Finding::Found)
    }

    fn missing(&self) -> Option<&str> {
        match self {
            Finding::Found(_) => None,
            Finding::Missing(why) => Some(why),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Found(what) => f.write_str(what),
            Finding::Missing(why) => f.write_str(why),
        }
    }
}

impl DoctorReport {
    fn of_this_machine() -> DoctorReport {
        let cuda = cuda::driver().map(|version| format!("CUDA {}.{}", version / 1000, version % 1000 / 10));
        let opened: Vec<Result<GpuReport, String>> = (0..cuda::count().unwrap_or(0))
            .map(|ordinal| {
                cuda::open(ordinal).map(|device| GpuReport::of(ordinal, &device)).map_err(|error| error.to_string())
            })
            .collect();
        let failed = opened.iter().find_map(|gpu| gpu.as_ref().err().cloned());
        let gpus: Vec<GpuReport> = opened.into_iter().flatten().collect();
        let nccl = cuda::nccl_version();
        let nccl = nccl.map(|version| format!("NCCL {}.{}.{}", version / 10_000, version / 100 % 100, version % 100));
        let cuda = Finding::of(cuda.map_err(NoFirstGpu::from));
        let nccl = Finding::of(nccl);
        let runs = runs(&cuda, &gpus, failed, &nccl);
        DoctorReport {
            version: env!("CARGO_PKG_VERSION"),
            platform: format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH),
            cores: thread::available_parallelism().map_or(1, usize::from),
            cuda,
            nvidia_driver: Nvml::init().and_then(|nvml| nvml.sys_driver_version()).ok(),
            gpus,
            nccl,
            kernel_cache: kernel_cache(),
            tuned_settings: tuned_settings(),
            runs,
        }
    }
}

impl GpuReport {
    fn of(ordinal: u32, device: &Device) -> GpuReport {
        let properties = device.properties();
        let (major, minor) = properties.capability;
        let arch = properties.arch();
        let kernels = shipped::all();
        let usable = |arch: Arch| kernels.iter().filter(|kernel| kernel.needs().met_by(arch)).count();
        GpuReport {
            device: format!("cuda:{ordinal}"),
            name: properties.name.clone(),
            capability: format!("{major}.{minor}"),
            arch: arch.map(|arch| arch.to_string()),
            multiprocessors: properties.sms,
            memory_bytes: properties.memory_bytes,
            free_bytes: device.free_bytes().ok(),
            kernels: [arch.map_or(0, usable), kernels.len()],
        }
    }
}

/// The features that run here, and for the others the reason why not.
fn runs(cuda: &Finding, gpus: &[GpuReport], failed: Option<String>, nccl: &Finding) -> Vec<FeatureSupport> {
    let usable = gpus.iter().filter(|gpu| gpu.arch.is_some()).count();
    let no_gpu = || match (cuda.missing(), gpus.first()) {
        (Some(why), _) => why.to_owned(),
        (None, Some(gpu)) => format!("{} has compute capability {}; kernels need 8.0", gpu.name, gpu.capability),
        (None, None) => failed.unwrap_or_else(|| "the CUDA driver sees no GPU".to_owned()),
    };
    let on_gpu = (usable == 0).then(no_gpu);
    let wgmma = gpus.iter().any(|gpu| gpu.arch.as_deref() == Some(Arch::Sm90a.name()));
    let hopper = match &on_gpu {
        Some(why) => Some(why.clone()),
        None => (!wgmma).then(|| "these kernels need an H100 or H200 (compute capability 9.0)".to_owned()),
    };
    let several = match (&on_gpu, usable) {
        (Some(why), _) => Some(why.clone()),
        (None, 1) => Some("there is one GPU".to_owned()),
        (None, _) => None,
    };
    let by_nccl = several.clone().or_else(|| nccl.missing().map(str::to_owned));
    let run = |feature, why: Option<String>| FeatureSupport { feature, runs: why.is_none(), why };
    vec![
        run("models on the CPU (--device cpu)", None),
        run("kernels and models on the simulator (--device sim)", None),
        run("models on a GPU (--device cuda:0)", on_gpu.clone()),
        run("bench, tune, accuracy and timeline on a GPU", on_gpu),
        run("wgmma kernels: GEMM, prefill attention, GEMV of many vectors", hopper),
        run("models on several GPUs (--device cuda:0-1)", several),
        run("all-reduce by NCCL (--exchange nccl)", by_nccl),
    ]
}

/// The cache of compiled kernels, which is the driver's own.
fn kernel_cache() -> Finding {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if variable("CUDA_CACHE_DISABLE").is_some_and(|value| value != "0") {
        return Finding::Missing("CUDA_CACHE_DISABLE is set; every start compiles the kernels again".to_owned());
    }
    let default = || Some(PathBuf::from(variable("HOME")?).join(".nv/ComputeCache"));
    match variable("CUDA_CACHE_PATH").map(PathBuf::from).or_else(default) {
        Some(folder) if folder.is_dir() => Finding::Found(folder.display().to_string()),
        Some(folder) => Finding::Missing(format!("{} does not exist yet; the driver creates it", folder.display())),
        None => Finding::Missing("neither CUDA_CACHE_PATH nor HOME is set".to_owned()),
    }
}

/// The user's file of tuned settings.
fn tuned_settings() -> Finding {
    let Some(path) = user_file() else {
        return Finding::Missing("neither TILEWRIGHT_TUNED nor HOME is set".to_owned());
    };
    if !path.exists() {
        return Finding::Missing(format!("{} does not exist; `tilewright tune` writes it", path.display()));
    }
    let mut results = Results::default();
    match results.add_file(&path) {
        Ok(()) => Finding::Found(format!("{}, {} shapes", path.display(), Tuned::of(&results).len())),
        Err(error) => Finding::Missing(error.to_string()),
    }
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, text: &dyn fmt::Display| writeln!(f, "{name:16} {text}");
        line("tilewright", &format!("{}, {}, {} cores", self.version, self.platform, self.cores))?;
        let driver = self.nvidia_driver.as_ref().map_or(String::new(), |driver| format!(", NVIDIA driver {driver}"));
        line("CUDA driver", &format!("{}{driver}", self.cuda))?;
        for gpu in &self.gpus {
            let arch = gpu.arch.as_ref().map_or("no kernels".to_owned(), |arch| format!("kernels for {arch}"));
            let gigabytes = |bytes: u64| bytes as f64 / 1e9;
            let free = gpu.free_bytes.map_or(String::new(), |free| format!(" ({:.1} GB free)", gigabytes(free)));
            let [usable, all] = gpu.kernels;
            let text = format!(
                "{}, compute capability {}, {} SMs, {:.1} GB{free}, {arch}: {usable} of {all}",
                gpu.name,
                gpu.capability,
                gpu.multiprocessors,
                gigabytes(gpu.memory_bytes)
            );
            line(&gpu.device, &text)?;
        }
        line("NCCL", &self.nccl)?;
        line("Kernel cache", &self.kernel_cache)?;
        line("Tuned settings", &self.tuned_settings)?;
        writeln!(f, "\nRuns here:")?;
        for FeatureSupport { feature, why, .. } in &self.runs {
            match why {
                None => writeln!(f, "  yes  {feature}")?,
                Some(why) => writeln!(f, "  no   {feature}: {why}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str, capability: &str, arch: Option<&str>) -> GpuReport {
        GpuReport {
            device: "cuda:0".into(),
            name: name.into(),
            capability: capability.into(),
            arch: arch.map(str::to_owned),
            multiprocessors: 132,
            memory_bytes: 80 << 30,
            free_bytes: None,
            kernels: [1, 1],
        }
    }

    fn why(runs: &[FeatureSupport], feature: &str) -> Option<String> {
        let run = runs.iter().find(|run| run.feature.contains(feature)).expect("a feature");
        assert_eq!(run.runs, run.why.is_none());
        run.why.clone()
    }

    #[test]
    fn every_feature_says_why_it_does_not_run() {
        let found = || Finding::Found("CUDA 12.8".into());
        let none = runs(&Finding::Missing("no driver".into()), &[], None, &found());
        for feature in ["on a GPU (", "bench", "wgmma", "several", "NCCL"] {
            assert_eq!(why(&none, feature).as_deref(), Some("no driver"), "{feature}");
        }
        assert_eq!((why(&none, "CPU"), why(&none, "simulator")), (None, None));
        let old = runs(&found(), &[gpu("Tesla T4", "7.5", None)], None, &found());
        assert_eq!(why(&old, "on a GPU (").as_deref(), Some("Tesla T4 has compute capability 7.5; kernels need 8.0"));
        let ada = runs(&found(), &[gpu("NVIDIA L4", "8.9", Some("sm_89"))], None, &found());
        assert_eq!(why(&ada, "on a GPU ("), None);
        assert!(why(&ada, "wgmma").is_some_and(|why| why.contains("compute capability 9.0")));
        assert_eq!(why(&ada, "several").as_deref(), Some("there is one GPU"));
        let two = [gpu("NVIDIA H200", "9.0", Some("sm_90a")), gpu("NVIDIA H200", "9.0", Some("sm_90a"))];
        let two = runs(&found(), &two, None, &Finding::Missing("no libnccl.so.2".into()));
        assert_eq!((why(&two, "wgmma"), why(&two, "several")), (None, None));
        assert_eq!(why(&two, "NCCL").as_deref(), Some("no libnccl.so.2"));
    }
}
