//! Dynamo's HTTP frontend in this process: finds workers, routes requests to them, and continues
//! the requests of a lost worker on another one.

use clap::{Args, ValueEnum};
use dynamo_backend_common::RuntimeConfig;
use dynamo_kv_router::KvRouterConfig;
use dynamo_llm::entrypoint::{EngineConfig, RouterConfig, input};
use dynamo_llm::local_model::LocalModelBuilder;
use dynamo_runtime::pipeline::RouterMode;
use dynamo_runtime::{DistributedRuntime, Runtime, logging};
use tokio::signal::unix::{SignalKind, signal};

/// Options of a frontend.
#[derive(Args, Clone, Debug)]
pub struct FrontendArgs {
    /// Host to listen at
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub http_host: String,
    /// Port to listen at
    #[arg(long, value_name = "PORT", default_value_t = 8000)]
    pub http_port: u16,
    /// How a worker is chosen: kv prefers the one that holds a request's prefix
    #[arg(long, value_name = "MODE", default_value = "kv")]
    pub router_mode: Routing,
    /// Continue a request at most N times on another worker
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub migration_limit: u32,
    /// Find workers of this namespace alone [default: of all]
    #[arg(long, value_name = "NAME", env = "DYN_NAMESPACE")]
    pub namespace: Option<String>,
    #[command(flatten)]
    runtime: RuntimeConfig,
}

/// How a worker is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Routing {
    /// By the prefixes that workers hold, and their load.
    Kv,
    /// One worker after the other.
    RoundRobin,
    /// The worker with the fewest requests.
    LeastLoaded,
}

impl Routing {
    fn mode(self) -> RouterMode {
        match self {
            Routing::Kv => RouterMode::KV,
            Routing::RoundRobin => RouterMode::RoundRobin,
            Routing::LeastLoaded => RouterMode::LeastLoaded,
        }
    }
}

impl FrontendArgs {
    /// Serves until SIGTERM or Ctrl-C.
    ///
    /// # Errors
    /// The runtime cannot be started, or the address cannot be used.
    pub fn run(self) -> anyhow::Result<()> {
        logging::init();
        self.runtime.apply_to_env();
        let runtime = Runtime::from_settings()?;
        let secondary = runtime.secondary();
        secondary.block_on(async move {
            let stopped = runtime.clone();
            let (mut terminated, mut interrupted) =
                (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            tokio::spawn(async move {
                tokio::select! {
                    _ = terminated.recv() => {}
                    _ = interrupted.recv() => {}
                }
                stopped.shutdown();
            });
            let served = self.serve(runtime.clone()).await;
            runtime.shutdown();
            served
        })
    }

    async fn serve(self, runtime: Runtime) -> anyhow::Result<()> {
        let distributed = DistributedRuntime::new(runtime, self.runtime.to_distributed_config()?).await?;
        let mut model = LocalModelBuilder::default();
        model
            .http_host(Some(self.http_host))
            .http_port(self.http_port)
            .namespace(self.namespace)
            .migration_limit(Some(self.migration_limit))
            .router_config(Some(RouterConfig::new(self.router_mode.mode(), KvRouterConfig::default())));
        let model = Box::new(model.build().await?);
        let engine = EngineConfig::Dynamic { model, chat_engine_factory: None, prefill_load_estimator: None };
        input::run_input(distributed, input::Input::Http, engine).await
    }
}
