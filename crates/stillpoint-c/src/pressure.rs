//! Memory pressure: the system's notifications start passes over a hierarchy.

use crate::{
    ffi::Errno,
    handle::{deref, free_handle, get, new_handle},
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

/// The function that is called after each pass, on the watching thread:
/// `stillpoint_relieved_function`.
pub type RelievedFunction =
    Option<unsafe extern "C" fn(relieved: *const Reclaimed, data: *mut c_void)>;

/// The options of a watch. Zeroes are the defaults.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PressureOptions {
    /// The file, FIFO or socket; NULL for $MEMORY_PRESSURE_WATCH, which the service manager sets.
    pub path: *const c_char,
    /// Whether to watch this process's control group if there is no path and the service manager has
    /// set nothing; the whole system only if the process is in the root group and that has no file.
    pub or_system: bool,
    /// Bytes to write to the file once it is open; only with a path.
    pub payload: *const c_void,
    /// The number of these bytes.
    pub payload_size: usize,
    /// Bytes that may still be charged after a pass; 0 stands for three quarters of the bytes
    /// charged before it.
    pub target: u64,
    /// Called after each pass; may be NULL.
    pub after: RelievedFunction,
    /// Passed to `after`.
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

/// Returns the source that the service manager has set, if any. To turn watching off, it sets the
/// null device, on which a watch does nothing.
fn watch_of_service_manager() -> Result<Option<PressureWatch>, PressureError> {
    let null_device = || {
        env::var_os("MEMORY_PRESSURE_WATCH")
            .filter(|path| !path.is_empty())
            .map(PressureWatch::new)
    };
    Ok(PressureWatch::from_env()?.or_else(null_device))
}

impl From<PressureError> for Errno {
    fn from(error: PressureError) -> Self {
        match error {
            PressureError::Refused { source, .. } | PressureError::Thread(source) => {
                Self(source.raw_os_error().unwrap_or(libc::EIO))
            }
            _ => Self(libc::EINVAL),
        }
    }
}

/// Starts a thread that frees memory by the hierarchy's shrinkers whenever the system reports
/// memory pressure. Without options, uses the service manager's settings in the environment;
/// -ENODATA if there are none. -EINVAL for a file that cannot be watched; otherwise the system's
/// error. Watching /dev/null does nothing, and is no error: that is how a service manager turns
/// watching off, so the system is not watched instead.
///
/// # Safety
///
/// The hierarchy is valid; the options are NULL or valid; the function may be called with the data
/// on another thread until stillpoint_pressure_free() has returned; the handle can be written to
/// `pressure`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_watch(
    hierarchy: *mut Hierarchy,
    options: *const PressureOptions,
    pressure: *mut *mut Pressure,
) -> c_int {
    let start = || {
        // SAFETY: the caller's promise.
        let (hierarchy, options) = unsafe { (&deref(hierarchy)?.0, options.as_ref()) };
        let mut watch = match options {
            Some(options) if !options.path.is_null() => {
                // SAFETY: the caller's promise.
                let path = unsafe { CStr::from_ptr(options.path) };
                let watch = PressureWatch::new(OsStr::from_bytes(path.to_bytes()));
                let (payload, size) = (options.payload.cast::<u8>(), options.payload_size);
                if payload.is_null() {
                    watch
                } else {
                    // SAFETY: the caller's promise.
                    watch.payload(unsafe { slice::from_raw_parts(payload, size) })
                }
            }
            _ => match watch_of_service_manager()? {
                Some(watch) => watch,
                None if options.is_some_and(|options| options.or_system) => PressureWatch::system(),
                None => return Err(libc::ENODATA.into()),
            },
        };
        if let Some(&PressureOptions {
            target,
            after,
            data,
            ..
        }) = options
        {
            if target > 0 {
                watch = watch.target(target);
            }
            if let Some(function) = after {
                let mut after = PassCallback { function, data };
                watch = watch.after_pass(move |relieved| after.call(relieved));
            }
        }
        Ok(Pressure(watch.start(hierarchy)?))
    };
    // SAFETY: the caller's promise.
    unsafe { new_handle(pressure, start) }
}

/// Returns how many passes memory pressure has caused. 0 for NULL. Async-signal-safe.
///
/// # Safety
///
/// The handle is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_events(pressure: *const Pressure) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { get(pressure, 0, |pressure| pressure.0.events()) }
}

/// Returns how many notifications came less than a tenth of a second after a pass. The next pass
/// waits until that time is over and serves all of them, so there are at most ten passes a second.
/// 0 for NULL. Async-signal-safe.
///
/// # Safety
///
/// The handle is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_coalesced(pressure: *const Pressure) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { get(pressure, 0, |pressure| pressure.0.coalesced()) }
}

/// Returns how many objects shrinkers have freed in these passes. 0 for NULL. Async-signal-safe.
///
/// # Safety
///
/// The handle is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_objects(pressure: *const Pressure) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { get(pressure, 0, |pressure| pressure.0.objects()) }
}

/// Returns how often a pass has panicked; the watch goes on. Only Rust code in passes can panic;
/// shrinkers' panics are not counted. 0 for NULL. Async-signal-safe.
///
/// # Safety
///
/// The handle is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_panics(pressure: *const Pressure) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { get(pressure, 0, |pressure| pressure.0.panics()) }
}

/// Returns whether a thread watches and the file is open. False for /dev/null, for a file that was
/// removed and not yet created again, and in the child of a fork. Async-signal-safe.
///
/// # Safety
///
/// The handle is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_is_watching(pressure: *const Pressure) -> bool {
    // SAFETY: the caller's promise.
    unsafe { get(pressure, false, |pressure| pressure.0.is_watching()) }
}

/// Ends a watch: waits for a pass under way, unless it is called on the watching thread. NULL does
/// nothing.
///
/// # Safety
///
/// The handle is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_pressure_free(pressure: *mut Pressure) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(pressure) };
}
