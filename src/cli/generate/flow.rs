//! Sparse attention by a flow: which, and how much it may attend to.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;

use super::Failure;
use crate::cli::flow_choice::FlowChoice;
use crate::cli::output::CommandOutput;
use crate::engine::{Chosen, Engine};

/// The choices of a generation, and the file that they go to.
pub struct Dump {
    output: CommandOutput,
    lines: Arc<Mutex<Vec<Chosen>>>,
}

impl Dump {
    /// Writes them.
    pub fn write(self) -> Result<(), Failure> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        self.output.write(|writer| {
            lines.iter().try_for_each(|chosen| {
                let line = serde_json::to_string(chosen).map_err(std::io::Error::other)?;
                writeln!(writer, "{line}")
            })
        })
    }
}

/// The flow that selects the blocks of tokens for a decode step.
#[derive(Args)]
pub struct FlowArgs {
    #[command(flatten)]
    choice: FlowChoice,
    /// Write which blocks were attended to in each step, a line of JSON for each layer and key
    /// head; `tilewright flow map` draws it
    #[arg(long, value_name = "FILE", requires = "flow")]
    dump_selection: Option<PathBuf>,
}

impl FlowArgs {
    /// The engine with the flow that is asked for, and where its choices are written.
    pub fn apply(&self, engine: Engine) -> Result<(Engine, Option<Dump>), Failure> {
        let Some(flow) = self.choice.settings(engine.spec())? else { return Ok((engine, None)) };
        let engine = engine.with_flow(flow)?;
        let Some(path) = &self.dump_selection else { return Ok((engine, None)) };
        let dump = Dump { output: CommandOutput::create(path)?, lines: Arc::default() };
        let lines = Arc::clone(&dump.lines);
        let observer = move |chosen: &Chosen| {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(chosen.clone());
        };
        Ok((engine.with_observer(Arc::new(observer)), Some(dump)))
    }
}
