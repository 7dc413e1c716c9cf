//! The settings of a cache, which a [`Builder`](crate::Builder) collects.

use crate::{clock::Clock, container::Container, listener::Listener, weigh::Scale};
use std::time::Duration;

pub type IsPinned<K, V> = dyn Fn(&K, &V) -> bool + Send + Sync;
type ExpireAfter<K, V> = dyn Fn(&K, &V) -> Option<Duration> + Send + Sync;

/// Lifetimes of entries, in nanoseconds.
pub struct Expiry<K, V> {
    pub live: Option<u64>,
    pub idle: Option<u64>,
    pub after: Option<Box<ExpireAfter<K, V>>>,
}

/// All settings but the hasher.
pub struct Settings<K, V> {
    /// The limit, in its unit.
    pub max: Option<u64>,
    pub name: String,
    pub scale: Scale<K, V>,
    pub is_pinned: Option<Box<IsPinned<K, V>>>,
    pub expiry: Expiry<K, V>,
    pub listener: Option<Listener<K, V>>,
    pub clock: Clock,
    /// The container whose limit it follows.
    pub container: Option<Container>,
}
