//! Stillpoint's statistics for Prometheus: domains, maps, tenants, memory pressure and caches.
//!
//! An [`Exporter`] is a collector of the crate [`prometheus_client`], beside a program's own metrics.
//! It reads the statistics when it is scraped, and costs nothing in between: there is no thread that
//! publishes, and no counter beside those that the library has anyway.
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
//! The program says what is exported, under which name, so labels are bounded by it; but of tenants
//! there may be as many as there are users. So 100 have series of their own
//! ([`Exporter::with_tenants`]), and the others are added up as the tenant [`OTHER`]. A tenant that
//! has its own keeps them until it is deleted or removed, and one that is in the sum stays there,
//! also after its end: no counter falls.
//!
//! # Threads and forks
//!
//! An exporter is a handle: clones are the same exporter. Scrapes take turns, and so does what adds
//! and removes. A scrape takes a lock for each thread that has used a domain, and waits for nothing
//! else. In the child of a fork it goes on with the child's copy of what it exports, unless another
//! thread was inside a call of it when the process forked: that call's lock stays taken, so make a
//! new one there.
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
