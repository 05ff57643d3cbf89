//! The transport of rows between ranks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The transport of rows between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// The words of a message.
    #[default]
    Tcp,
    /// From device to device, where a step has more than the decode machine.
    Nccl,
}

/// A name that is not one of [`Rows`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{found}` is no way for rows; give tcp or nccl")]
pub struct NoRows {
    found: String,
}

impl FromStr for Rows {
    type Err = NoRows;

    fn from_str(text: &str) -> Result<Rows, NoRows> {
        match text {
            "tcp" => Ok(Rows::Tcp),
            "nccl" => Ok(Rows::Nccl),
            other => Err(NoRows { found: other.to_owned() }),
        }
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rows::Tcp => "tcp",
            Rows::Nccl => "nccl",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_names() {
        for rows in [Rows::Tcp, Rows::Nccl] {
            assert_eq!(rows.to_string().parse(), Ok(rows));
        }
        let error = "ip".parse::<Rows>().expect_err("no way");
        assert_eq!(error.to_string(), "`ip` is no way for rows; give tcp or nccl");
    }
}
