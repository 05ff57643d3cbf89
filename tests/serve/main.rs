//! The HTTP server over real sockets, on the shipped models on the CPU: parameters, streams, limits,
//! and clients that behave badly.
#![cfg(target_os = "linux")]

mod chats;
mod client;
mod crowd;
mod grammars;
mod limits;
mod parameters;
mod process;
mod script;
mod streams;
mod talk;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use tilewright::engine::{BatchOptions, BatcherLoad, Device, Engine};
use tilewright::serve::{HttpServer, ServeOptions, ServerMonitor};

/// A file of a shipped model.
fn tiny(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tiny-llama").join(file)
}

/// A server that runs until the tests end.
struct TestServer {
    address: SocketAddr,
    monitor: ServerMonitor,
}

impl TestServer {
    /// Serves the model of a folder, with options that differ from the default ones.
    fn new(folder: &Path, change: impl FnOnce(&mut ServeOptions)) -> TestServer {
        let engine = Engine::load(folder, Device::Cpu { workers: 1 }).expect("the model loads");
        let context = engine.spec().max_positions.min(256);
        let mut options = ServeOptions::new("tiny", BatchOptions::for_context(context));
        options.listen = (Ipv4Addr::LOCALHOST, 0).into();
        change(&mut options);
        let server = HttpServer::bind(engine, options).expect("it listens");
        let (address, monitor) = (server.address(), server.monitor());
        thread::spawn(move || server.run(std::future::pending()));
        TestServer { address, monitor }
    }

    /// Waits until no request runs or waits and no page is held.
    fn settle(&self) {
        self.until(|load| (load.running, load.waiting, load.held_pages) == (0, 0, 0));
    }

    /// Waits for a load, which is published after each step.
    fn until(&self, reached: impl Fn(&BatcherLoad) -> bool) {
        let begin = Instant::now();
        while !reached(&self.monitor.load()) {
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", self.monitor.load());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// tiny-llama, with the default options.
fn server() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(|| TestServer::new(&tiny(""), |_| ()))
}
