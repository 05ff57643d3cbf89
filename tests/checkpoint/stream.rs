//! Decoding: the pieces of a stream, joined, are the text of the whole, whatever the ids.

use proptest::prelude::*;
use serde_json::json;
use tilewright::checkpoint::{Tokenizer, TokenizerError};

use crate::folder::{byte_fallback_tokenizer, byte_level_tokenizer, shipped};

fn tokenizers() -> &'static [Tokenizer] {
    static ALL: std::sync::OnceLock<Vec<Tokenizer>> = std::sync::OnceLock::new();
    ALL.get_or_init(|| {
        let shipped = |model: &str, rows| {
            Tokenizer::from_json(&std::fs::read(shipped(model).join("tokenizer.json")).unwrap(), rows).unwrap()
        };
        let mut metaspace = byte_fallback_tokenizer();
        metaspace["decoder"] =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false});
        let built = |value: serde_json::Value| Tokenizer::from_json(value.to_string().as_bytes(), 300).unwrap();
        vec![
            shipped("tiny-llama", 2048),
            shipped("tiny-qwen3", 1024),
            built(byte_level_tokenizer()),
            built(byte_fallback_tokenizer()),
            built(metaspace),
        ]
    })
}

/// The pieces of a stream and what was held back to the end.
fn pieces(tokenizer: &Tokenizer, ids: &[u32]) -> (Vec<String>, String) {
    let mut stream = tokenizer.stream();
    let pieces = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    (pieces, stream.finish().unwrap())
}

/// The byte of a token such as `<0xE4>`.
fn byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The text of ids in whose runs of byte tokens each byte from the first on that is not part of a
/// character is U+FFFD.
///
/// These bytes are replaced by a control character that the ids do not have, decoded, and replaced
/// again.
fn repaired(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let visible = |id: u32| tokenizer.token(id).filter(|token| tokenizer.special_id(token).is_none());
    let mut out: Vec<u32> = ids.to_vec();
    let places: Vec<usize> = (0..ids.len()).filter(|&at| visible(ids[at]).is_some()).collect();
    let bytes: Vec<Option<u8>> = places.iter().map(|&at| visible(ids[at]).and_then(|token| byte(&token))).collect();
    let id_of = |byte: u8| (0..300).find(|&id| tokenizer.token(id) == Some(format!("<0x{byte:02X}>")));
    let unused = (1..32u8).find_map(|byte| id_of(byte).filter(|id| !ids.contains(id)).map(|id| (byte, id)));
    let Some((substitute_byte, substitute)) = unused else { return tokenizer.decode(ids).unwrap() };
    let mut start = 0;
    while start < places.len() {
        let end = (start..places.len()).find(|&at| bytes[at].is_none()).unwrap_or(places.len());
        let run: Vec<u8> = bytes[start..end].iter().flatten().copied().collect();
        if let Err(error) = std::str::from_utf8(&run) {
            let valid = error.valid_up_to();
            // A space that the decoder strips from the text's start has not been returned, so that
            // the run is replaced as a whole.
            let stripped = valid > 0 && tokenizer.decode(&ids[..=places[start + valid - 1]]).unwrap().is_empty();
            let first = if stripped { start } else { start + valid };
            (first..end).for_each(|at| out[places[at]] = substitute);
        }
        start = end + 1;
    }
    tokenizer.decode(&out).unwrap().replace(char::from(substitute_byte), "\u{fffd}")
}

fn check(tokenizer: &Tokenizer, ids: &[u32]) -> Result<(), TestCaseError> {
    let (pieces, rest) = pieces(tokenizer, ids);
    let whole = tokenizer.decode(ids).unwrap();
    // Of bytes that are not UTF-8 the decoder gives up the whole run, and the stream what comes
    // after its characters.
    if pieces.concat() + &rest != whole {
        prop_assert_eq!(pieces.concat() + &rest, repaired(tokenizer, ids));
    }
    prop_assert!(pieces.iter().all(|piece| !piece.ends_with(char::REPLACEMENT_CHARACTER)));
    Ok(())
}

