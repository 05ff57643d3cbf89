//! Messages and commands from standard input.

use std::io::{self, BufRead, Write};

/// A message or a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A message to the model.
    Message(String),
    /// Begins a new conversation.
    Reset,
    /// Lists the commands.
    Help,
    /// Ends the program.
    Quit,
    /// A word that begins with a slash and is no command.
    Unknown(String),
}

/// Reads messages.
pub struct Console<R> {
    input: R,
    /// Printed before each message.
    prompt: &'static str,
}

/// A line that begins and ends a message of several lines.
const QUOTES: &str = "\"\"\"";

impl<R: BufRead> Console<R> {
    /// Reads from an input, after a prompt on standard error.
    pub fn new(input: R, prompt: &'static str) -> Console<R> {
        Console { input, prompt }
    }

    /// The next message or command that is not empty; none at the end of the input.
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        loop {
            eprint!("{}", self.prompt);
            io::stderr().flush()?;
            let Some(line) = self.line()? else { return Ok(None) };
            let text = match line.trim() {
                QUOTES => self.until_quotes()?,
                _ => self.continued(line)?,
            };
            let text = text.trim();
            if !text.is_empty() {
                return Ok(Some(entry(text)));
            }
        }
    }

    /// A line without its end.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let read = self.input.read_line(&mut line)?;
        Ok((read > 0).then(|| line.trim_end_matches(['\n', '\r']).to_owned()))
    }

    /// The lines before the next line of quotes, or before the end of the input.
    fn until_quotes(&mut self) -> io::Result<String> {
        let mut text = String::new();
        while let Some(line) = self.line()?.filter(|line| line.trim() != QUOTES) {
            text += &line;
            text.push('\n');
        }
        Ok(text)
    }

    /// A line and those that it goes on in.
    fn continued(&mut self, line: String) -> io::Result<String> {
        let mut text = line;
        while let Some(head) = text.strip_suffix('\\') {
            let Some(line) = self.line()? else { return Ok(head.to_owned()) };
            text = format!("{head}\n{line}");
        }
        Ok(text)
    }
}

fn entry(text: &str) -> Entry {
    match text {
        "/reset" => Entry::Reset,
        "/help" => Entry::Help,
        "/quit" | "/exit" => Entry::Quit,
        // A path or a fraction may begin with a slash, too.
        _ if text.starts_with('/') && text[1..].bytes().all(|byte| byte.is_ascii_lowercase()) => {
            Entry::Unknown(text.to_owned())
        }
        _ => Entry::Message(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_lines_or_several() {
        let input = "one\n\n  \ntwo \\\nlines\r\n/reset\n\"\"\"\nthree\n\nfour\\\n\"\"\"\n/nothing\n/etc/hosts?\n/help\n/quit\nfive\\";
        let mut console = Console::new(input.as_bytes(), "");
        let mut entries = Vec::new();
        while let Some(entry) = console.next().expect("UTF-8") {
            entries.push(entry);
        }
        let message = |text: &str| Entry::Message(text.to_owned());
        let expected = [
            message("one"),
            message("two \nlines"),
            Entry::Reset,
            message("three\n\nfour\\"),
            Entry::Unknown("/nothing".to_owned()),
            message("/etc/hosts?"),
            Entry::Help,
            Entry::Quit,
            message("five"),
        ];
        assert_eq!(entries, expected);
    }
}
