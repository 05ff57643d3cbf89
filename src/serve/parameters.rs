//! Bodies of requests: every parameter is honoured or refused by name.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::ApiError;
use super::messages::Message;
use crate::checkpoint::{ChatValue, Checkpoint};
use crate::engine::{EndTokens, Grammar, Penalties, Request, Sampling, Submission, TextRules};

/// Most choices of a request, over all of its prompts.
pub const MOST_CHOICES: usize = 128;
/// Most stop texts of a request, and most bytes of one.
const MOST_STOPS: (usize, usize) = (16, 1024);
/// Most tokens with their log probabilities at a position.
const MOST_LOGPROBS: usize = 20;
/// Most tokens that a parameter lists: each new token is compared with all of them.
const MOST_LISTED: usize = 1024;

/// Declares a body: parameters of its own, and those that all generating endpoints share.
macro_rules! body {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $of:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$doc])* pub $field: $of,)*
            /// The name of the model.
            pub model: Option<String>,
            /// Whether the answer streams.
            pub stream: Option<bool>,
            /// Options of a stream.
            pub stream_options: Option<StreamOptions>,
            temperature: Option<f32>,
            top_p: Option<f32>,
            top_k: Option<i64>,
            min_p: Option<f32>,
            frequency_penalty: Option<f32>,
            presence_penalty: Option<f32>,
            repetition_penalty: Option<f32>,
            logit_bias: Option<BTreeMap<String, f32>>,
            seed: Option<i64>,
            stop: Option<Stop>,
            stop_token_ids: Option<Vec<u32>>,
            ignore_eos: Option<bool>,
            min_tokens: Option<usize>,
            /// Most tokens of a choice.
            pub max_tokens: Option<usize>,
            n: Option<usize>,
            response_format: Option<ResponseFormat>,
            structured_outputs: Option<StructuredOutputs>,
            /// The end user, for the log.
            pub user: Option<String>,
        }

        impl $name {
            /// The parameters that say how tokens are chosen.
            pub fn shared(&mut self) -> Shared {
                Shared {
                    temperature: self.temperature,
                    top_p: self.top_p,
                    top_k: self.top_k,
                    min_p: self.min_p,
                    frequency_penalty: self.frequency_penalty,
                    presence_penalty: self.presence_penalty,
                    repetition_penalty: self.repetition_penalty,
                    logit_bias: self.logit_bias.take().unwrap_or_default(),
                    seed: self.seed,
                    stop: self.stop.take(),
                    stop_token_ids: self.stop_token_ids.take().unwrap_or_default(),
                    ignore_eos: self.ignore_eos.unwrap_or_default(),
                    min_tokens: self.min_tokens.unwrap_or_default(),
                    n: self.n,
                    response_format: self.response_format.take(),
                    structured_outputs: self.structured_outputs.take(),
                }
            }
        }
    };
}

body! {
    /// The body of `/v1/completions`.
    CompletionBody {
        /// What is continued.
        prompt: Prompt,
        /// Whether the prompt is part of the answer.
        echo: Option<bool>,
        /// Likeliest tokens whose log probabilities are wanted besides the chosen one's.
        logprobs: Option<usize>,
        /// Choices of which the best are returned: as many as are returned, alone.
        best_of: Option<usize>,
    }
}

body! {
    /// The body of `/v1/chat/completions`.
    ChatBody {
        /// The conversation, the oldest message first.
        messages: Vec<Message>,
        /// Functions that the model may call.
        tools: Option<Vec<ChatValue>>,
        /// Whether it may.
        tool_choice: Option<ToolChoice>,
        /// Whether it may call several.
        parallel_tool_calls: Option<bool>,
        /// Whether log probabilities are wanted.
        logprobs: Option<bool>,
        /// Likeliest tokens whose log probabilities are wanted besides the chosen one's.
        top_logprobs: Option<usize>,
        /// Most tokens of a choice, by OpenAI's newer name.
        max_completion_tokens: Option<usize>,
        /// Variables of the chat template.
        chat_template_kwargs: Option<BTreeMap<String, ChatValue>>,
    }
}

