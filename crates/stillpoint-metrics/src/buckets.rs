//! The buckets of histograms for Prometheus, which are coarser than the library's.

use std::time::Duration;

/// Ends of the buckets in nanoseconds: the first ends at 256 ns, each further one at four times as
/// much, and the last but one at 69 s. The last has no end.
const FIRST_END: u64 = 1 << 8;
const LAST_END: u64 = 1 << 36;
const FACTOR: u64 = 4;

/// Returns coarser buckets: the upper ends in seconds, and the number of durations in each.
pub(crate) fn buckets(fine: impl Iterator<Item = (Duration, u64)>) -> Vec<(f64, u64)> {
    let ends = std::iter::successors(Some(FIRST_END), |end| Some(end * FACTOR));
    let mut fine = fine.peekable();
    let mut coarse: Vec<(f64, u64)> = ends
        .take_while(|&end| end <= LAST_END)
        .map(|end| {
            let mut count = 0;
            while let Some((_, more)) = fine.next_if(|(upper, _)| upper.as_nanos() <= end.into()) {
                count += more;
            }
            (end as f64 / 1e9, count)
        })
        .collect();
    coarse.push((f64::INFINITY, fine.map(|(_, more)| more).sum()));
    coarse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fine_bucket_is_in_one_coarse_one() {
        let fine = stillpoint::Histogram::default();
        let fine: Vec<_> = fine.buckets().map(|(end, _)| end).collect();
        // One duration in each bucket.
        let coarse = buckets(fine.iter().map(|&end| (end, 1)));
        let mut begin = Duration::ZERO;
        for &(end, count) in &coarse {
            let end = Duration::try_from_secs_f64(end).unwrap_or(Duration::MAX);
            let inside = fine.iter().filter(|&&upper| begin < upper && upper <= end);
            assert_eq!(count, inside.count() as u64, "{end:?}");
            assert!(count > 0 && (end == Duration::MAX || fine.contains(&end)));
            begin = end;
        }
        assert_eq!(coarse.len(), 16);
    }
}
