//! The traces of the ARC paper: N. Megiddo and D. S. Modha, "ARC: A Self-Tuning, Low Overhead
//! Replacement Cache", USENIX FAST 2003, pages 115 to 130. They may be used on the condition that
//! it is cited.
//!
//! A line of such a file is `start_block number_of_blocks ignored request_number`: one request for
//! each of so many blocks, in their order. The files are not part of the project. They are looked
//! for, plain (`OLTP.lis`) or packed (`OLTP.lis.zst`), in the folder of `--traces`, or else of the
//! variable `STILLPOINT_TRACES`, or else beside the project ([`BESIDE`]).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use clap::error::ErrorKind;
use ruzstd::decoding::StreamingDecoder;
use serde::{Deserialize, Serialize};

/// Where a folder of traces may be, seen from the project's root.
const BESIDE: [&str; 2] = ["../traces", "../shared/traces"];

/// Requests for consecutive blocks.
#[derive(Debug, PartialEq)]
struct Run {
    first: u64,
    blocks: u64,
}

/// The requests of a file.
#[derive(Debug)]
pub struct Trace {
    runs: Vec<Run>,
}

/// Where traces are looked for.
#[derive(Args, Serialize, Deserialize)]
pub struct Folder {
    /// The folder of the traces OLTP, P3 and P6, as NAME.lis or NAME.lis.zst; by default ../traces
    /// or ../shared/traces, seen from the project's root. Without it the rows are skipped
    #[arg(long, value_name = "DIR", env = "STILLPOINT_TRACES")]
    traces: Option<PathBuf>,
}

impl Folder {
    /// Refuses an option that names no folder.
    pub fn check(&self) -> Result<(), clap::Error> {
        match &self.traces {
            Some(folder) if !folder.is_dir() => {
                let message = format!("--traces: {} is no folder\n", folder.display());
                Err(clap::Error::raw(ErrorKind::ValueValidation, message))
            }
            _ => Ok(()),
        }
    }

    /// Returns the file of a trace.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        let folder = self.traces.clone().or_else(|| {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            let mut beside = BESIDE.into_iter().map(|folder| root.join(folder));
            beside.find(|folder| folder.is_dir())
        })?;
        let name = name.to_uppercase();
        ["lis", "lis.zst"]
            .map(|kind| folder.join(format!("{name}.{kind}")))
            .into_iter()
            .find(|file| file.is_file())
    }

    /// Reads a trace.
    pub fn read(&self, name: &str) -> Result<Trace> {
        let file = self.file(name);
        Trace::read(&file.with_context(|| format!("there is no trace {name}"))?)
    }
}

impl Trace {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
        let parsed = if path.extension().is_some_and(|kind| kind == "zst") {
            let unpacked = StreamingDecoder::new(BufReader::new(file))
                .map_err(|error| anyhow!("{name} is not zstd: {error}"))?;
            Self::parse(BufReader::with_capacity(1 << 16, unpacked))
        } else {
            Self::parse(BufReader::new(file))
        };
        parsed.with_context(|| format!("cannot read {name}"))
    }

    /// Reads lines.
    fn parse(mut lines: impl BufRead) -> Result<Self> {
        let mut runs = Vec::new();
        let mut line = String::new();
        while lines.read_line(&mut line)? != 0 {
            let text = line.trim();
            if !text.is_empty() {
                let run = Run::parse(text)
                    .with_context(|| format!("line {}: {text:?}", runs.len() + 1))?;
                runs.push(run);
            }
            line.clear();
        }
        ensure!(!runs.is_empty(), "there is no request");
        Ok(Self { runs })
    }

    /// Returns the first of `by` parts of it, for a quick look.
    pub fn divided(mut self, by: u32) -> Self {
        let kept = self.runs.len().div_ceil(by as usize);
        self.runs.truncate(kept);
        self
    }

    /// The blocks requested, in order.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        self.in_part(0..self.runs.len())
    }

    /// Those of a part.
    pub fn in_part(&self, part: Range<usize>) -> impl Iterator<Item = u64> {
        self.runs[part]
            .iter()
            .flat_map(|run| run.first..run.first + run.blocks)
    }

    /// Returns parts of about `requests` requests, each with the whole of its last line.
    pub fn parts(&self, requests: u64) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let (mut begin, mut found) = (0, 0);
        for (index, run) in self.runs.iter().enumerate() {
            found += run.blocks;
            if found >= requests {
                parts.push(begin..index + 1);
                (begin, found) = (index + 1, 0);
            }
        }
        if begin < self.runs.len() {
            parts.push(begin..self.runs.len());
        }
        parts
    }
}

