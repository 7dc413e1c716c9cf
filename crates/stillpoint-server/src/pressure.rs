//! `memory-pressure`: evicts when the system is short of memory.

use std::{env, fs, io, sync::Arc};
use stillpoint_lru::{Hierarchy, Pressure, PressureError, PressureWatch};

/// What the kernel is asked to tell of: tasks have waited for memory for 200 ms of 2 s.
const TRIGGER: &[u8] = b"some 200000 2000000\0";

/// Starts the watch that the setting asks for, until what is returned is dropped. Each time that the
/// system is short of memory, a quarter of what the store uses is evicted, minima spared.
pub(crate) fn watch(setting: &str, hierarchy: &Hierarchy) -> io::Result<Arc<Pressure>> {
    let named = |error: PressureError| io::Error::other(format!("memory-pressure: {error}"));
    let watch = match setting {
        "auto" => match PressureWatch::from_env().map_err(named)? {
            Some(watch) => watch,
            // The service manager says not to watch.
            None if env::var_os("MEMORY_PRESSURE_WATCH").is_some() => {
                PressureWatch::new("/dev/null")
            }
            None => PressureWatch::system(),
        },
        path if fs::metadata(path).is_ok_and(|file| file.is_file()) => {
            PressureWatch::new(path).payload(TRIGGER)
        }
        path => PressureWatch::new(path),
    };
    watch.start(hierarchy).map(Arc::new).map_err(named)
}
