//! `/v1/completions`: texts that are continued as they are.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::answer::{Answer, Head, Streaming, finish, respond};
use super::app::{App, RequestId, blocking};
use super::body::read_body;
use super::error::ApiError;
use super::generation::{Ended, Job, Piece};
use super::logprobs::TextLogprobs;
use super::parameters::{CompletionBody, MOST_CHOICES, Prompt, StreamOptions, check_logprobs, no_token, read};
use crate::checkpoint::Tokenizer;
use crate::engine::Token;

/// Tokens of a completion where the request does not say, as OpenAI has it.
const DEFAULT_TOKENS: usize = 16;

/// Handles a request.
pub async fn completions(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    body: Body,
) -> Result<Response, ApiError> {
    let body = read_body(body, &app.options.limits).await?;
    let asked = blocking(&app, move |app| Asked::new(app, id, read(&body)?)).await?;
    let Asked { job, echoed, streaming } = asked;
    let per_prompt = job.choosing.choices;
    let states = echoed.iter().flat_map(|echo| std::iter::repeat_n(echo, per_prompt)).map(TextState::new).collect();
    let choices = job.start(&app).await?;
    let head = Head { id: app.unique("cmpl-"), model: app.options.model.clone() };
    respond(Completions { app, states }, head, choices, streaming).await
}

/// A request that was read and checked.
struct Asked {
    job: Job,
    /// What comes before each prompt's choices.
    echoed: Vec<Echo>,
    streaming: Option<Streaming>,
}

impl Asked {
    fn new(app: &App, id: RequestId, mut body: CompletionBody) -> Result<Asked, ApiError> {
        app.check_model(body.model.as_deref())?;
        id.log_user(body.user.as_deref());
        let mut choosing = body.shared().choosing(app.engine.checkpoint())?;
        if body.best_of.is_some_and(|best_of| best_of != choosing.choices) {
            return Err(ApiError::parameter("best_of", "must equal `n`: no choice is left out"));
        }
        let echo = body.echo.unwrap_or_default();
        let logprobs = body.logprobs.map(|count| check_logprobs("logprobs", count)).transpose()?;
        let max_tokens = body.max_tokens.unwrap_or(DEFAULT_TOKENS);
        if echo && logprobs.is_some() {
            if max_tokens == 0 {
                return Err(ApiError::parameter("max_tokens", "must be at least 1 with `echo` and `logprobs`"));
            }
            choosing.submission.prompt_logprobs = logprobs;
        }
        let (prompts, texts) = prompts(app, body.prompt, echo)?;
        let is_scored = choosing.submission.prompt_logprobs.is_some();
        let scored = |ids: &Vec<u32>| if is_scored { ids.clone() } else { Vec::new() };
        let echoed = prompts.iter().zip(texts).map(|(ids, text)| Echo { text, scored: scored(ids) }).collect();
        let job = Job { id, prompts, choosing, max_tokens: Some(max_tokens), logprobs };
        Ok(Asked { job, echoed, streaming: streaming(body.stream, body.stream_options)? })
    }
}

/// How an answer streams, if it does.
///
/// # Errors
/// Options of a stream without one.
pub fn streaming(stream: Option<bool>, options: Option<StreamOptions>) -> Result<Option<Streaming>, ApiError> {
    match (stream.unwrap_or_default(), options) {
        (true, options) => Ok(Some(Streaming { usage: options.unwrap_or_default().include_usage })),
        (false, None) => Ok(None),
        (false, Some(_)) => Err(ApiError::parameter("stream_options", "is for streams; set `stream` to true")),
    }
}

/// The tokens of prompts, and the texts to repeat before their choices.
fn prompts(app: &App, prompt: Prompt, echo: bool) -> Result<(Vec<Vec<u32>>, Vec<String>), ApiError> {
    let count = match &prompt {
        Prompt::Text(_) | Prompt::Ids(_) => 1,
        Prompt::Texts(texts) => texts.len(),
        Prompt::IdLists(lists) => lists.len(),
    };
    if count > MOST_CHOICES {
        return Err(ApiError::parameter("prompt", format!("has {count} prompts; at most {MOST_CHOICES} are taken")));
    }
    let (ids, texts) = match prompt {
        Prompt::Text(text) => (vec![app.engine.prompt_ids(&text)?], vec![text]),
        Prompt::Texts(texts) => {
            let ids = texts.iter().map(|text| app.engine.prompt_ids(text)).collect::<Result<_, _>>()?;
            (ids, texts)
        }
        Prompt::Ids(ids) => decoded(app, vec![ids], echo)?,
        Prompt::IdLists(lists) => decoded(app, lists, echo)?,
    };
    if ids.is_empty() || ids.iter().any(Vec::is_empty) {
        return Err(ApiError::parameter("prompt", "must have at least one token"));
    }
    let texts = if echo { texts } else { vec![String::new(); ids.len()] };
    Ok((ids, texts))
}

