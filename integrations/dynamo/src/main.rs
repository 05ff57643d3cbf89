//! `tilewright-dynamo`: a worker of NVIDIA Dynamo, and a frontend.

use std::sync::Arc;

use clap::{Parser, Subcommand};
use tilewright_dynamo::frontend::FrontendArgs;
use tilewright_dynamo::worker::WorkerArgs;

/// Run models with tilewright behind NVIDIA Dynamo
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Run a model for frontends
    Worker(Box<WorkerArgs>),
    /// Serve OpenAI's endpoints over HTTP, and route requests to workers
    Frontend(Box<FrontendArgs>),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().role {
        Role::Worker(args) => {
            let (engine, config) = args.engine()?;
            dynamo_backend_common::run(Arc::new(engine), config)
        }
        Role::Frontend(args) => args.run(),
    }
}
