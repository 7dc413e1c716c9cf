//! Time against memory: each subject is a point, and a subject can trade one for the other by
//! keeping more or less unreclaimed.

use crate::output::Row;
use crate::output::plot::Point;

/// A point that is better by less than this in one of the two is not better.
const TOLERANCE: f64 = 0.05;

/// A point for each row that has both figures: `peak_mib` and `ns_per_object`.
pub fn points<'r>(rows: &'r [Row]) -> Vec<Point<'r>> {
    let point = |row: &'r Row| {
        let Row { case, metrics, .. } = row;
        Some(Point {
            case,
            mib: *metrics.get("peak_mib")?,
            ns: *metrics.get("ns_per_object")?,
        })
    };
    rows.iter().filter_map(point).collect()
}

/// Which peers are better in both than each variant of ours: a line for each variant to which that
/// happens, or one that says that it happens to none. Nothing where there is no peer.
pub fn verdict(points: &[Point]) -> Vec<String> {
    let (ours, others): (Vec<_>, Vec<_>) = points
        .iter()
        .partition(|point| point.case.subject == "stillpoint");
    let peers: Vec<_> = others
        .into_iter()
        .filter(|point| point.case.subject != "limit")
        .collect();
    if peers.is_empty() || ours.is_empty() {
        return Vec::new();
    }
    let is_better = |peer: f64, ours: f64| peer < ours * (1.0 - TOLERANCE);
    let beaten = |ours: &&Point| {
        let by: Vec<_> = peers
            .iter()
            .filter(|peer| is_better(peer.mib, ours.mib) && is_better(peer.ns, ours.ns))
            .map(|peer| peer.case.to_string())
            .collect();
        (!by.is_empty()).then(|| {
            format!(
                "Time against memory: in both, better than {} by more than 5 %: {}.",
                ours.case,
                by.join(", ")
            )
        })
    };
    let lines: Vec<_> = ours.iter().filter_map(beaten).collect();
    if lines.is_empty() {
        return vec![
            "Time against memory: no peer is better in both than any of Stillpoint's variants, by more than 5 %."
                .to_owned(),
        ];
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Case;

    #[test]
    fn a_variant_is_beaten_where_a_peer_is_better_in_both() {
        let cases = [
            Case::new("stillpoint", "per-page", None),
            Case::new("stillpoint", "call", None),
            Case::new("seize", "batch-64", None),
            Case::new("limit", "default", None),
        ];
        let points = |figures: [(f64, f64); 4]| -> Vec<Point> {
            cases
                .iter()
                .zip(figures)
                .map(|(case, (mib, ns))| Point { case, mib, ns })
                .collect()
        };
        let none = points([(4.0, 40.0), (9.0, 90.0), (3.0, 86.0), (1.0, 10.0)]);
        let [line] = &verdict(&none)[..] else {
            panic!("one line")
        };
        assert!(line.contains("no peer"), "{line}");
        let one = points([(4.0, 40.0), (9.0, 90.0), (3.0, 85.0), (1.0, 10.0)]);
        assert_eq!(
            verdict(&one),
            [
                "Time against memory: in both, better than stillpoint call by more than 5 %: seize batch-64."
            ]
        );
        assert!(verdict(&one[..2]).is_empty(), "no peer, no verdict");
    }
}
