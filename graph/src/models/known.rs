//! Keys of `config.json` that change nothing about the graph, with the values for which that holds.

use super::keys::{ANY, EMPTY, FALSE, Inert, KnownKey, NULL, ONE, ZERO, known};

/// The keys of `config.json` that are known and not used. A key in neither place is an error.
pub const KNOWN: &[KnownKey] = &[
    // Where the file comes from.
    known("_name_or_path", "where the model was loaded from", ANY),
    known("name_or_path", "where the model was loaded from", ANY),
    known("_commit_hash", "the revision it was loaded from", ANY),
    known("transformers_version", "the program that wrote the file", ANY),
    known("transformers.js_config", "settings of another program", ANY),
    known("unsloth_version", "the program that trained the model", ANY),
    known("unsloth_fixed", "the program that trained the model", ANY),
    known("is_llama_config", "a note that the layout is Llama's", ANY),
    // How to compute, not what.
    known("torch_dtype", "the element type to load as; the weights are used as stored", ANY),
    known("dtype", "the element type to load as; the weights are used as stored", ANY),
    known("use_bfloat16", "the element type on another machine", ANY),
    known("torchscript", "how the model is exported", ANY),
    known("use_cache", "whether keys and values are kept", ANY),
    known("cache_implementation", "how keys and values are kept", ANY),
    known("attn_implementation", "which attention kernel runs", ANY),
    known("_attn_implementation", "which attention kernel runs", ANY),
    known("_attn_implementation_autoset", "which attention kernel runs", ANY),
    known("_flash_attn_2_enabled", "which attention kernel runs", ANY),
    known("gradient_checkpointing", "memory used in training", ANY),
    known("chunk_size_feed_forward", "how the MLP is cut into pieces", ANY),
    known("return_dict", "the form of the results", ANY),
    known("use_return_dict", "the form of the results", ANY),
    known("output_attentions", "the form of the results", ANY),
    known("output_hidden_states", "the form of the results", ANY),
    known("output_scores", "the form of the results", ANY),
    known("output_router_logits", "the form of the results", ANY),
    known("return_dict_in_generate", "the form of the results", ANY),
    // Training only.
    known("initializer_range", "the spread of the weights before training", ANY),
    known("attention_dropout", "used in training only", ANY),
    known("hidden_dropout", "used in training only", ANY),
    known("resid_pdrop", "used in training only", ANY),
    known("embd_pdrop", "used in training only", ANY),
    known("residual_dropout", "used in training only", ANY),
    known("embedding_dropout", "used in training only", ANY),
    known("router_aux_loss_coef", "used in training only", ANY),
    known("router_jitter_noise", "used in training only", ANY),
    known("pretraining_tp", "linear layers are computed in slices", ONE),
    // Classification heads, which a causal language model does not have.
    known("id2label", "names of classes", ANY),
    known("label2id", "names of classes", ANY),
    known("num_labels", "number of classes", ANY),
    known("problem_type", "what a classifier is trained for", ANY),
    known("finetuning_task", "what the model was tuned for", ANY),
    known("task_specific_params", "settings for tasks", ANY),
    // Tokens that the tokenizer and the sampler handle.
    known("bos_token_id", "the first token; the tokenizer adds it", ANY),
    known("pad_token_id", "the token that fills a batch; batches are not padded here", ANY),
    known("sep_token_id", "a separator; the tokenizer adds it", ANY),
    known("eos_token_id", "the tokens that end a sequence; the sampler stops at them", ANY),
    known("tokenizer_class", "the class that reads the tokenizer", ANY),
    // Defaults of a sampler. The caller says how to sample.
    known("max_length", "a default of the sampler", ANY),
    known("min_length", "a default of the sampler", ANY),
    known("do_sample", "a default of the sampler", ANY),
    known("early_stopping", "a default of the sampler", ANY),
    known("num_beams", "a default of the sampler", ANY),
    known("num_beam_groups", "a default of the sampler", ANY),
    known("diversity_penalty", "a default of the sampler", ANY),
    known("temperature", "a default of the sampler", ANY),
    known("top_k", "a default of the sampler", ANY),
    known("top_p", "a default of the sampler", ANY),
    known("typical_p", "a default of the sampler", ANY),
    known("repetition_penalty", "a default of the sampler", ANY),
    known("length_penalty", "a default of the sampler", ANY),
    known("no_repeat_ngram_size", "a default of the sampler", ANY),
    known("encoder_no_repeat_ngram_size", "a default of the sampler", ANY),
    known("num_return_sequences", "a default of the sampler", ANY),
    known("bad_words_ids", "a default of the sampler", ANY),
    known("suppress_tokens", "a default of the sampler", ANY),
    known("begin_suppress_tokens", "a default of the sampler", ANY),
    known("forced_bos_token_id", "a default of the sampler", ANY),
    known("forced_eos_token_id", "a default of the sampler", ANY),
    known("remove_invalid_values", "a default of the sampler", ANY),
    known("exponential_decay_length_penalty", "a default of the sampler", ANY),
    known("prefix", "text before each prompt", EMPTY_TEXT),
    // Keys that change the mathematics, with the values that do not.
    known("partial_rotary_factor", "rotates a part of each head only", ONE),
    known("rope_interleaved", "pairs neighbouring dimensions in the rotation", FALSE),
    known("use_bidirectional_attention", "attends to later positions", FALSE),
    known("use_mrope", "rotates by positions in three dimensions", FALSE),
    known("no_rope_layers", "leaves layers without rotation", NULL),
    known("no_rope_layer_interval", "leaves layers without rotation", NULL),
    known("original_max_position_embeddings", "changes the scaling of the rotation", NULL),
    known("attention_bias", "adds biases to the attention's projections", FALSE),
    known("mlp_bias", "adds biases to the MLP", FALSE),
    known("lm_head_bias", "adds a bias to the logits", FALSE),
    known("full_attn_mod", "gives layers another attention", ONE),
    known("interpolate_factor", "scales the positions", ONE),
    known("use_qk_norm", "normalises queries and keys", FALSE),
    known("qk_layernorm", "normalises queries and keys", FALSE),
    known("sliding_window", "limits attention to a window", NULL),
    known("use_sliding_window", "limits attention to a window", FALSE),
    known("attention_chunk_size", "limits attention to chunks", NULL),
    known("attn_logit_softcapping", "squashes the attention's scores", NULL),
    known("final_logit_softcapping", "squashes the logits", NULL),
    known("query_pre_attn_scalar", "scales the attention's scores", NULL),
    known("attention_multiplier", "scales the attention's scores", NULL),
    known("embedding_multiplier", "scales the embeddings", ONE),
    known("residual_multiplier", "scales what each block adds", ONE),
    known("logits_scaling", "scales the logits", ONE),
    known("logit_scale", "scales the logits", ONE),
    known("num_experts", "replaces the MLP by experts", ZERO),
    known("num_local_experts", "replaces the MLP by experts", ZERO),
    known("n_routed_experts", "replaces the MLP by experts", ZERO),
    known("num_experts_per_tok", "replaces the MLP by experts", ZERO),
    known("kv_lora_rank", "compresses keys and values", NULL),
    known("q_lora_rank", "compresses queries", NULL),
    known("quantization_config", "how the weights are stored; the graph is about their values", ANY),
    known("compression_config", "the weights are compressed", NULL),
    known("auto_map", "code of the checkpoint's own computes the model", EMPTY),
    known("pruned_heads", "removes heads", EMPTY),
    known("text_config", "the language model is a part of a larger one", NULL),
    known("vision_config", "the language model is a part of a larger one", NULL),
    known("audio_config", "the language model is a part of a larger one", NULL),
    known("is_encoder_decoder", "adds an encoder", FALSE),
    known("is_decoder", "turns an encoder into a decoder", FALSE),
    known("add_cross_attention", "adds attention to an encoder", FALSE),
    known("cross_attention_hidden_size", "adds attention to an encoder", NULL),
    known("tie_encoder_decoder", "shares weights with an encoder", FALSE),
    known("decoder_start_token_id", "starts a decoder of its own", NULL),
];

const EMPTY_TEXT: Inert = Inert { text: "null or empty", test: |v| v.is_null() || v.as_str() == Some("") };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_known_key_is_listed_twice() {
        for (i, known) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..i].iter().all(|other| other.key != known.key), "{}", known.key);
        }
    }
}
