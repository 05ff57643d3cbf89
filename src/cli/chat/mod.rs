//! `tilewright chat`: a conversation on the terminal, with a model here or behind a URL.
//!
//! | file | what it holds |
//! |---|---|
//! | `args` | options |
//! | `talker` | what is asked of a model |
//! | `console` | messages and commands from standard input |
//! | `local` | a model in this process |
//! | `remote` | a model behind OpenAI's endpoints |
//! | `http` | requests whose answers stream |

mod args;
mod console;
mod http;
mod local;
mod remote;
mod talker;

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use super::Failure;
use super::paint::{self, Word};
use args::TalkArgs;
use console::{Console, Entry};
use local::LocalModel;
use remote::RemoteModel;
use talker::{Talker, Turn};

pub use args::{ChatArgs, RunArgs};

const HELP: &str = "/reset begins a new conversation; /quit or the end of the input ends the program; a line that ends \
                    with \\ goes on in the next, and lines between two of \"\"\" are one message";

/// Runs the subcommand `chat`.
pub fn run(args: &ChatArgs) -> Result<ExitCode, Failure> {
    match &args.model {
        Some(model) => converse(&mut LocalModel::load(model, &args.talk)?, &args.talk),
        None => converse(&mut RemoteModel::at(args.url.as_deref().unwrap_or_default(), args)?, &args.talk),
    }
}

/// Runs the subcommand `run`.
pub fn run_model(args: &RunArgs) -> Result<ExitCode, Failure> {
    converse(&mut LocalModel::load(&args.model, &args.talk)?, &args.talk)
}

/// Answers the messages of standard input.
fn converse(model: &mut dyn Talker, args: &TalkArgs) -> Result<ExitCode, Failure> {
    let is_watched = io::stdin().is_terminal() && paint::is_watched();
    if is_watched {
        paint::line(Word::Note, HELP);
    }
    let prompt = if is_watched { "> " } else { "" };
    talk(model, args.system.as_deref(), &mut Console::new(io::stdin().lock(), prompt))?;
    Ok(ExitCode::SUCCESS)
}

/// Answers messages until there are no more.
fn talk(model: &mut dyn Talker, system: Option<&str>, console: &mut Console<impl BufRead>) -> Result<(), Failure> {
    let system = system.map(|text| Turn { role: "system", text: text.to_owned() });
    let mut turns = Vec::from_iter(system.clone());
    while let Some(entry) = console.next()? {
        match entry {
            Entry::Reset => turns = Vec::from_iter(system.clone()),
            Entry::Help => paint::line(Word::Note, HELP),
            Entry::Unknown(command) => {
                paint::line(Word::Note, &format!("{command} is not a command; /help lists them"))
            }
            Entry::Quit => break,
            Entry::Message(text) => {
                turns.push(Turn { role: "user", text });
                let mut out = io::stdout();
                let text = model.answer(&turns, &mut |piece| {
                    out.write_all(piece.as_bytes())?;
                    out.flush()
                })?;
                writeln!(io::stdout())?;
                turns.push(Turn { role: "assistant", text });
            }
        }
    }
    Ok(())
}