/// Lists of tokens, and their texts where they are repeated.
fn decoded(app: &App, lists: Vec<Vec<u32>>, echo: bool) -> Result<(Vec<Vec<u32>>, Vec<String>), ApiError> {
    let texts = lists.iter().filter(|_| echo).map(|ids| text(app, "prompt", ids)).collect::<Result<_, _>>()?;
    Ok((lists, texts))
}

/// The text of tokens.
///
/// # Errors
/// The model has no such token, or the tokenizer cannot decode them.
pub fn text(app: &App, param: &str, ids: &[u32]) -> Result<String, ApiError> {
    let vocab = app.engine.spec().vocab;
    match ids.iter().find(|&&id| id as usize >= vocab) {
        Some(id) => Err(no_token(param, id, vocab)),
        None => Ok(app.engine.tokenizer().decode(ids)?),
    }
}

/// Answers of this endpoint.
struct Completions {
    app: Arc<App>,
    states: Vec<TextState>,
}

/// What comes before a choice.
#[derive(Clone, Default)]
struct Echo {
    /// The text that is repeated; none where none is.
    text: String,
    /// The tokens of the prompt whose log probabilities are wanted.
    scored: Vec<u32>,
}

/// A choice so far.
struct TextState {
    /// What comes before it, until its first part.
    echo: Echo,
    /// Characters of the tokens so far.
    characters: usize,
    /// Log probabilities of tokens whose text is held back.
    held: Option<TextLogprobs>,
}

/// A part of a choice.
struct TextPart {
    text: String,
    logprobs: Option<TextLogprobs>,
    end: Option<Ended>,
}

impl TextState {
    fn new(echo: &Echo) -> TextState {
        let characters = if echo.scored.is_empty() { echo.text.chars().count() } else { 0 };
        TextState { echo: echo.clone(), characters, held: None }
    }

    /// Holds the log probabilities of a token, after those of the prompt that come with the first.
    fn score(&mut self, tokenizer: &Tokenizer, token: &Token) {
        let prompt = std::mem::take(&mut self.echo.scored);
        let of_prompt = std::iter::once(None).chain(token.prompt.iter().map(Some));
        let of_token = token.logprobs.as_ref().map(|logprobs| (token.id, Some(logprobs)));
        for (id, logprobs) in prompt.into_iter().zip(of_prompt).chain(of_token) {
            let held = self.held.get_or_insert_default();
            self.characters += held.push(tokenizer, id, logprobs, self.characters);
        }
    }
}

impl Answer for Completions {
    type Part = TextPart;

    const OBJECTS: [&'static str; 2] = ["text_completion"; 2];

    fn parts(&mut self, piece: Piece) -> Vec<TextPart> {
        let Some(state) = self.states.get_mut(piece.choice) else { return Vec::new() };
        if let Some(token) = &piece.token {
            state.score(self.app.engine.tokenizer(), token);
        }
        let text = std::mem::take(&mut state.echo.text) + &piece.text;
        if text.is_empty() && piece.end.is_none() {
            return Vec::new();
        }
        vec![TextPart { text, logprobs: state.held.take(), end: piece.end }]
    }

    fn join(whole: &mut TextPart, later: TextPart) {
        whole.text += &later.text;
        match (&mut whole.logprobs, later.logprobs) {
            (Some(logprobs), Some(later)) => logprobs.join(later),
            (logprobs, Some(later)) => *logprobs = Some(later),
            (_, None) => {}
        }
        whole.end = later.end;
    }

    fn choice(index: usize, whole: &TextPart) -> Value {
        let (finish_reason, stop_reason) = finish(whole.end.as_ref());
        json!({
            "index": index,
            "text": whole.text,
            "logprobs": whole.logprobs,
            "finish_reason": finish_reason,
            "stop_reason": stop_reason,
        })
    }

    fn chunk(index: usize, part: &TextPart) -> Value {
        Completions::choice(index, part)
    }
}
