//! Where Stillpoint stands among the peers, each at its best setting.

use super::charts::{Better, Chart};
use super::stored::{Row, Stored};

/// Subjects that are no peers.
const NO_PEERS: [&str; 3] = ["stillpoint", "limit", "seed"];

/// Stillpoint's place among the peers that have the figure.
pub struct Standing<'s> {
    /// Stillpoint's row.
    pub ours: &'s Row,
    /// Its place, from 1.
    pub place: usize,
    /// Number of subjects compared, Stillpoint included.
    pub of: usize,
    /// The best peer's row; `None` if no peer has the figure.
    pub best: Option<&'s Row>,
    /// True if Stillpoint's rounds and that peer's do not overlap.
    pub is_clear: bool,
}

/// Returns the peers of a part, or of one of its scenarios.
pub fn peers<'s>(stored: &'s Stored, part: &'s str, scenario: Option<&'s str>) -> Vec<&'s str> {
    let mut peers: Vec<&str> = Vec::new();
    for row in stored.scene(part, scenario) {
        let subject = row.subject.as_str();
        if !NO_PEERS.contains(&subject) && !peers.contains(&subject) {
            peers.push(subject);
        }
    }
    peers
}

/// Returns the best of a subject's rows.
pub fn best_of<'s>(
    stored: &'s Stored,
    part: &'s str,
    scenario: Option<&'s str>,
    subject: &str,
    metric: &str,
    better: Better,
) -> Option<&'s Row> {
    let rows = stored
        .scene(part, scenario)
        .filter(|row| row.subject == subject && row.figure(metric).is_some());
    best(rows, metric, better)
}

fn best<'s>(rows: impl Iterator<Item = &'s Row>, metric: &str, better: Better) -> Option<&'s Row> {
    let figure = |row: &Row| row.figure(metric).unwrap_or_default();
    rows.min_by(|a, b| match better {
        Better::Less => figure(a).total_cmp(&figure(b)),
        Better::More => figure(b).total_cmp(&figure(a)),
    })
}

/// Returns where Stillpoint stands in a chart.
pub fn standing<'s>(stored: &'s Stored, part: &'s str, chart: &Chart) -> Option<Standing<'s>> {
    let (scenario, metric, better) = (chart.scenario, chart.metric, chart.better);
    let ours = stored.row(part, scenario, "stillpoint", chart.ours)?;
    let value = ours.figure(metric)?;
    let peers: Vec<&Row> = peers(stored, part, scenario)
        .into_iter()
        .filter_map(|peer| best_of(stored, part, scenario, peer, metric, better))
        .collect();
    let is_ahead = |peer: &&&Row| {
        peer.figure(metric).is_some_and(|figure| match better {
            Better::Less => figure < value,
            Better::More => figure > value,
        })
    };
    let best = best(peers.iter().copied(), metric, better);
    Some(Standing {
        ours,
        place: 1 + peers.iter().filter(is_ahead).count(),
        of: 1 + peers.len(),
        best,
        is_clear: best.is_some_and(|best| are_apart(ours, best, metric)),
    })
}

/// Returns whether every round of one is above, or below, every round of the other.
fn are_apart(one: &Row, other: &Row, metric: &str) -> bool {
    match (one.spread.get(metric), other.spread.get(metric)) {
        (Some(one), Some(other)) => one[1] < other[0] || other[1] < one[0],
        _ => true,
    }
}
