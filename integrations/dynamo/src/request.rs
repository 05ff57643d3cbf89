//! Translates a request of Dynamo, whose prompt is token ids, into one of the engine.

use std::hash::{BuildHasher, RandomState};

use dynamo_backend_common::{GuidedDecodingOptions, PreprocessedRequest, SamplingOptions};
use serde_json::Value;
use tilewright::checkpoint::Checkpoint;
use tilewright::engine::{EndTokens, Grammar, Penalties, Request, Sampling, Submission};

use crate::error::RequestError;

/// Most log probabilities of a token.
const MOST_LOGPROBS: u32 = 20;

/// A request of Dynamo in the engine's terms.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    /// The request, without its grammar.
    pub submission: Submission,
    /// The grammar that its text follows; it must still be compiled.
    pub grammar: Option<Grammar>,
}

/// The facts about a model that a translation needs.
#[derive(Clone, Copy)]
pub struct ModelFacts<'a> {
    /// The checkpoint, whose own settings apply where a request has none.
    pub checkpoint: &'a Checkpoint,
    /// Most tokens of a sequence.
    pub context: usize,
}

impl ModelFacts<'_> {
    /// Translates a request. A number of new tokens that exceeds the context is lowered to it.
    ///
    /// # Errors
    /// The request needs a feature that this worker does not have, or a number is out of range.
    pub fn translate(self, request: &PreprocessedRequest) -> Result<Translated, RequestError> {
        check_features(request)?;
        let stop = &request.stop_conditions;
        let sampling = &request.sampling_options;
        let own = self.checkpoint.generation();
        let prompt = request.token_ids.len();
        let room = self.context.checked_sub(prompt).filter(|&room| room > 0);
        let room = room.ok_or(RequestError::NoRoom { prompt, context: self.context })?;
        let new = stop.max_tokens.map_or(room, |tokens| room.min(tokens as usize));
        let ignore_model = stop.ignore_eos.unwrap_or(false);
        let mut ends: Vec<u32> = Vec::new();
        if !ignore_model {
            let listed = [&stop.stop_token_ids, &stop.stop_token_ids_visible, &stop.stop_token_ids_hidden];
            ends.extend(listed.into_iter().flatten().flatten());
            ends.sort_unstable();
            ends.dedup();
            ends.retain(|id| !self.checkpoint.eos_ids().contains(id));
        }
        let min_new_tokens = stop.min_tokens.unwrap_or(0) as usize;
        let grammar = sampling.guided_decoding.as_ref().map(grammar).transpose()?;
        if grammar.is_some() && (ignore_model || min_new_tokens > 0) {
            return Err(RequestError::Unsupported { feature: "guided decoding with ignore_eos or min_tokens" });
        }
        let submission = Submission {
            sampling: draws(sampling)?,
            penalties: Penalties {
                repetition: sampling.repetition_penalty.or(own.repetition_penalty).unwrap_or(1.0),
                presence: sampling.presence_penalty.unwrap_or(0.0),
                frequency: sampling.frequency_penalty.unwrap_or(0.0),
                no_repeat: own.no_repeat_ngram_size,
            },
            suppressed: own.suppress_tokens.clone(),
            min_p: sampling.min_p.unwrap_or(0.0),
            ends: EndTokens { ignore_model, tokens: ends, min_new_tokens },
            logprobs: request.output_options.logprobs.map(most_logprobs).transpose()?,
            priority: request.routing.as_ref().and_then(|routing| routing.priority).unwrap_or(0),
            ..Submission::from(Request::new(request.token_ids.to_vec(), new))
        };
        Ok(Translated { submission, grammar })
    }
}

/// Refuses requests whose answer would differ from what they ask for.
fn check_features(request: &PreprocessedRequest) -> Result<(), RequestError> {
    let sampling = &request.sampling_options;
    let routing = request.routing.as_ref();
    let several = |count: Option<u8>| count.is_some_and(|count| count > 1);
    let has_media = request.multi_modal_data.as_ref().is_some_and(|data| !data.is_empty());
    let unsupported = [
        (several(sampling.n) || several(sampling.best_of), "n above 1"),
        (sampling.use_beam_search == Some(true), "beam search"),
        (request.prompt_embeds.is_some(), "a prompt of embeddings"),
        (has_media, "multimodal input"),
        (request.output_options.prompt_logprobs.is_some(), "prompt_logprobs"),
        (request.stop_conditions.max_thinking_tokens.is_some(), "max_thinking_tokens"),
        (request.prefill_result.is_some() || request.bootstrap_info.is_some(), "disaggregated prefill"),
        (routing.is_some_and(|routing| routing.lora_name.is_some()), "LoRA"),
        (routing.is_some_and(|routing| routing.cache_namespace.is_some()), "cache_salt"),
    ];
    match unsupported.into_iter().find(|(is_asked, _)| *is_asked) {
        Some((_, feature)) => Err(RequestError::Unsupported { feature }),
        None => Ok(()),
    }
}

/// How tokens are drawn. Like OpenAI's API, a request without a temperature has temperature 1.
fn draws(options: &SamplingOptions) -> Result<Sampling, RequestError> {
    let seed = options.seed.map_or_else(|| RandomState::new().hash_one(0), i64::cast_unsigned);
    let sampling = Sampling::default()
        .temperature(options.temperature.unwrap_or(1.0))
        .top_p(options.top_p.unwrap_or(1.0))
        .seed(seed);
    match options.top_k {
        None | Some(-1 | 0) => Ok(sampling),
        Some(top_k) => match usize::try_from(top_k) {
            Ok(top_k) => Ok(sampling.top_k(top_k)),
            Err(_) => Err(RequestError::OutOfRange {
                name: "top_k",
                expected: "1 or more, or -1 for all tokens",
                found: top_k.to_string(),
            }),
        },
    }
}

