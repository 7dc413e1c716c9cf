//! The peers, a file each: what a peer does in every experiment that it takes part in, at its best documented use.

use std::fmt;

use serde::{Serialize, Serializer};

pub mod crossbeam_epoch;
pub mod haphazard;
#[cfg(have_liburcu)]
pub mod liburcu_memb;
#[cfg(have_liburcu)]
pub mod liburcu_qsbr;
pub mod seize;
pub mod std_rwlock;

/// The peers that a run was asked to measure, by their crates' names.
#[derive(Clone)]
pub struct Peers(Vec<&'static str>);

impl Peers {
    /// Reads the value of `--peers` where `known` can take part.
    pub fn parse(text: &str, known: &'static [&'static str]) -> Result<Self, String> {
        match text {
            "all" => return Ok(Self(known.to_vec())),
            "none" => return Ok(Self(Vec::new())),
            _ => {}
        }
        let find = |name: &str| {
            known.iter().copied().find(|&known| known == name).ok_or_else(|| {
                format!("no peer '{name}' here; say all, none, or some of {} with commas between", known.join(", "))
            })
        };
        text.split(',').map(find).collect::<Result<_, _>>().map(Self)
    }

    /// The help text of `--peers` where `known` can take part.
    pub fn help(known: &[&str]) -> String {
        format!("Peers to measure beside Stillpoint and the limit: all, none, or some of {}", known.join(","))
    }

    /// Whether `peer` was asked for.
    pub fn include(&self, peer: &str) -> bool {
        self.0.contains(&peer)
    }
}

/// As the command line has it.
impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

impl Serialize for Peers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Says on standard error which chosen peers this build lacks, and how to get them.
pub fn tell_missing(peers: &Peers) {
    if cfg!(have_liburcu) {
        return;
    }
    let missing: Vec<_> = peers.0.iter().copied().filter(|peer| peer.starts_with("liburcu-")).collect();
    if !missing.is_empty() {
        eprintln!(
            "stillpoint: {} left out: liburcu was not found when this program was built. Install liburcu-dev and pkg-config \
             (Debian, Ubuntu), or userspace-rcu-devel and pkgconf (Fedora), run `cargo clean -p \
             stillpoint-lab`, and build again.",
            missing.join(", ")
        );
    }
}
