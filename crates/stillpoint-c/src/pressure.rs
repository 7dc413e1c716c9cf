//! Memory pressure: what the system says of it is turned into passes over a hierarchy.

use crate::{
    ffi::{catch_panic, catch_panic_or},
    handle::{deref, free_handle, new_handle},
    tenant::Hierarchy,
};
use std::{
    env,
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    os::unix::ffi::OsStrExt,
    slice,
};
use stillpoint_lru::{PressureError, PressureWatch, Reclaimed};

/// A watch for memory pressure.
#[derive(Debug)]
pub struct Pressure(stillpoint_lru::Pressure);

/// What is called after each pass, on the watching thread: `stillpoint_relieved_function`.
pub type RelievedFunction =
    Option<unsafe extern "C" fn(relieved: *const Reclaimed, data: *mut c_void)>;

/// Where to watch, and how. Zeroes are the defaults.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PressureOptions {
    /// The file, FIFO or socket; NULL for what the service manager has said in
    /// $MEMORY_PRESSURE_WATCH.
    pub path: *const c_char,
    /// Whether to watch this process's control group, or the whole system, where there is no path
    /// and the service manager has said nothing.
    pub or_system: bool,
    /// What is written there once it is open; with a path only.
    pub payload: *const c_void,
    /// How many bytes that is.
    pub payload_size: usize,
    /// Passes go on until no more than so many bytes are charged; 0 for a quarter less than at
    /// their beginning.
    pub target: u64,
    /// Called after each pass; may be NULL.
    pub after: RelievedFunction,
    /// What it is called with.
    pub data: *mut c_void,
}

struct PassCallback {
    function: unsafe extern "C" fn(*const Reclaimed, *mut c_void),
    data: *mut c_void,
}

// SAFETY: the caller of stillpoint_pressure_watch() promises that the function may be called with
// the data on its thread.
unsafe impl Send for PassCallback {}

impl PassCallback {
    fn call(&mut self, relieved: &Reclaimed) {
        // SAFETY: the promise of stillpoint_pressure_watch()'s caller.
        unsafe { (self.function)(relieved, self.data) };
    }
}

/// What the service manager has said; `None` if it has said nothing. Not to watch is something too:
/// it has named the null device, of which a watch does nothing.
fn watch_of_service_manager() -> Result<Option<PressureWatch>, PressureError> {
    let null_device = || {
        env::var_os("MEMORY_PRESSURE_WATCH")
            .filter(|path| !path.is_empty())
            .map(PressureWatch::new)
    };
    Ok(PressureWatch::from_env()?.or_else(null_device))
}

fn errno(error: PressureError) -> c_int {
    match error {
        PressureError::Refused { source, .. } | PressureError::Thread(source) => {
            source.raw_os_error().unwrap_or(libc::EIO)
        }
        _ => libc::EINVAL,
    }
}

/// Starts a thread that waits until the system says that memory is short, and then has the
/// hierarchy's shrinkers free some. Without options, what the service manager has said in the
/// environment; -ENODATA if it has said nothing. -EINVAL for a file that cannot be watched, else
/// what the system says. Watching /dev/null does nothing, and is no error: a service manager that
/// has said so is obeyed, and the system not watched in its place.
///
/// # Safety
///
/// The hierarchy is good; the options are NULL or good; the function may be called with the data on
/// another thread until stillpoint_pressure_free() has returned; the handle can be written to
/// `pressure`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_watch(
    hierarchy: *mut Hierarchy,
    options: *const PressureOptions,
    pressure: *mut *mut Pressure,
) -> c_int {
    catch_panic(|| {
        // SAFETY: the caller's promise.
        let (hierarchy, options) = unsafe { (&deref(hierarchy)?.0, options.as_ref()) };
        let start = || {
            let mut watch = match options {
                Some(options) if !options.path.is_null() => {
                    // SAFETY: the caller's promise.
                    let path = unsafe { CStr::from_ptr(options.path) };
                    let watch = PressureWatch::new(OsStr::from_bytes(path.to_bytes()));
                    if options.payload.is_null() {
                        watch
                    } else {
                        // SAFETY: the caller's promise.
                        watch.payload(unsafe {
                            slice::from_raw_parts(
                                options.payload.cast::<u8>(),
                                options.payload_size,
                            )
                        })
                    }
                }
                _ => match watch_of_service_manager().map_err(errno)? {
                    Some(watch) => watch,
                    None if options.is_some_and(|options| options.or_system) => {
                        PressureWatch::system()
                    }
                    None => return Err(libc::ENODATA),
                },
            };
            if let Some(options) = options {
                if options.target > 0 {
                    watch = watch.target(options.target);
                }
                if let Some(function) = options.after {
                    let mut after = PassCallback {
                        function,
                        data: options.data,
                    };
                    watch = watch.after_pass(move |relieved| after.call(relieved));
                }
            }
            Ok(Pressure(watch.start(hierarchy).map_err(errno)?))
        };
        // SAFETY: the caller's promise.
        unsafe { new_handle(pressure, start) }
    })
}

/// How many passes have been run because memory was said to be short. 0 for NULL.
/// Async-signal-safe.
///
/// # Safety
///
/// The handle is good or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_events(pressure: *const Pressure) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { read_count(pressure, stillpoint_lru::Pressure::events) }
}

/// How often it was said again less than a tenth of a second after a pass. The next pass was put
/// off until then, and stands for all that had been said by then: there are at most ten in a
/// second. 0 for NULL. Async-signal-safe.
///
/// # Safety
///
/// The handle is good or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_coalesced(pressure: *const Pressure) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { read_count(pressure, stillpoint_lru::Pressure::coalesced) }
}

/// How many objects shrinkers have freed in those passes. 0 for NULL. Async-signal-safe.
///
/// # Safety
///
/// The handle is good or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_objects(pressure: *const Pressure) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { read_count(pressure, stillpoint_lru::Pressure::objects) }
}

/// How often a pass has panicked; the watch goes on. Only Rust code that takes part in passes
/// panics, and shrinkers' panics are not counted here. 0 for NULL. Async-signal-safe.
///
/// # Safety
///
/// The handle is good or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_panics(pressure: *const Pressure) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { read_count(pressure, stillpoint_lru::Pressure::panics) }
}

/// # Safety
///
/// The handle is good or NULL.
unsafe fn read_count(
    pressure: *const Pressure,
    count: fn(&stillpoint_lru::Pressure) -> u64,
) -> u64 {
    catch_panic_or(0, || {
        // SAFETY: the caller's promise.
        unsafe { pressure.as_ref() }.map_or(0, |pressure| count(&pressure.0))
    })
}

/// Whether there is a thread that watches, and the file is open: not, if it is /dev/null, or has
/// gone away and not come back yet; nor in the child of a fork. Async-signal-safe.
///
/// # Safety
///
/// The handle is good or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_is_watching(pressure: *const Pressure) -> bool {
    catch_panic_or(false, || {
        // SAFETY: the caller's promise.
        unsafe { pressure.as_ref() }.is_some_and(|pressure| pressure.0.is_watching())
    })
}

/// Ends a watch: waits for a pass under way, unless it is called after one on that very thread.
/// NULL does nothing.
///
/// # Safety
///
/// The handle is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_free(pressure: *mut Pressure) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(pressure) };
}