/// Ids of all kinds; among them many byte tokens (the first few hundred of each vocabulary) and
/// some without a token.
fn ids() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![3 => 0u32..270, 2 => 0u32..2048, 1 => 0u32..4], 0..60)
}

/// The bytes ` ` and 0x80, a space, and the bytes 0 and 0x80. The first space is stripped, so
/// nothing of its run has been returned when the run turns out not to be UTF-8.
#[test]
fn a_run_whose_start_is_stripped_is_replaced_as_a_whole() {
    let ids = [35, 131, 259, 3, 131];
    let (pieces, rest) = pieces(&tokenizers()[3], &ids);
    assert_eq!(pieces.concat() + &rest, "\u{fffd}\u{fffd} \0\u{fffd}");
    check(&tokenizers()[3], &ids).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn pieces_join_to_the_whole_for_any_ids(which in 0usize..5, ids in ids()) {
        check(&tokenizers()[which], &ids)?;
    }

    #[test]
    fn pieces_join_to_the_whole_for_any_text(which in 0usize..5, text in "(\\PC| |a|b|the|é|界|👩‍👩‍👧|\u{fffd}|\n){0,40}") {
        let tokenizer = &tokenizers()[which];
        check(tokenizer, &tokenizer.encode(&text).unwrap())?;
    }

    #[test]
    fn shipped_tokenizers_give_back_any_text(which in 0usize..2, text in "\\PC{0,40}") {
        let tokenizer = &tokenizers()[which];
        prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text).unwrap()).unwrap(), text);
    }
}

#[test]
fn a_character_of_several_tokens_comes_whole() {
    for tokenizer in [&tokenizers()[0], &tokenizers()[3]] {
        let text = "a👩b";
        let ids = tokenizer.encode(text).unwrap();
        let (pieces, rest) = pieces(tokenizer, &ids);
        let said: Vec<_> = pieces.iter().filter(|piece| !piece.is_empty()).cloned().collect();
        assert!(said.iter().any(|piece| piece.contains('👩')), "{said:?}");
        assert_eq!(said.concat() + &rest, text);
        assert!(pieces.iter().filter(|piece| piece.is_empty()).count() >= 3, "{pieces:?}");
    }
}

#[test]
fn words_come_as_their_tokens_arrive() {
    let tokenizer = &tokenizers()[0];
    let ids = tokenizer.encode("In the beginning God created the heaven").unwrap();
    let (pieces, rest) = pieces(tokenizer, &ids);
    assert_eq!(rest, "");
    // The first token is the special one that begins a text; each other one gives its text at once.
    assert!(pieces[0].is_empty() && pieces[1..].iter().all(|piece| !piece.is_empty()), "{pieces:?}");
}

#[test]
fn special_tokens_and_ids_without_a_token_give_no_text() {
    let tokenizer = &tokenizers()[0];
    assert_eq!(tokenizer.decode(&[0, 1, 1_000_000]).unwrap(), "");
    assert_eq!(tokenizer.token(1).as_deref(), Some("<|end|>"));
    assert_eq!(tokenizer.token(1_000_000), None);
}

