//! A model in the ranks of a process group, as a pipeline or as shards: the tokens are those of one
//! process, strangers do not disturb, and a rank that is lost is an error on all.
//!
//! The ranks are threads here, which rendezvous over loopback; channels stand for NCCL.

mod channels;
mod damage;
mod environment;
mod lost;
mod shards;
mod strangers;
mod tokens;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use channels::Channels;
use tilewright::engine::{Device, Engine, EngineError, Member, ProcessGroup, Stage};

const SECRET: &str = "a secret of all ranks";

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name)
}

fn engine(name: &str) -> Engine {
    engine_on(name, Device::Cpu { workers: 1 })
}

fn engine_on(name: &str, device: Device) -> Engine {
    Engine::load(&model(name), device).expect("the model loads")
}

/// A model on a simulated GPU.
fn simulated(name: &str, seed: u64) -> Engine {
    engine_on(name, Device::Sim { seed })
}

/// What all ranks of a test have.
#[derive(Clone)]
struct Launch {
    size: usize,
    port: u16,
    secret: String,
    timeout: String,
    tensor_parallel: usize,
    network: Arc<Channels>,
}

impl Launch {
    fn new(size: usize) -> Launch {
        // A free port below those that a system gives to outgoing connections.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let first = std::process::id() as u16;
        let port = loop {
            let port = 10_000 + first.wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                break port;
            }
        };
        Launch {
            size,
            port,
            secret: SECRET.to_owned(),
            timeout: "60".to_owned(),
            tensor_parallel: 1,
            network: Arc::default(),
        }
    }

    fn timeout(self, seconds: &str) -> Launch {
        Launch { timeout: seconds.to_owned(), ..self }
    }

    /// Each rank has a shard of every layer.
    fn sharded(self) -> Launch {
        Launch { tensor_parallel: self.size, ..self }
    }

    fn group(&self, rank: usize) -> ProcessGroup {
        let variables = [
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", self.size.to_string()),
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            ("MASTER_PORT", self.port.to_string()),
            ("TILEWRIGHT_GROUP_SECRET", self.secret.clone()),
            ("TILEWRIGHT_GROUP_TIMEOUT", self.timeout.clone()),
        ];
        let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let group = ProcessGroup::of(value).expect("valid variables").expect("a group");
        group.with_tensor_parallel(self.tensor_parallel)
    }

    fn join(&self, rank: usize, engine: Engine) -> Result<Member, EngineError> {
        engine.join_by(&self.group(rank), Arc::clone(&self.network) as _)
    }

    /// Joins as a rank from 1 on.
    fn stage(&self, rank: usize, engine: Engine) -> Result<Stage, EngineError> {
        self.join(rank, engine).map(|member| match member {
            Member::Stage(stage) => *stage,
            Member::Driver(_) => panic!("rank 0 drives"),
        })
    }

    /// Joins as rank 0.
    fn driver(&self, engine: Engine) -> Result<Engine, EngineError> {
        self.join(0, engine).map(|member| match member {
            Member::Driver(engine) => *engine,
            Member::Stage(_) => panic!("rank 0 drives"),
        })
    }

    /// The result of a driver, with all other ranks at work in threads.
    fn run<T>(&self, engine: impl Fn() -> Engine + Sync, drive: impl FnOnce(Engine) -> T) -> T {
        thread::scope(|scope| {
            let stages: Vec<_> = (1..self.size)
                // In any order: the last comes first.
                .rev()
                .map(|rank| {
                    let engine = &engine;
                    scope.spawn(move || self.stage(rank, engine())?.run())
                })
                .collect();
            let result = drive(self.driver(engine()).expect("all ranks join"));
            for stage in stages {
                stage.join().expect("no panic").expect("a stage ends with rank 0");
            }
            result
        })
    }
}