/// What is continued: a text, texts, tokens, or lists of tokens.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "must be a text, a list of texts, a list of token ids, or a list of such lists")]
pub enum Prompt {
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// Tokens.
    Ids(Vec<u32>),
    /// Lists of tokens.
    IdLists(Vec<Vec<u32>>),
}

/// Texts that end an answer.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "must be a text or a list of texts")]
pub enum Stop {
    /// A text.
    One(String),
    /// Texts.
    Several(Vec<String>),
}

/// Options of a stream.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamOptions {
    /// Whether the last chunk has the number of tokens.
    #[serde(default)]
    pub include_usage: bool,
}

/// The form of the answer, as OpenAI names it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    json_schema: Option<NamedSchema>,
}

/// A JSON schema with a name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedSchema {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "description")]
    _description: Option<String>,
    schema: Value,
    #[serde(rename = "strict")]
    _strict: Option<bool>,
}

/// The form of the answer, as vLLM names it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StructuredOutputs {
    json: Option<Value>,
    json_object: Option<bool>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    grammar: Option<String>,
}

/// Whether the model may call functions.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "must be \"none\", \"auto\", \"required\", or an object that names a function")]
pub enum ToolChoice {
    /// `none`, `auto` or `required`.
    Mode(String),
    /// A function.
    Function(ChatValue),
}

/// The parameters that say how tokens are chosen, as they were given.
pub struct Shared {
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    repetition_penalty: Option<f32>,
    logit_bias: BTreeMap<String, f32>,
    seed: Option<i64>,
    stop: Option<Stop>,
    stop_token_ids: Vec<u32>,
    ignore_eos: bool,
    min_tokens: usize,
    n: Option<usize>,
    response_format: Option<ResponseFormat>,
    structured_outputs: Option<StructuredOutputs>,
}

/// How tokens are chosen and what ends a text, checked.
#[derive(Clone, Debug)]
pub struct Choosing {
    /// The options of each choice; the prompt, the number of tokens and the row are still to be set.
    pub submission: Submission,
    /// The grammar that its text follows, and the parameter that has it; it is still to be compiled.
    pub grammar: Option<(&'static str, Grammar)>,
    /// What ends its text.
    pub text: TextRules,
    /// Choices of each prompt.
    pub choices: usize,
}

/// Reads a body.
///
/// # Errors
/// The body is not JSON, or a parameter is unknown, appears twice, or has another type; the error
/// names it.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.inner().to_string();
        match (quoted(&reason, "unknown field `"), path.as_str()) {
            (Some(field), "." | "?") => ApiError::Unknown { param: field.to_owned() },
            (Some(field), path) if path.ends_with(field) => ApiError::Unknown { param: path.to_owned() },
            (Some(field), path) => ApiError::Unknown { param: format!("{path}.{field}") },
            (None, "." | "?") => {
                ApiError::Body { param: quoted(&reason, "missing field `").map(str::to_owned), reason }
            }
            _ => ApiError::parameter(path, format!("is not accepted: {reason}")),
        }
    })?;
    json.end().map_err(|error| ApiError::Body { param: None, reason: error.to_string() })?;
    Ok(read)
}

/// The name that an error quotes after these words.
fn quoted<'r>(reason: &'r str, words: &str) -> Option<&'r str> {
    reason.strip_prefix(words)?.split('`').next()
}

