//! The command line: one file per subcommand, each an `Args` and a `run`.
//!
//! Every failure is one line on standard error and exit code 2; a check that *answers* no (a rejected program, a golden
//! case that fails) exits with 1; what a person interrupts, with 130. A regular file that is named as an output is whole or as it
//! was; what is none, such as a FIFO, is written through.

mod accuracy;
mod bench;
mod bus_error;
mod compile;
mod dashboard;
mod failure;
mod flow;
mod flow_choice;
mod forms;
mod generate;
mod input;
mod interrupt;
mod ir;
pub mod layout;
mod load;
mod logits;
mod output;
mod paint;
mod plan;
mod progress;
mod prompt;
mod ptx;
mod quantize;
mod report;
mod selftest;
mod shell;
mod sim;
mod subject;
mod timeline;
mod validate;
mod worker;
mod world;

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Instant;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

pub use failure::Failure;

/// Typed layouts, tile kernels and a persistent megakernel for language models.
#[derive(Parser)]
#[command(name = "tilewright", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Generate(generate::GenerateArgs),
    Logits(logits::LogitsArgs),
    Worker(worker::WorkerArgs),
    Compile(compile::CompileArgs),
    Timeline(timeline::TimelineArgs),
    Bench(bench::BenchArgs),
    Tune(bench::TuneArgs),
    Accuracy(accuracy::AccuracyArgs),
    Dashboard(dashboard::DashboardArgs),
    Report(report::ReportArgs),
    Plan(plan::PlanArgs),
    Quantize(quantize::QuantizeArgs),
    Validate(validate::ValidateArgs),
    Ptx(ptx::PtxArgs),
    Ir(ir::IrArgs),
    Sim(sim::SimArgs),
    Selftest(selftest::SelftestArgs),
    /// The layout algebra: evaluate, check, draw
    #[command(subcommand)]
    Layout(layout::LayoutCommand),
    /// Sparse-attention flows: list, draw
    #[command(subcommand)]
    Flow(flow::FlowCommand),
    Completions(shell::CompletionsArgs),
    Man(shell::ManArgs),
}

/// When the program started.
fn started() -> Instant {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    *STARTED.get_or_init(Instant::now)
}

/// Parses the process's arguments, runs the subcommand and turns its outcome into an exit code.
pub fn main() -> ExitCode {
    started();
    silence_handled_panics();
    bus_error::report_truncated_files();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let outcome = match cli.command {
        Command::Generate(args) => generate::run(&args),
        Command::Logits(args) => logits::run(&args),
        Command::Worker(args) => worker::run(&args),
        Command::Compile(args) => compile::run(args),
        Command::Timeline(args) => timeline::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Tune(args) => bench::run_tune(&args),
        Command::Accuracy(args) => accuracy::run(&args),
        Command::Dashboard(args) => dashboard::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Ptx(args) => ptx::run(&args),
        Command::Ir(args) => ir::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Selftest(args) => selftest::run(&args),
        Command::Layout(command) => layout::run(&command),
        Command::Flow(command) => flow::run(&command),
        Command::Completions(args) => shell::completions(&args, Cli::command()),
        Command::Man(args) => shell::man(&args, Cli::command()),
    };
    outcome.unwrap_or_else(|failure| failure.report())
}

/// Help and version go to standard output as they are; an error of usage becomes one line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe is no failure of ours: the reader has seen what it wanted.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        paint::line(paint::Word::Error, "a command is missing; `tilewright --help` lists them");
        return ExitCode::from(2);
    }
    let text = error.to_string();
    let facts = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let facts = facts.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let line = facts.collect::<Vec<_>>().join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    paint::line(paint::Word::Error, &format!("{line} (see `tilewright --help`)"));
    ExitCode::from(2)
}

/// A panic that becomes an error is reported as that error, in one line, and not twice.
fn silence_handled_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !crate::checkpoint::panic_is_handled() {
            report(info);
        }
    }));
}
