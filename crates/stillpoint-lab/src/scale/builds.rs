//! Programs of `drop-in/bench`, of which each is one source with two manifests: one has the patch line
//! for the drop-in package, the other the original. A program has one package of the name, so each
//! build is a subject of its own. They are built before anything is measured (minutes, the first
//! time), into the target folder, and each measurement is one run.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::run::{Curve, Metrics, Sample};

/// A program: what the builds differ in.
#[derive(Clone, Copy)]
pub struct Program {
    /// The program that the manifest makes, and its folder below the target folder.
    pub binary: &'static str,
    /// Its folder in that.
    pub name: &'static str,
    /// Its folder in `drop-in/bench`.
    pub manifest: &'static str,
    /// Its features.
    pub features: &'static str,
}

/// Builds them. What is missing then fails where it would be measured, and the run goes on.
pub fn build(programs: &[Program]) {
    for program in programs {
        if let Err(error) = program.build() {
            eprintln!("stillpoint: {}: {error:#}", program.name);
        }
    }
}

/// The root of the clone that this program was built in.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

impl Program {
    fn target(self) -> PathBuf {
        root().join("target").join(self.binary).join(self.name)
    }

    fn build(self) -> Result<()> {
        let manifest = root().join("drop-in/bench").join(self.manifest);
        let status = Command::new("cargo")
            .args(["build", "--release", "--locked", "--quiet"])
            .args(["--features", self.features])
            .arg("--manifest-path")
            .arg(manifest.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(self.target())
            .status()
            .context("cannot start cargo, which builds what is measured")?;
        if !status.success() {
            bail!("it cannot be built ({status}); cargo has said why");
        }
        Ok(())
    }

    /// One measurement.
    pub fn run(self, scenario: &str) -> Result<Sample> {
        let program = self.target().join("release").join(self.binary);
        let mut command = Command::new(&program);
        command.args([scenario, "1"]).stderr(Stdio::inherit());
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // It ends with this process, which has a time limit.
                Ok(rustix::process::set_parent_process_death_signal(Some(
                    Signal::KILL,
                ))?)
            });
        }
        let output = command
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        if !output.status.success() {
            bail!("it ended with {}", output.status);
        }
        let metrics: Metrics = serde_json::from_slice(&output.stdout)?;
        Ok(Sample {
            metrics,
            curve: Curve::new(),
        })
    }
}
