//! What is told of a session to other threads.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU8, AtomicU32},
};

/// What `stats conns` says of a connection or a listener.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) peer: String,
    pub(crate) local: String,
    pub(crate) transport: &'static str,
    /// The tenant that the client works on, for clients that may ask only about that.
    pub(crate) tenant: Mutex<Arc<str>>,
    /// An index into [`STATES`].
    pub(crate) state: AtomicU8,
    /// The store's clock at the last command.
    pub(crate) last: AtomicU32,
}

/// What a connection may be doing, in memcached's words.
pub(crate) const STATES: [&str; 5] = [
    "conn_listening",
    "conn_read",
    "conn_nread",
    "conn_parse_cmd",
    "conn_mwrite",
];
