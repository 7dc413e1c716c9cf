//! `memory-pressure`: evicts when the system is short of memory.

use crate::{log::note, shared::Shared};
use std::{
    env, fs, io, mem,
    sync::Arc,
    time::{Duration, Instant},
};
use stillpoint_lru::{Pressure, PressureError, PressureWatch, Reclaimed};

/// The file that says to watch nothing.
const NOTHING: &str = "/dev/null";

/// What the kernel is asked to tell of: tasks have waited for memory for 200 ms of 2 s.
const TRIGGER: &[u8] = b"some 200000 2000000\0";

/// Shortest time between two lines about passes, of which there may be ten a second.
const BETWEEN_LINES: Duration = Duration::from_secs(1);

/// Starts the watch that the setting asks for, until what is returned is dropped. Each time that the
/// system is short of memory, a quarter of what the store uses is evicted, minima spared. Returns `None`
/// if the setting or the service manager says not to watch. If `auto` finds nothing that can be watched,
/// returns a watch of nothing, so that the metrics say that none watches. Logs which of these it is.
///
/// # Errors
///
/// If a file that the setting names cannot be watched.
pub(crate) fn watch(setting: &str, shared: &Arc<Shared>) -> io::Result<Option<Arc<Pressure>>> {
    let log = &shared.log;
    let started = find(setting).and_then(|watch| {
        let Some(watch) = watch else {
            note!(
                log,
                "memory-pressure: {NOTHING} is named, so nothing is watched"
            );
            return Ok(None);
        };
        let file = watch.path().display().to_string();
        let started = start(watch, shared)?;
        note!(log, "memory-pressure: watches {file}");
        Ok(Some(Arc::new(started)))
    });
    started.or_else(|error| {
        if setting != "auto" {
            return Err(io::Error::other(format!("memory-pressure: {error}")));
        }
        note!(log, "memory-pressure: goes on without it: {error}");
        let nothing = start(PressureWatch::new(NOTHING), shared);
        Ok(nothing.ok().map(Arc::new))
    })
}

/// Returns what the setting says to watch; `None` for nothing.
fn find(setting: &str) -> Result<Option<PressureWatch>, PressureError> {
    Ok(match setting {
        NOTHING => None,
        "auto" => {
            let by_manager = PressureWatch::from_env()?;
            // Set, but no file to watch: that is the null device.
            let says_no = by_manager.is_none()
                && env::var_os("MEMORY_PRESSURE_WATCH").is_some_and(|path| !path.is_empty());
            by_manager.or_else(|| (!says_no).then(PressureWatch::system))
        }
        path if fs::metadata(path).is_ok_and(|file| file.is_file()) => {
            Some(PressureWatch::new(path).payload(TRIGGER))
        }
        path => Some(PressureWatch::new(path)),
    })
}

fn start(watch: PressureWatch, shared: &Arc<Shared>) -> Result<Pressure, PressureError> {
    let (mut lines, logs) = (Lines::default(), Arc::clone(shared));
    let after = move |reclaimed: &Reclaimed| {
        if let Some(line) = lines.pass(reclaimed.objects, Instant::now()) {
            note!(logs.log, "{line}");
        }
    };
    watch.after_pass(after).start(shared.store.hierarchy())
}

/// Lines about passes, each about those since the last one.
#[derive(Default)]
struct Lines {
    passes: u64,
    segments: u64,
    last: Option<Instant>,
}

impl Lines {
    /// Counts a pass that has evicted `segments`. Returns a line if there was none for some time.
    fn pass(&mut self, segments: u64, now: Instant) -> Option<String> {
        self.passes += 1;
        self.segments += segments;
        if self.last.is_some_and(|last| now < last + BETWEEN_LINES) {
            return None;
        }
        self.last = Some(now);
        let (passes, segments) = (mem::take(&mut self.passes), mem::take(&mut self.segments));
        Some(format!(
            "memory-pressure: memory was short; passes since the last line: {passes}, segments evicted: {segments}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_line_a_second_and_it_counts_all_passes() {
        let (mut lines, start) = (Lines::default(), Instant::now());
        let mut pass = |millis| lines.pass(4, start + Duration::from_millis(millis));
        let first = pass(0).unwrap();
        assert!(first.ends_with("passes since the last line: 1, segments evicted: 4"));
        for millis in (100..1000).step_by(100) {
            assert_eq!(pass(millis), None);
        }
        assert!(
            pass(1000)
                .unwrap()
                .ends_with("passes since the last line: 10, segments evicted: 40")
        );
        assert_eq!(pass(1001), None);
    }
}