fn most_logprobs(count: u32) -> Result<usize, RequestError> {
    match count <= MOST_LOGPROBS {
        true => Ok(count as usize),
        false => Err(RequestError::OutOfRange { name: "logprobs", expected: "at most 20", found: count.to_string() }),
    }
}

/// The grammar of guided decoding.
fn grammar(options: &GuidedDecodingOptions) -> Result<Grammar, RequestError> {
    if options.structural_tag.is_some() {
        return Err(RequestError::Unsupported { feature: "a structural tag" });
    }
    if options.whitespace_pattern.is_some() {
        return Err(RequestError::Unsupported { feature: "whitespace_pattern" });
    }
    let schema = |value: &Value| match value {
        Value::String(text) => serde_json::from_str(text).map(Grammar::JsonSchema).map_err(RequestError::Schema),
        value => Ok(Grammar::JsonSchema(value.clone())),
    };
    let forms = [
        options.json.as_ref().map(schema),
        options.regex.clone().map(|regex| Ok(Grammar::Regex(regex))),
        options.choice.clone().map(|choice| Ok(Grammar::Choice(choice))),
        options.grammar.clone().map(|grammar| Ok(Grammar::Lark(grammar))),
    ];
    let mut given = forms.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(grammar), None) => grammar,
        _ => Err(RequestError::OutOfRange {
            name: "guided decoding",
            expected: "one of json, regex, choice and grammar",
            found: "none or several".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dynamo_backend_common::{OutputOptions, StopConditions};
    use dynamo_llm::protocols::common::preprocessor::RoutingHints;

    use super::*;

    fn request(tokens: usize) -> PreprocessedRequest {
        PreprocessedRequest::builder()
            .model("tiny".to_owned())
            .token_ids(vec![5; tokens])
            .stop_conditions(StopConditions::default())
            .sampling_options(SamplingOptions::default())
            .output_options(OutputOptions::default())
            .build()
            .expect("a request")
    }

    fn translate(request: &PreprocessedRequest) -> Result<Translated, RequestError> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-llama");
        let checkpoint = Checkpoint::open(&folder, &mut |_| ()).expect("a checkpoint");
        ModelFacts { checkpoint: &checkpoint, context: 64 }.translate(request)
    }

    #[test]
    fn new_tokens_are_bounded_by_the_context() {
        for (asked, given) in [(None, 54), (Some(8), 8), (Some(10_000), 54)] {
            let mut request = request(10);
            request.stop_conditions.max_tokens = asked;
            let submission = translate(&request).expect("it fits").submission;
            assert_eq!(submission.request.max_new_tokens, given, "{asked:?}");
        }
        assert!(matches!(translate(&request(64)), Err(RequestError::NoRoom { prompt: 64, context: 64 })));
    }

    #[test]
    fn stop_tokens_of_all_kinds_end_a_request_unless_ends_are_ignored() {
        let mut request = request(4);
        request.stop_conditions.stop_token_ids = Some(vec![7]);
        // The model's own end is known to the engine.
        request.stop_conditions.stop_token_ids_hidden = Some(vec![1, 9, 7]);
        assert_eq!(translate(&request).expect("accepted").submission.ends.tokens, [7, 9]);
        request.stop_conditions.ignore_eos = Some(true);
        let ends = translate(&request).expect("accepted").submission.ends;
        assert_eq!((ends.ignore_model, ends.tokens), (true, Vec::new()));
    }

    #[test]
    fn guided_decoding_is_one_grammar() {
        let guided = |options| {
            let mut request = request(4);
            request.sampling_options.guided_decoding = Some(options);
            translate(&request).map(|translated| translated.grammar)
        };
        let none = GuidedDecodingOptions::default;
        let schema = serde_json::json!({ "type": "object" });
        for json in [schema.clone(), Value::String(schema.to_string())] {
            let found = guided(GuidedDecodingOptions { json: Some(json), ..none() }).expect("accepted");
            assert_eq!(found, Some(Grammar::JsonSchema(schema.clone())));
        }
        let regex = Some("[a-z]+".to_owned());
        let found = guided(GuidedDecodingOptions { regex: regex.clone(), ..none() }).expect("accepted");
        assert_eq!(found, regex.clone().map(Grammar::Regex));
        assert!(guided(none()).is_err());
        assert!(guided(GuidedDecodingOptions { regex, choice: Some(Vec::new()), ..none() }).is_err());
        assert!(guided(GuidedDecodingOptions { structural_tag: Some(schema), ..none() }).is_err());
    }

    #[test]
    fn features_that_are_missing_are_refused() {
        let salted = RoutingHints { cache_namespace: Some("tenant".to_owned()), ..RoutingHints::default() };
        let changes: [fn(&mut PreprocessedRequest, &RoutingHints); 5] = [
            |request, _| request.sampling_options.n = Some(2),
            |request, _| request.sampling_options.top_k = Some(-2),
            |request, _| request.output_options.logprobs = Some(21),
            |request, _| request.output_options.prompt_logprobs = Some(1),
            |request, routing| request.routing = Some(routing.clone()),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut request = request(4);
            change(&mut request, &salted);
            assert!(translate(&request).is_err(), "change {at}");
        }
    }
}
