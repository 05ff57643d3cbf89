//! `generation_config.json`: of its defaults only the tokens that end a sequence are used; the caller says how to sample.

use serde_json::Value;

use super::config::read_eos;
use super::error::Faults;
use super::fault::{ConfigError, ConfigFault};
use super::json::{self, quote};
use super::keys::Keys;

/// The ids that end a sequence, where the text of a `generation_config.json` states them (as a number, a list or null).
pub(super) fn eos_ids(text: &[u8], vocab: usize) -> Result<Option<Vec<u32>>, ConfigError> {
    let value = json::parse(text).map_err(ConfigError::Json)?;
    let Value::Object(map) = value else {
        let fault = ConfigFault::NotAnObject { value: quote(&value) };
        return Err(ConfigError::Faults(Faults(vec![fault])));
    };
    let mut keys = Keys::new("", map);
    let ids = keys.take_value("eos_token_id").map(|value| read_eos(&mut keys, &value, vocab));
    if keys.faults.is_empty() { Ok(ids) } else { Err(ConfigError::Faults(Faults(keys.faults))) }
}
