//! API keys: read from a file, compared in a time that does not depend on their characters.

use std::hint::black_box;

use axum::http::{HeaderMap, header};

use super::error::ApiError;

/// The keys that are accepted; none: any request is.
#[derive(Clone, Default)]
pub struct ApiKeys(Vec<String>);

impl ApiKeys {
    /// The keys of a text, one a line; empty lines and lines that begin with `#` are left out.
    pub fn of_text(text: &str) -> ApiKeys {
        let keys = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        ApiKeys(keys.map(str::to_owned).collect())
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Accepts a request with one of the keys as its bearer token.
    ///
    /// # Errors
    /// There are keys, and the request has none of them.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if self.is_empty() {
            return Ok(());
        }
        let given = headers.get(header::AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
        // All keys are compared, whichever is the right one.
        let known = self.0.iter().fold(false, |known, key| known | is_equal(given, key.as_bytes()));
        if known { Ok(()) } else { Err(ApiError::Key) }
    }
}

/// Whether two texts are equal; the time depends on the length of the first alone.
fn is_equal(given: &[u8], key: &[u8]) -> bool {
    let of_key = |at: usize| key.get(at % key.len().max(1)).copied().unwrap_or_default();
    let differing = given.iter().enumerate().fold(0, |bits, (at, byte)| black_box(bits | (byte ^ of_key(at))));
    (differing == 0) & (given.len() == key.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, axum::http::HeaderValue::from_static(value))])
    }

    #[test]
    fn one_of_the_keys_is_needed_where_there_are_some() {
        let keys = ApiKeys::of_text("# of the staging server\nfirst\n\n  second \n");
        for right in ["Bearer first", "Bearer second"] {
            assert!(keys.check(&with(right)).is_ok(), "{right}");
        }
        for wrong in ["Bearer firs", "Bearer firstfirst", "Bearer ", "first", "Basic first", "Bearer # of"] {
            assert!(matches!(keys.check(&with(wrong)), Err(ApiError::Key)), "{wrong}");
        }
        assert!(keys.check(&HeaderMap::new()).is_err());
        assert!(ApiKeys::default().check(&HeaderMap::new()).is_ok());
    }
}
