//! Tenants as Twitter's caches are ([`twitter`]), a thousandth of their size: each has its rate,
//! its sizes of entries, its working set, and keys by Zipf's law. A request for a new key is an
//! insert; it counts neither as hit nor as miss, as no cache can have it. All others read, and
//! insert on a miss. Entries weigh what their keys and values take.
//!
//! All tenants together have a fifth of their working sets as their cache. In `mix` Stillpoint's
//! tenants have half of an equal share as their minimum, and the rest goes where it earns most; a
//! peer has one cache for all. In `mix-static` each tenant has an equal share and no more: with
//! Stillpoint a limit, with a peer a cache. The first third of the requests does not count.

use anyhow::Result;

use super::replay::Counted;
use super::twitter::{CLUSTERS, Cluster};
use super::{Work, leak};
use crate::cache::{Cache, CacheHandle, request};
use crate::run::Sample;
use crate::scale::keys::{Zipf, key};

/// All requests.
const REQUESTS: usize = 3_000_000;

/// Of the real working sets, so much is there.
const SCALE: f64 = 1e-3;

/// Of the working sets, so much is cached.
const CACHED: f64 = 0.2;

/// MB where the published figure is 0, as it is rounded.
const LEAST: f64 = 0.5;

/// Where no exponent is published: that of clusters 40 and 41, which are used alike.
const EXPONENT: f64 = 0.855;

/// How many tenants there are.
pub const TENANTS: usize = CLUSTERS.len();

/// The bytes of the whole cache.
pub fn bytes() -> u64 {
    (CLUSTERS.iter().map(Cluster::working_bytes).sum::<f64>() * CACHED) as u64
}

/// The bytes of each tenant's equal share.
pub fn share() -> u64 {
    bytes() / TENANTS as u64
}

impl Cluster {
    fn working_bytes(&self) -> f64 {
        self.working_set.max(LEAST) * 1e6 * SCALE
    }

    fn entry_bytes(&self) -> u32 {
        self.key + self.value
    }

    fn keys(&self) -> u64 {
        (self.working_bytes() / f64::from(self.entry_bytes()))
            .round()
            .max(1.0) as u64
    }

    /// Entries of a share.
    fn entries_of(&self, bytes: u64) -> usize {
        (bytes / u64::from(self.entry_bytes())).max(1) as usize
    }
}

/// What is requested of one of the tenants.
struct Requests {
    tenants: Vec<Tenant>,
    /// Where each tenant's part of all requests ends.
    ends: Vec<f64>,
    random: fastrand::Rng,
}

struct Tenant {
    keys: Zipf,
    /// Where its keys begin.
    first: u64,
    /// The next new key.
    new: u64,
    compulsory: f64,
    entry_bytes: u32,
}

enum Request {
    /// For that key.
    New(u64),
    /// For the tenant's key of that rank.
    Known(u64),
}

impl Requests {
    fn new() -> Self {
        let tenant = |cluster: &Cluster| {
            let first = u64::from(cluster.number) << 40;
            let exponent = cluster.exponent.unwrap_or(EXPONENT);
            Tenant {
                keys: Zipf::new(cluster.keys(), exponent, cluster.number.into()),
                first,
                new: first + (1 << 39),
                compulsory: cluster.compulsory / 100.0,
                entry_bytes: cluster.entry_bytes(),
            }
        };
        let sum = |ends: &mut f64, cluster: &Cluster| {
            *ends += cluster.kqps;
            Some(*ends)
        };
        Self {
            tenants: CLUSTERS.iter().map(tenant).collect(),
            ends: CLUSTERS.iter().scan(0.0, sum).collect(),
            random: fastrand::Rng::with_seed(1),
        }
    }

    /// The key of a rank.
    fn key(&self, tenant: usize, rank: u64) -> u64 {
        key(self.tenants[tenant].first + rank)
    }

    /// The next request: whose, for what, and what the entry weighs.
    fn next(&mut self) -> (usize, Request, u64) {
        let all = self.ends.last().copied().unwrap_or_default();
        let place = self.random.f64() * all;
        let number = self
            .ends
            .partition_point(|&end| end <= place)
            .min(self.ends.len() - 1);
        let tenant = &mut self.tenants[number];
        let request = if self.random.f64() < tenant.compulsory {
            tenant.new += 1;
            Request::New(key(tenant.new))
        } else {
            Request::Known(tenant.keys.rank())
        };
        (number, request, tenant.entry_bytes.into())
    }
}

/// Measures a peer whose one cache serves all.
pub fn of_one_cache<C: Cache>(work: &Work) -> Result<Sample> {
    let entries = CLUSTERS
        .iter()
        .map(|cluster| cluster.entries_of(share()))
        .sum();
    let cache: &C = leak(C::with_weight(bytes(), entries));
    measure(work, vec![cache; TENANTS])
}

/// Measures a peer with a cache for each tenant.
pub fn of_a_cache_each<C: Cache>(work: &Work) -> Result<Sample> {
    let cache = |cluster: &Cluster| leak(C::with_weight(share(), cluster.entries_of(share())));
    let caches: Vec<&C> = CLUSTERS.iter().map(cache).collect();
    measure(work, caches)
}

/// Keeps keys of which it knows how often they are asked for.
struct Knowing {
    /// Each tenant's keys from the first rank on: how many are kept, and which were requested.
    tenants: Vec<(usize, Vec<bool>)>,
}