impl Shared {
    /// Checks the parameters, for a checkpoint whose own settings apply where they are not given.
    ///
    /// # Errors
    /// A value out of its range; the error names the parameter.
    pub fn choosing(self, checkpoint: &Checkpoint) -> Result<Choosing, ApiError> {
        let grammar = self.grammar()?;
        let vocab = checkpoint.spec().vocab;
        let (own, n) = (checkpoint.generation(), self.n.unwrap_or(1));
        if !(1..=MOST_CHOICES).contains(&n) {
            return Err(ApiError::parameter("n", format!("must be 1 to {MOST_CHOICES}, got {n}")));
        }
        let ends = EndTokens {
            ignore_model: self.ignore_eos,
            tokens: self.stop_tokens(vocab)?,
            min_new_tokens: self.min_tokens,
        };
        let penalty = |name, value: Option<f32>| within(name, value.unwrap_or(0.0), -2.0, 2.0);
        let repetition = self.repetition_penalty.or(own.repetition_penalty).unwrap_or(1.0);
        let penalties = Penalties {
            repetition: within("repetition_penalty", repetition, f32::MIN_POSITIVE, 100.0)?,
            presence: penalty("presence_penalty", self.presence_penalty)?,
            frequency: penalty("frequency_penalty", self.frequency_penalty)?,
            no_repeat: own.no_repeat_ngram_size,
        };
        let submission = Submission {
            sampling: self.sampling()?,
            penalties,
            suppressed: own.suppress_tokens.clone(),
            bias: self.bias(vocab)?,
            min_p: within("min_p", self.min_p.unwrap_or(0.0), 0.0, 1.0)?,
            ends,
            ..Submission::from(Request::new(Vec::new(), 0))
        };
        let text = TextRules { stop: stops(self.stop)?, ..TextRules::default() };
        Ok(Choosing { submission, grammar, text, choices: n })
    }

    fn sampling(&self) -> Result<Sampling, ApiError> {
        let temperature = within("temperature", self.temperature.unwrap_or(1.0), 0.0, 100.0)?;
        let top_p = within("top_p", self.top_p.unwrap_or(1.0), f32::MIN_POSITIVE, 1.0)?;
        let seed = self.seed.map_or_else(|| RandomState::new().hash_one(0), i64::cast_unsigned);
        let sampling = Sampling::default().temperature(temperature).top_p(top_p).seed(seed);
        match self.top_k {
            None | Some(-1 | 0) => Ok(sampling),
            Some(top_k) => match usize::try_from(top_k) {
                Ok(top_k) => Ok(sampling.top_k(top_k)),
                Err(_) => {
                    Err(ApiError::parameter("top_k", format!("must be 1 or more, or -1 for all tokens, got {top_k}")))
                }
            },
        }
    }

    fn stop_tokens(&self, vocab: usize) -> Result<Vec<u32>, ApiError> {
        check_listed("stop_token_ids", self.stop_token_ids.len())?;
        match self.stop_token_ids.iter().find(|&&id| id as usize >= vocab) {
            Some(id) => Err(no_token("stop_token_ids", id, vocab)),
            None => Ok(self.stop_token_ids.clone()),
        }
    }

    fn bias(&self, vocab: usize) -> Result<Vec<(u32, f32)>, ApiError> {
        check_listed("logit_bias", self.logit_bias.len())?;
        let of = |(id, &bias): (&String, &f32)| {
            let token = id.parse().ok().filter(|&id: &u32| (id as usize) < vocab);
            let token = token.ok_or_else(|| no_token("logit_bias", id, vocab))?;
            Ok((token, within("logit_bias", bias, -100.0, 100.0)?))
        };
        self.logit_bias.iter().map(of).collect()
    }

    /// The grammar that the text follows, and the parameter that has it.
    fn grammar(&self) -> Result<Option<(&'static str, Grammar)>, ApiError> {
        let by_format = self.response_format.as_ref().map(ResponseFormat::grammar).transpose()?.flatten();
        let by_form = self.structured_outputs.as_ref().map(StructuredOutputs::grammar).transpose()?;
        let grammar = match (by_format, by_form) {
            (Some(_), Some(_)) => {
                return Err(ApiError::parameter("structured_outputs", "cannot be combined with `response_format`"));
            }
            (Some(grammar), None) => ("response_format", grammar),
            (None, Some(grammar)) => ("structured_outputs", grammar),
            (None, None) => return Ok(None),
        };
        // A grammar ends the text by the model's token, where it can.
        for (param, is_given) in [("ignore_eos", self.ignore_eos), ("min_tokens", self.min_tokens > 0)] {
            if is_given {
                return Err(ApiError::parameter(param, format!("cannot be combined with `{}`", grammar.0)));
            }
        }
        Ok(Some(grammar))
    }
}

