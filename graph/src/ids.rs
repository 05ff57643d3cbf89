//! Numbers of values, weights, tables and caches.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::index::index;

index!(
    /// A value: the ops' results, counted from the first op on.
    ///
    /// ```
    /// assert_eq!(tilewright_graph::graph::ValueId(7).to_string(), "v7");
    /// ```
    ValueId,
    "v"
);
index!(
    /// A weight that the graph declares.
    ///
    /// ```
    /// assert_eq!(tilewright_graph::graph::WeightId(7).to_string(), "w7");
    /// ```
    WeightId,
    "w"
);
index!(
    /// A table of rotary frequencies that the graph declares.
    ///
    /// ```
    /// assert_eq!(tilewright_graph::graph::RopeId(0).to_string(), "rope0");
    /// ```
    RopeId,
    "rope"
);
index!(
    /// A cache of keys and values.
    ///
    /// ```
    /// assert_eq!(tilewright_graph::graph::CacheId(2).to_string(), "kv2");
    /// ```
    CacheId,
    "kv"
);
