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

cfg_if::cfg_if! {
    if #[cfg(not(stillpoint_loom))] {
        pub mod config;
        mod directory;
        #[doc(hidden)]
        pub mod fuzz;
        mod lock;
        mod log;
        #[cfg(feature = "metrics")]
        mod metrics;
        mod net;
        mod output;
        mod places;
        mod pressure;
        mod privileges;
        mod process;
        pub mod protocol;
        mod reload;
        pub mod server;
        mod session;
        mod shared;
        #[cfg(test)]
        mod tests;
        mod users;
        mod watch;
    }
}
pub mod store;

/// The version that clients are told: that of the memcached whose protocol is spoken. It has no other
/// number, which some clients would take for the version.
pub const VERSION: &str = "1.6.18-stillcache";

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
