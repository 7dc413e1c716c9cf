//! The cache server `stillcache`, as a library.
//!
//! * [`server`] is a server: started, reloaded, stopped; [`config`] has its settings.
//! * [`protocol`] reads and writes memcached's protocols: functions over bytes.
//! * [`store`] has the items: tenants with limits, expiry, eviction. It knows neither protocols nor
//!   sockets.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod config;
#[doc(hidden)]
pub mod fuzz;
mod log;
#[cfg(feature = "metrics")]
mod metrics;
mod net;
mod output;
mod process;
pub mod protocol;
pub mod server;
mod session;
mod shared;
mod space;
pub mod store;
mod watch;

/// What clients are told: the release of memcached whose protocol is spoken, and our own.
pub const VERSION: &str = concat!("1.6.18-stillcache-", env!("CARGO_PKG_VERSION"));

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
