//! The command line: one file per subcommand, each an `Args` and a `run`.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | the answer is no: a program was rejected, a result is wrong |
//! | 2 | failure: one line on standard error says what was wrong |
//! | 130 | interrupted by Ctrl-C |
//! | 141 | the reader of standard output closed the pipe |
//!
//! A regular file that is named as an output is complete or unchanged; a device or FIFO is written
//! through.

mod accuracy;
mod bench;
mod bus_error;
mod chat;
mod compile;
mod dashboard;
mod device;
mod doctor;
mod failure;
mod flow;
mod flow_choice;
mod forms;
mod generate;
mod graph;
mod group;
mod interrupt;
mod ir;
pub mod layout;
mod load;
mod logits;
mod number;
mod output;
mod paint;
mod plan;
mod progress;
mod prompt;
mod ptx;
mod quantize;
mod reference;
mod report;
mod selftest;
#[cfg(feature = "serve")]
mod serve;
mod shell;
mod sim;
mod started;
mod steps;
mod subject;
mod timeline;
mod validate;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cli::started::started;
use crate::input;
use paint::{OutputLevel, Word};

pub use failure::Failure;
pub use reference::reference_page;

/// Typed layouts, tile kernels and a persistent megakernel for language models
#[derive(Parser)]
#[command(name = "tilewright", version, about, max_term_width = 100, after_help = FIRST_STEPS)]
struct Cli {
    #[command(flatten)]
    verbosity: Verbosity,
    #[command(subcommand)]
    command: Command,
}

const FIRST_STEPS: &str = "Examples:
  tilewright generate --model models/tiny-llama --prompt \"In the beginning\"
  tilewright doctor
  tilewright layout show \"(4,8):(8,1)\"

`tilewright COMMAND --help` describes a command with an example.";

/// The verbosity of standard error.
#[derive(Args)]
struct Verbosity {
    /// Print errors only: no notes, no progress
    #[arg(long, short, global = true, conflicts_with = "verbose", display_order = 900)]
    quiet: bool,
    /// Print what is done and how long it takes
    #[arg(long, short, global = true, display_order = 901)]
    verbose: bool,
}

impl Verbosity {
    fn level(&self) -> OutputLevel {
        match (self.quiet, self.verbose) {
            (true, _) => OutputLevel::Quiet,
            (false, true) => OutputLevel::Verbose,
            (false, false) => OutputLevel::Normal,
        }
    }
}

#[derive(Subcommand)]
enum Command {
    Generate(Box<generate::GenerateArgs>),
    #[cfg(feature = "serve")]
    Serve(Box<serve::ServeArgs>),
    Run(Box<chat::RunArgs>),
    Chat(Box<chat::ChatArgs>),
    Logits(logits::LogitsArgs),
    Plan(plan::PlanArgs),
    Quantize(quantize::QuantizeArgs),
    Compile(compile::CompileArgs),
    Validate(validate::ValidateArgs),
    /// Time a suite on a GPU and check what it computes
    #[command(subcommand, long_about = bench::ABOUT, after_help = bench::EXAMPLES)]
    Bench(bench::BenchCommand),
    /// Find the fastest settings of a suite's kernels on a GPU
    #[command(subcommand, long_about = bench::TUNE_ABOUT, after_help = bench::TUNE_EXAMPLES)]
    Tune(bench::TuneCommand),
    Accuracy(accuracy::AccuracyArgs),
    Timeline(timeline::TimelineArgs),
    Dashboard(dashboard::DashboardArgs),
    Report(report::ReportArgs),
    Ir(ir::IrArgs),
    Ptx(ptx::PtxArgs),
    Sim(sim::SimArgs),
    Selftest(selftest::SelftestArgs),
    /// Evaluate, check and draw layouts
    #[command(subcommand, after_help = LAYOUT_EXAMPLES)]
    Layout(layout::LayoutCommand),
    /// List, draw and measure sparse-attention flows
    #[command(subcommand, after_help = FLOW_EXAMPLES)]
    Flow(flow::FlowCommand),
    /// Print and draw the graphs of models
    #[command(subcommand, after_help = GRAPH_EXAMPLES)]
    Graph(graph::GraphCommand),
    Doctor(doctor::DoctorArgs),
    Completions(shell::CompletionsArgs),
    Man(shell::ManArgs),
}

const LAYOUT_EXAMPLES: &str = "Examples:
  tilewright layout eval \"composition((8,8):(8,1), 4:2)\"
  tilewright layout show \"S<2,0,3> o 0 o (8,8):(8,1)\"";

const FLOW_EXAMPLES: &str = "Examples:
  tilewright flow list
  tilewright flow show quest";

const GRAPH_EXAMPLES: &str = "Examples:
  tilewright graph show --model models/tiny-llama
  tilewright graph show --model models/tiny-qwen3 --svg graph.svg";

/// The groups of commands in the help, in order. Every command is in one.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run a model", &["run", "generate", "chat", "serve", "logits"]),
    ("Prepare a model", &["plan", "quantize", "compile", "validate"]),
    ("Measure", &["bench", "tune", "accuracy", "timeline", "dashboard", "report"]),
    ("Kernels and layouts", &["ir", "ptx", "sim", "selftest", "layout", "flow", "graph"]),
    ("This installation", &["doctor", "completions", "man", "help"]),
];