impl Run {
    fn parse(line: &str) -> Result<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut number = |what: &str| -> Result<u64> {
            let word = words.next().with_context(|| format!("it has no {what}"))?;
            word.parse()
                .with_context(|| format!("its {what} is no number"))
        };
        let first = number("start block")?;
        let blocks = number("number of blocks")?;
        number("third number")?;
        number("request number")?;
        if let Some(more) = words.next() {
            bail!("there is {more:?} after four numbers");
        }
        ensure!(blocks > 0, "its number of blocks is 0");
        ensure!(
            first.checked_add(blocks).is_some(),
            "its blocks end above 2^64"
        );
        Ok(Self { first, blocks })
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use tempfile::TempDir;

    use super::*;

    const LINES: &str = "10 3 0 0\n7 1 0 1\n10 2 0 2\n";

    fn error(lines: &str) -> String {
        format!(
            "{:#}",
            Trace::parse(lines.as_bytes()).expect_err("it is malformed")
        )
    }

    #[test]
    fn a_line_is_a_request_for_each_block() {
        let trace = Trace::parse(LINES.as_bytes()).expect("it is in order");
        assert_eq!(trace.blocks().collect::<Vec<_>>(), [10, 11, 12, 7, 10, 11]);
        assert_eq!(trace.parts(2), [0..1, 1..3]);
        assert_eq!(trace.parts(4), [0..2, 2..3]);
        assert_eq!(trace.parts(100).len(), 1);
        assert_eq!(trace.divided(3).blocks().count(), 3);
    }

    #[test]
    fn a_malformed_line_is_named() {
        for (lines, expected) in [
            (
                "1 1 0 0\n1 x 0 1\n",
                "line 2: \"1 x 0 1\": its number of blocks is no number",
            ),
            ("1 1 0\n", "line 1: \"1 1 0\": it has no request number"),
            (
                "1 1 0 0 9\n",
                "line 1: \"1 1 0 0 9\": there is \"9\" after four numbers",
            ),
            (
                "1 0 0 0\n",
                "line 1: \"1 0 0 0\": its number of blocks is 0",
            ),
            ("18446744073709551615 1 0 0\n", "its blocks end above 2^64"),
            ("-1 1 0 0\n", "its start block is no number"),
            ("", "there is no request"),
        ] {
            let error = error(lines);
            assert!(error.contains(expected), "{lines:?}: {error}");
        }
    }

    #[test]
    fn packed_and_plain_files_are_read() {
        let folder = TempDir::new().expect("a folder for temporary files");
        let traces = Folder {
            traces: Some(folder.path().to_owned()),
        };
        assert_eq!(traces.file("oltp"), None);
        let packed = compress_to_vec(LINES.as_bytes(), CompressionLevel::Fastest);
        for (name, content) in [
            ("OLTP.lis.zst", packed),
            ("P3.lis", LINES.into()),
            ("P6.lis.zst", LINES.into()),
        ] {
            std::fs::write(folder.path().join(name), content).expect("it can be written");
        }
        let read = |name| traces.read(name);
        assert_eq!(read("oltp").expect("it is in order").blocks().count(), 6);
        assert_eq!(read("p3").expect("it is in order").blocks().count(), 6);
        let error = format!("{:#}", read("p6").expect_err("it is not packed"));
        assert!(error.contains("P6.lis.zst is not zstd"), "{error}");
    }
}
