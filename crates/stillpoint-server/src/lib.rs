//! The cache server `stillcache`, as a library.
//!
//! * [`server`] is a server: started, reloaded, stopped; [`config`] has its settings.
//! * [`protocol`] reads and writes memcached's protocols: functions over bytes.
//! * [`store`] has the items: tenants with limits, expiry, eviction. It knows neither protocols nor
//!   sockets.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Models are about the store alone: `store` has what they leave out of it.
#![cfg_attr(
    stillpoint_loom,
    allow(dead_code, unreachable_pub, reason = "the interface is left out")
)]

#[cfg(not(stillpoint_loom))]
mod card;
#[cfg(not(stillpoint_loom))]
pub mod config;
#[cfg(not(stillpoint_loom))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(not(stillpoint_loom))]
mod lock;
#[cfg(not(stillpoint_loom))]
mod log;
#[cfg(all(feature = "metrics", not(stillpoint_loom)))]
mod metrics;
#[cfg(not(stillpoint_loom))]
mod net;
#[cfg(not(stillpoint_loom))]
mod output;
#[cfg(not(stillpoint_loom))]
mod places;
#[cfg(not(stillpoint_loom))]
mod pressure;
#[cfg(not(stillpoint_loom))]
mod privileges;
#[cfg(not(stillpoint_loom))]
mod process;
#[cfg(not(stillpoint_loom))]
pub mod protocol;
#[cfg(not(stillpoint_loom))]
mod reload;
#[cfg(not(stillpoint_loom))]
pub mod server;
#[cfg(not(stillpoint_loom))]
mod session;
#[cfg(not(stillpoint_loom))]
mod shared;
#[cfg(not(stillpoint_loom))]
mod space;
#[cfg(not(stillpoint_loom))]
mod spaces;
pub mod store;
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
#[cfg(not(stillpoint_loom))]
mod users;
#[cfg(not(stillpoint_loom))]
mod watch;

/// The version that clients are told: that of the memcached whose protocol is spoken. It has no other
/// number, which some clients would take for the version.
pub const VERSION: &str = "1.6.18-stillcache";

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
