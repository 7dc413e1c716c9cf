//! Stillpoint's statistics for Prometheus: domains, maps, tenants, memory pressure and caches.
//!
//! An [`Exporter`] is a collector of the crate [`prometheus_client`], beside a program's other
//! metrics. It reads the library's statistics when it is scraped, and costs nothing in between.
//!
//! ```
//! use prometheus_client::{encoding::text::encode, registry::Registry};
//! use stillpoint_metrics::Exporter;
//!
//! let routes = stillpoint::Domain::builder().name("routes").build();
//! let exporter = Exporter::new(); // has the global domain
//! exporter.add_domain("routes", &routes).expect("no other has that name");
//! let mut registry = Registry::default();
//! registry.register_collector(Box::new(exporter.clone()));
//!
//! let mut text = String::new();
//! encode(&mut text, &registry).expect("a string takes all");
//! assert!(text.contains("stillpoint_stalls_total{domain=\"routes\"} 0"));
//! ```
//!
//! # Names and units
//!
//! Names begin with `stillpoint_`, and have their base unit (`_bytes`, `_seconds`) and, for
//! counters, `_total` at the end. Each kind of thing has one label: `domain`, `map`, `pressure`,
//! `tenant`, `cache`. [`Exporter::metrics`] lists all of them with their meaning.
//!
//! # How many series
//!
//! The program names what is exported, which bounds the labels; but there may be as many tenants as
//! users. So 100 tenants have separate series ([`Exporter::with_tenants`]), and the others are summed
//! as the tenant [`OTHER`]. A tenant keeps its series until it is deleted or removed. One that is in
//! the sum stays in it even after its end, so that no counter falls.
//!
//! # Threads and forks
//!
//! An exporter is a handle: clones are the same exporter. Scrapes take turns, and so do calls that
//! add and remove. A scrape takes a lock for each thread that has used a domain, and waits for
//! nothing else. In the child of a fork an exporter goes on with the child's copies. But if another
//! thread was inside one of its calls at the fork, its lock stays taken: make a new exporter there.
// What it exports is left out of the models, which build all crates.
#![cfg(not(stillpoint_loom))]

mod buckets;
mod exporter;
mod family;
mod tenants;

pub use exporter::{Exporter, NameTaken, OTHER};
pub use family::{Kind, Metric};

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