impl Knowing {
    /// With one budget for all, or one for each tenant.
    fn new(is_shared: bool) -> Self {
        let rates: f64 = CLUSTERS.iter().map(|cluster| cluster.kqps).sum();
        // The worth of a byte of each key, the tenant, and its bytes. In each tenant the worth falls
        // from rank to rank.
        let mut keys: Vec<(f64, usize, u64)> = Vec::new();
        for (number, cluster) in CLUSTERS.iter().enumerate() {
            let exponent = cluster.exponent.unwrap_or(EXPONENT);
            let frequency = |rank: u64| (rank as f64 + 1.0).powf(-exponent);
            let all: f64 = (0..cluster.keys()).map(frequency).sum();
            let known = cluster.kqps / rates * (1.0 - cluster.compulsory / 100.0);
            let bytes = u64::from(cluster.entry_bytes());
            keys.extend((0..cluster.keys()).map(|rank| {
                let worth = known * frequency(rank) / all / bytes as f64;
                (worth, number, bytes)
            }));
        }
        keys.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut left = [if is_shared { bytes() } else { share() }; TENANTS];
        let mut tenants: Vec<_> = CLUSTERS
            .iter()
            .map(|cluster| (0, vec![false; cluster.keys() as usize]))
            .collect();
        for (_, number, bytes) in keys {
            let left = &mut left[if is_shared { 0 } else { number }];
            if *left >= bytes {
                *left -= bytes;
                tenants[number].0 += 1;
            }
        }
        Self { tenants }
    }

    fn request(&mut self, tenant: usize, rank: u64) -> bool {
        let (kept, requested) = &mut self.tenants[tenant];
        let rank = rank as usize;
        std::mem::replace(&mut requested[rank], true) && rank < *kept
    }
}

/// Measures what a cache could find that knew all.
pub fn limit(work: &Work, is_shared: bool) -> Result<Sample> {
    let mut knowing = Knowing::new(is_shared);
    Ok(hit_ratio(work, |_, tenant, asked, _| match asked {
        Request::New(_) => None,
        Request::Known(rank) => Some(knowing.request(tenant, rank)),
    }))
}

/// Measures the hit ratio of all tenants together, each with its handle.
pub fn measure(work: &Work, mut tenants: Vec<impl CacheHandle>) -> Result<Sample> {
    Ok(hit_ratio(work, |from, tenant, asked, weight| match asked {
        Request::New(key) => {
            tenants[tenant].insert(key, weight);
            None
        }
        Request::Known(rank) => {
            let key = from.key(tenant, rank);
            Some(request(&mut tenants[tenant], key, weight))
        }
    }))
}

/// Makes all requests by `ask`, which says of those for known keys whether they hit.
fn hit_ratio(
    work: &Work,
    mut ask: impl FnMut(&Requests, usize, Request, u64) -> Option<bool>,
) -> Sample {
    let requests = work.divided(REQUESTS);
    let (mut from, mut counted) = (Requests::new(), Counted::default());
    for number in 0..requests {
        let (tenant, asked, weight) = from.next();
        if let Some(is_hit) = ask(&from, tenant, asked, weight)
            && number >= requests / 3
        {
            counted.note(is_hit);
        }
    }
    Sample::of([("hit_ratio", counted.ratio())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_have_their_rates_and_their_new_keys() {
        const ALL: usize = 400_000;
        let mut from = Requests::new();
        let (mut asked, mut new) = ([0.0; TENANTS], [0.0; TENANTS]);
        for _ in 0..ALL {
            let (tenant, request, weight) = from.next();
            assert_eq!(weight, u64::from(CLUSTERS[tenant].entry_bytes()));
            asked[tenant] += 1.0;
            if let Request::New(_) = request {
                new[tenant] += 1.0;
            }
        }
        let rates: f64 = CLUSTERS.iter().map(|cluster| cluster.kqps).sum();
        for (number, cluster) in CLUSTERS.iter().enumerate() {
            let part = asked[number] / ALL as f64;
            assert!(
                (part - cluster.kqps / rates).abs() < 0.002,
                "{}",
                cluster.number
            );
            let compulsory = new[number] / asked[number];
            assert!(
                (compulsory - cluster.compulsory / 100.0).abs() < 0.05,
                "{}",
                cluster.number
            );
        }
    }

    #[test]
    fn what_knows_all_keeps_what_is_asked_for_most_and_no_more_than_there_is() {
        let misses = |is_shared| {
            let mut knowing = Knowing::new(is_shared);
            let used = |number: usize, knowing: &Knowing| {
                knowing.tenants[number].0 as u64 * u64::from(CLUSTERS[number].entry_bytes())
            };
            let all: u64 = (0..TENANTS).map(|number| used(number, &knowing)).sum();
            assert!(all <= bytes() && all > bytes() / 4);
            if !is_shared {
                assert!((0..TENANTS).all(|number| used(number, &knowing) <= share()));
            }
            assert!(!knowing.request(0, 0) && knowing.request(0, 0));
            let mut from = Requests::new();
            let known = (0..300_000).filter_map(|_| match from.next() {
                (tenant, Request::Known(rank), _) => Some((tenant, rank)),
                _ => None,
            });
            known
                .filter(|&(tenant, rank)| !knowing.request(tenant, rank))
                .count()
        };
        assert!(misses(true) < misses(false));
    }

    #[test]
    fn an_equal_share_is_a_fifty_third_of_a_fifth() {
        assert_eq!(TENANTS, 53);
        let working: f64 = CLUSTERS.iter().map(|cluster| cluster.working_set).sum();
        let expected = working * 1e6 * SCALE * CACHED / 53.0;
        assert!((share() as f64 / expected - 1.0).abs() < 0.001);
    }
}