impl ResponseFormat {
    fn grammar(&self) -> Result<Option<Grammar>, ApiError> {
        match (self.kind.as_str(), &self.json_schema) {
            ("text", None) => Ok(None),
            ("json_object", None) => Ok(Some(Grammar::JsonObject)),
            ("json_schema", Some(named)) => Ok(Some(Grammar::JsonSchema(named.schema.clone()))),
            ("json_schema", None) => Err(ApiError::parameter("response_format.json_schema", "is missing")),
            ("text" | "json_object", Some(_)) => {
                Err(ApiError::parameter("response_format.json_schema", "is for the type \"json_schema\""))
            }
            (kind, _) => {
                let reason = format!("must have the type \"text\", \"json_object\" or \"json_schema\", got {kind:?}");
                Err(ApiError::parameter("response_format", reason))
            }
        }
    }
}

impl StructuredOutputs {
    fn grammar(&self) -> Result<Grammar, ApiError> {
        let forms = [
            self.json.clone().map(Grammar::JsonSchema),
            self.json_object.filter(|&asked| asked).map(|_| Grammar::JsonObject),
            self.regex.clone().map(Grammar::Regex),
            self.choice.clone().map(Grammar::Choice),
            self.grammar.clone().map(Grammar::Lark),
        ];
        let mut given = forms.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(grammar), None) => Ok(grammar),
            (Some(_), Some(_)) | (None, _) => {
                let reason = "must have one of `json`, `json_object`, `regex`, `choice` and `grammar`";
                Err(ApiError::parameter("structured_outputs", reason))
            }
        }
    }
}

fn check_listed(param: &str, count: usize) -> Result<(), ApiError> {
    match count <= MOST_LISTED {
        true => Ok(()),
        false => Err(ApiError::parameter(param, format!("must list at most {MOST_LISTED} tokens, got {count}"))),
    }
}

/// A parameter names a token that the model does not have.
pub fn no_token(param: &str, id: impl std::fmt::Display, vocab: usize) -> ApiError {
    ApiError::parameter(
        param,
        format!("names the token {id}; the model has the tokens 0 to {}", vocab.saturating_sub(1)),
    )
}

fn stops(stop: Option<Stop>) -> Result<Vec<String>, ApiError> {
    let stops = match stop {
        None => return Ok(Vec::new()),
        Some(Stop::One(text)) => vec![text],
        Some(Stop::Several(texts)) => texts,
    };
    let (most, bytes) = MOST_STOPS;
    let fits = stops.len() <= most && stops.iter().all(|stop| (1..=bytes).contains(&stop.len()));
    match fits {
        true => Ok(stops),
        false => Err(ApiError::parameter("stop", format!("must be at most {most} texts of 1 to {bytes} bytes"))),
    }
}

/// A number from `least` to `most`.
fn within(param: &str, value: f32, least: f32, most: f32) -> Result<f32, ApiError> {
    match (least..=most).contains(&value) {
        true => Ok(value),
        false if least == f32::MIN_POSITIVE => {
            Err(ApiError::parameter(param, format!("must be above 0 and at most {most}, got {value}")))
        }
        false => Err(ApiError::parameter(param, format!("must be {least} to {most}, got {value}"))),
    }
}

/// Checks a number of likeliest tokens.
///
/// # Errors
/// It is more than the most that are returned.
pub fn check_logprobs(param: &str, count: usize) -> Result<usize, ApiError> {
    match count <= MOST_LOGPROBS {
        true => Ok(count),
        false => Err(ApiError::parameter(param, format!("must be at most {MOST_LOGPROBS}, got {count}"))),
    }
}
