//! [`PressureError`]: why a watch was not started.

use std::{
    error::Error,
    fmt,
    io::{self, ErrorKind},
    path::PathBuf,
};

/// The reason why a watch was not started.
#[derive(Debug)]
#[non_exhaustive]
pub enum PressureError {
    /// `$MEMORY_PRESSURE_WRITE` is not base64.
    Payload,
    /// The file is of no kind that can be watched.
    Kind(PathBuf),
    /// The file does not exist, or cannot be opened or written to.
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No thread could be started, or no file descriptor opened.
    Thread(io::Error),
}

impl fmt::Display for PressureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload => f.write_str(
                "$MEMORY_PRESSURE_WRITE is not base64; see https://systemd.io/MEMORY_PRESSURE",
            ),
            Self::Kind(path) => write!(
                f,
                "{} is neither a pressure file of the kernel nor a FIFO or socket; name one of these, or /dev/null to watch nothing",
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