/// Truncation and padding in the file are a caller's settings; applied here they would cut or
/// lengthen prompts.
#[test]
fn truncation_and_padding_of_the_file_are_ignored() {
    let mut value = byte_level_tokenizer();
    let plain = Tokenizer::from_json(value.to_string().as_bytes(), 40).unwrap();
    value["truncation"] = json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    value["padding"] = json!({"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 2, "pad_type_id": 0, "pad_token": "<|pad|>"});
    let set = Tokenizer::from_json(value.to_string().as_bytes(), 40).unwrap();
    assert_eq!(set.encode("the thing").unwrap(), plain.encode("the thing").unwrap());
}

/// Found by the property above: an id without a token stood between two byte tokens, and the run
/// was cut in two.
#[test]
fn an_id_without_a_token_does_not_end_a_run_of_bytes() {
    let tokenizer = &tokenizers()[3];
    let nul = 3;
    let continuation = 3 + 0x80;
    for between in [267, 1] {
        let ids = [nul, between, continuation];
        assert_eq!(tokenizer.decode(&ids).unwrap(), "\u{fffd}\u{fffd}");
        let expected = ["\0", "", ""].map(str::to_owned).to_vec();
        assert_eq!(pieces(tokenizer, &ids), (expected, "\u{fffd}".to_owned()));
    }
}

/// `世界你好🙂` by byte tokens: each character with its last byte, not all at the end of the run.
#[test]
fn characters_of_byte_tokens_arrive_as_soon_as_they_are_complete() {
    let tokenizer = &tokenizers()[3];
    let text = "世界你好🙂";
    let ids: Vec<u32> = text.bytes().map(|byte| 3 + u32::from(byte)).collect();
    assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    let (pieces, rest) = pieces(tokenizer, &ids);
    assert_eq!((pieces.concat().as_str(), rest.as_str()), (text, ""));
    let mut at = 0;
    for character in text.chars() {
        at += character.len_utf8();
        assert_eq!(pieces[at - 1], character.to_string());
    }
    assert_eq!(pieces.iter().filter(|piece| !piece.is_empty()).count(), 5);
    // What follows an incomplete character is not lost, and the characters before it stay.
    let (pieces, rest) = self::pieces(tokenizer, &[&ids[..4], &ids[6..9]].concat());
    assert_eq!(pieces.concat() + &rest, format!("世{}", "\u{fffd}".repeat(4)));
}

/// The bytes of the tokens, joined, are the bytes of their text.
#[test]
fn bytes_of_tokens_are_those_of_their_text() {
    for tokenizer in &tokenizers()[..4] {
        for text in ["a👩b", "the界", "é"] {
            let ids = tokenizer.encode(text).unwrap();
            let visible = ids.iter().filter(|&&id| !tokenizer.decode(&[id]).is_ok_and(|text| text.is_empty()));
            let bytes: Vec<u8> = visible.flat_map(|&id| tokenizer.token_bytes(id).expect("a token")).collect();
            let found = String::from_utf8(bytes).expect("UTF-8");
            assert_eq!(found.trim_start(), tokenizer.decode(&ids).unwrap());
        }
    }
    assert_eq!(tokenizers()[0].token_bytes(1).as_deref(), Some(b"<|end|>".as_slice()));
    assert_eq!(tokenizers()[0].token_bytes(1_000_000), None);
}

/// A decoder that rewrites text across tokens cannot be streamed; the end says so rather than
/// giving other text.
#[test]
fn a_decoder_that_rewrites_is_found_out() {
    let mut value = byte_fallback_tokenizer();
    value["decoder"] = json!({"type": "Sequence", "decoders": [{"type": "Fuse"},
        {"type": "Replace", "pattern": {"String": "ab"}, "content": "x"}]});
    let tokenizer = Tokenizer::from_json(value.to_string().as_bytes(), 300).unwrap();
    let id = |token: &str| (0..300).find(|&id| tokenizer.token(id).as_deref() == Some(token)).unwrap();
    let mut stream = tokenizer.stream();
    assert_eq!(stream.push(id("a")).unwrap(), "a");
    assert_eq!(stream.push(id("b")).unwrap(), "");
    assert!(matches!(stream.finish(), Err(TokenizerError::Diverged { emitted: 1 })));
}

/// A decoder that strips more than a token has makes its library panic: an error here, and no piece
/// lost before it.
#[test]
fn a_decoder_that_panics_gives_an_error() {
    let mut value = byte_fallback_tokenizer();
    value["decoder"] = json!({"type": "Strip", "content": "a", "start": 0, "stop": 9});
    let tokenizer = Tokenizer::from_json(value.to_string().as_bytes(), 300).unwrap();
    let id = (0..300).find(|&id| tokenizer.token(id).as_deref() == Some("a")).unwrap();
    assert!(matches!(tokenizer.decode(&[id]), Err(TokenizerError::Stopped { .. })));
}
