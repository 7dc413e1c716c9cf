//! Why a watch was not started.

use std::{
    error::Error,
    fmt,
    io::{self, ErrorKind},
    path::PathBuf,
};

/// Why nothing is watched.
#[derive(Debug)]
#[non_exhaustive]
pub enum PressureError {
    /// `$MEMORY_PRESSURE_WRITE` is no base64.
    Payload,
    /// The file is none that can be watched.
    Kind(PathBuf),
    /// The file is not there, or refuses to be opened, or what is written to it.
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no thread, or no file descriptor, to be had.
    Thread(io::Error),
}

impl fmt::Display for PressureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload => f.write_str(
                "$MEMORY_PRESSURE_WRITE is no base64; see https://systemd.io/MEMORY_PRESSURE",
            ),
            Self::Kind(path) => write!(
                f,
                "{} is no pressure file of the kernel's, FIFO or socket; name one of these, or /dev/null to watch nothing",
                path.display()
            ),
            Self::Refused { path, source } if source.kind() == ErrorKind::WouldBlock => write!(
                f,
                "cannot watch {}: the process that listens there takes no more for now; see that it accepts its connections and reads, and start again",
                path.display()
            ),
            Self::Refused { path, source } => {
                write!(
                    f,
                    "cannot watch {}: {source}; is it there, and may this process write to it?",
                    path.display()
                )
            }
            Self::Thread(error) => write!(f, "no thread to watch for memory pressure: {error}"),
        }
    }
}

impl Error for PressureError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused { source, .. } | Self::Thread(source) => Some(source),
            Self::Payload | Self::Kind(_) => None,
        }
    }
}