/// The definition of the command line: commands, options, help texts.
///
/// ```
/// let command = tilewright::cli::command();
/// assert!(command.find_subcommand("generate").is_some());
/// ```
pub fn command() -> clap::Command {
    let command = Cli::command();
    let template = help_template(&command);
    command.help_template(template)
}

/// The help of the program with its commands in groups, which clap does not do by itself.
fn help_template(command: &clap::Command) -> String {
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (group, names) in GROUPS {
        text.push_str(&format!("\n{header}{group}:{header:#}\n"));
        for name in names {
            let about = match command.find_subcommand(name).and_then(clap::Command::get_about) {
                Some(about) => about.to_string(),
                // A command of a feature that this build leaves out.
                None if *name != "help" => continue,
                None => "Print this message, or the help of a command".to_owned(),
            };
            text.push_str(&format!("  {literal}{name:<12}{literal:#} {about}\n"));
        }
    }
    text.push_str(&format!("\n{header}Options:{header:#}\n{{options}}{{after-help}}"));
    text
}

/// Parses the process's arguments, runs the subcommand and turns its outcome into an exit code.
pub fn main() -> ExitCode {
    started();
    silence_handled_panics();
    bus_error::report_truncated_files();
    let args = with_suite_as_command(std::env::args_os().collect());
    let cli = match parse(&args) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, &args),
    };
    paint::set_level(cli.verbosity.level());
    let outcome = match cli.command {
        Command::Generate(args) => generate::run(&args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(&args),
        Command::Run(args) => chat::run_model(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Logits(args) => logits::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Compile(args) => compile::run(args),
        Command::Validate(args) => validate::run(&args),
        Command::Bench(command) => bench::run(&command),
        Command::Tune(command) => bench::run_tune(&command),
        Command::Accuracy(args) => accuracy::run(&args),
        Command::Timeline(args) => timeline::run(&args),
        Command::Dashboard(args) => dashboard::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Ir(args) => ir::run(&args),
        Command::Ptx(args) => ptx::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Selftest(args) => selftest::run(&args),
        Command::Layout(command) => layout::run(&command),
        Command::Flow(command) => flow::run(&command),
        Command::Graph(command) => graph::run(&command),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => shell::completions(&args, command()),
        Command::Man(args) => shell::man(&args, command()),
    };
    paint::line(Word::Detail, &format!("finished after {:.2} s", started().elapsed().as_secs_f64()));
    outcome.unwrap_or_else(|failure| {
        let code = failure.report();
        group::leave(code);
        ExitCode::from(code)
    })
}

fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Rewrites `bench --suite X ..` as `bench X ..`, and `tune` alike: rows of results and older pages
/// name commands so.
fn with_suite_as_command(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_option = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-");
    let Some(at) = (1..args.len()).find(|&at| !is_option(&args[at])) else { return args };
    if args[at] != "bench" && args[at] != "tune" {
        return args;
    }
    let Some(option) = (at + 1..args.len()).find(|&at| args[at].to_string_lossy().starts_with("--suite")) else {
        return args;
    };
    let suite = match args[option].to_string_lossy().strip_prefix("--suite=") {
        Some(suite) => OsString::from(suite),
        None if args[option] == "--suite" && option + 1 < args.len() => args.remove(option + 1),
        None => return args,
    };
    args.remove(option);
    args.insert(at + 1, suite);
    args
}

/// Prints help and version on standard output, and an error of usage as one line, with a line for
/// the tip if there is one.
fn usage(error: &clap::Error, args: &[OsString]) -> ExitCode {
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help || !error.use_stderr() {
        let printed = if is_help { print_help(error) } else { error.print() };
        return match printed {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(failure::BROKEN_PIPE),
            Ok(()) | Err(_) => ExitCode::SUCCESS,
        };
    }
    let text = error.to_string();
    let mut facts = Vec::new();
    let mut tips = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix("tip: ") {
            Some(tip) => tips.push(tip),
            None if line.starts_with("Usage:") || line.starts_with("For more information") => break,
            None => facts.push(line.strip_prefix("error: ").unwrap_or(line)),
        }
    }
    paint::line(Word::Error, &format!("{} (see `{} --help`)", facts.join(" "), command_of(args)));
    tips.iter().for_each(|tip| paint::line(Word::Tip, tip));
    ExitCode::from(2)
}

fn print_help(error: &clap::Error) -> io::Result<()> {
    use std::io::Write;
    write!(anstream::stdout(), "{}", error.render().ansi())
}

/// The command that the arguments name: their first words that are commands, whatever options stand
/// between them.
fn command_of(args: &[OsString]) -> String {
    let root = command();
    let mut found = &root;
    let mut name = root.get_name().to_owned();
    for word in args.iter().skip(1).filter(|arg| !arg.as_encoded_bytes().starts_with(b"-")) {
        let Some(next) = found.find_subcommand(word) else { break };
        found = next;
        name = format!("{name} {}", next.get_name());
    }
    name
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
