//! A model behind OpenAI's endpoints.

use std::io::{self, BufRead, Read};
use std::path::Path;

use serde_json::{Value, json};
use thiserror::Error;

use super::args::ChatArgs;
use super::http::Endpoint;
use super::talker::{Talker, Turn};
use crate::cli::Failure;
use crate::cli::input::{self, InputError};

/// A model of a server.
pub struct RemoteModel {
    server: Endpoint,
    name: String,
    /// The fields of requests besides model and messages.
    options: Value,
}

/// Why a server's model cannot be used.
#[derive(Debug, Error)]
enum RemoteError {
    #[error("the server lists no model; give its name with --name")]
    NoModel,
    #[error("the API key of `{path}` cannot be read")]
    Key { path: String, source: InputError },
    #[error("the server's answer is not a stream of chunks: {reason}")]
    Stream { reason: String },
}

/// Most bytes of a list of models, of a line of a stream, and of a file with a key.
const MOST: u64 = 1 << 20;

impl RemoteModel {
    /// The model of a URL.
    pub fn at(url: &str, args: &ChatArgs) -> Result<RemoteModel, Failure> {
        let server = Endpoint::of(url, args.api_key_file.as_deref().map(key).transpose()?)?;
        let name = match &args.name {
            Some(name) => name.clone(),
            None => first_model(&server)?,
        };
        let mut options = json!({
            "stream": true,
            "temperature": args.talk.temperature,
            "seed": args.talk.seed,
        });
        if let Some(most) = args.talk.max_new_tokens {
            options["max_tokens"] = most.into();
        }
        if !args.talk.template_var.is_empty() {
            let variables = args.talk.template_var.iter().map(|(name, value)| {
                let json = value.to_json()?;
                Ok((name.clone(), serde_json::from_str(&json)?))
            });
            let variables: serde_json::Map<String, Value> = variables.collect::<Result<_, serde_json::Error>>()?;
            options["chat_template_kwargs"] = variables.into();
        }
        Ok(RemoteModel { server, name, options })
    }

    fn body(&self, turns: &[Turn]) -> String {
        let mut body = self.options.clone();
        body["model"] = self.name.as_str().into();
        body["messages"] = turns.iter().map(|turn| json!({ "role": turn.role, "content": turn.text })).collect();
        body.to_string()
    }
}

impl Talker for RemoteModel {
    fn answer(&mut self, turns: &[Turn], each: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<String, Failure> {
        let mut events = self.server.request("/v1/chat/completions", Some(&self.body(turns)))?;
        let mut whole = String::new();
        loop {
            let mut line = String::new();
            let read = (&mut events).take(MOST).read_line(&mut line).map_err(|source| self.server.broken(source))?;
            match line.trim_end().strip_prefix("data: ") {
                Some("[DONE]") => return Ok(whole),
                Some(event) => {
                    let Delta { reasoning, content } = delta(event)?;
                    each(&reasoning)?;
                    each(&content)?;
                    whole += &content;
                }
                None if read == 0 => return Err(self.server.broken(io::ErrorKind::UnexpectedEof.into()).into()),
                None => {}
            }
        }
    }
}

/// The text of a chunk. Reasoning is shown, and no part of the history.
struct Delta {
    reasoning: String,
    content: String,
}

fn delta(event: &str) -> Result<Delta, RemoteError> {
    let chunk: Value =
        serde_json::from_str(event).map_err(|error| RemoteError::Stream { reason: error.to_string() })?;
    if let Some(message) = chunk["error"]["message"].as_str() {
        return Err(RemoteError::Stream { reason: message.to_owned() });
    }
    let text = |key: &str| chunk["choices"][0]["delta"][key].as_str().unwrap_or_default().to_owned();
    Ok(Delta { reasoning: text("reasoning_content"), content: text("content") })
}

/// The first model that a server lists.
fn first_model(server: &Endpoint) -> Result<String, Failure> {
    let mut text = String::new();
    let list = server.request("/v1/models", None)?;
    list.take(MOST).read_to_string(&mut text).map_err(|source| server.broken(source))?;
    let list: Value = serde_json::from_str(&text).unwrap_or_default();
    match list["data"][0]["id"].as_str() {
        Some(name) => Ok(name.to_owned()),
        None => Err(RemoteError::NoModel.into()),
    }
}

/// The key in the first line of a file.
fn key(path: &Path) -> Result<String, Failure> {
    let failed = |source| RemoteError::Key { path: path.display().to_string(), source };
    let text = input::read(path, MOST).map_err(failed)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}
