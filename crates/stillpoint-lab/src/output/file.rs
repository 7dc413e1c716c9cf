//! Files that a run fills at its end.
//!
//! A file keeps what it has until then, whatever becomes of the run: the text is kept in memory, written
//! into another file beside it, and that is renamed. A symbolic link stays, and the file that it names is
//! replaced. What cannot be replaced (a device, a pipe, what standard output leads to) is written to as
//! it is.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::fstat;

/// A file for the end of a run. Nothing is in its place before [`commit`](Output::commit).
pub struct Output {
    /// The path, as the command line has it.
    path: PathBuf,
    to: Target,
}

enum Target {
    /// A file to replace, and the text so far.
    Place(PathBuf, String),
    /// An open file, written to at once.
    Open(File),
}

impl Output {
    /// Opens a file at `path`. Fails if that could not be written at the end: this must be known
    /// before a run, not after it.
    pub fn create(path: &Path) -> Result<Self> {
        let to = Target::open(path).with_context(|| format!("cannot write {}", path.display()))?;
        let path = path.to_owned();
        Ok(Self { path, to })
    }

    /// Returns the path, as the command line has it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where [`commit_partial`](Output::commit_partial) puts what it has.
    pub fn partial_path(&self) -> PathBuf {
        partial(&self.path)
    }

    /// Returns whether the end of the run replaces a file; otherwise what is written is out at
    /// once.
    pub fn is_replaced(&self) -> bool {
        matches!(self.to, Target::Place(..))
    }

    /// Writes behind what has been written.
    pub fn write(&mut self, more: &str) -> Result<()> {
        let written = match &mut self.to {
            Target::Place(_, text) => {
                text.push_str(more);
                Ok(())
            }
            Target::Open(file) => file.write_all(more.as_bytes()),
        };
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Removes what has been written, if it is not out yet.
    pub fn restart(&mut self) {
        if let Target::Place(_, text) = &mut self.to {
            text.clear();
        }
    }

    /// Puts what has been written into its place.
    pub fn commit(&mut self) -> Result<()> {
        self.replace(|place| place.to_owned())
    }

    /// Puts what has been written beside its place, as the outcome of a run that was broken off,
    /// and returns where: the path with `.partial` behind it.
    pub fn commit_partial(&mut self) -> Result<PathBuf> {
        self.replace(partial)?;
        Ok(if self.is_replaced() {
            self.partial_path()
        } else {
            self.path.clone()
        })
    }

    /// Puts what has been written into its place, and removes what
    /// [`commit_partial`](Output::commit_partial) has put beside it.
    pub fn commit_whole(&mut self) -> Result<()> {
        self.commit()?;
        if let Target::Place(place, _) = &self.to {
            // It may never have been there.
            let _ = fs::remove_file(partial(place));
        }
        Ok(())
    }

    fn replace(&self, of: impl Fn(&Path) -> PathBuf) -> Result<()> {
        let Target::Place(place, text) = &self.to else {
            return Ok(());
        };
        let place = of(place);
        let fill = || {
            // A new file is like any other program's.
            let permissions = fs::metadata(&place).map(|before| before.permissions());
            let mut file = tempfile::Builder::new()
                .prefix(".stillpoint-")
                .permissions(Permissions::from_mode(0o666))
                .tempfile_in(directory(&place))?;
            file.write_all(text.as_bytes())?;
            permissions.map_or(Ok(()), |mode| file.as_file().set_permissions(mode))?;
            file.as_file().sync_all()?;
            file.persist(&place)?;
            io::Result::Ok(())
        };
        fill().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Target {
    fn open(path: &Path) -> io::Result<Self> {
        let place = match fs::metadata(path) {
            // Appends, because standard output may be a file that has text already.
            Ok(found) if !found.is_file() || is_output(&found) => {
                return OpenOptions::new().append(true).open(path).map(Self::Open);
            }
            // A file that may not be written to must not be replaced either.
            Ok(_) => OpenOptions::new()
                .write(true)
                .open(path)
                .and(path.canonicalize())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error),
        };
        tempfile::tempfile_in(directory(&place))?;
        Ok(Self::Place(place, String::new()))
    }
}

/// Returns whether standard output or standard error leads to the file.
fn is_output(file: &Metadata) -> bool {
    let mut open = [fstat(io::stdout()), fstat(io::stderr())]
        .into_iter()
        .flatten();
    open.any(|out| (out.st_dev, out.st_ino) == (file.dev(), file.ino()))
}

fn directory(file: &Path) -> &Path {
    let parent = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    struct Folder(TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = Self(TempDir::new().expect("a folder for temporary files"));
            fs::write(folder.at("figures"), "old, and longer than what comes").expect("it is ours");
            folder
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.at(name)).expect("the file is there")
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.0.path())
                .expect("the folder is there")
                .flatten();
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        }

        fn mode(&self, name: &str) -> u32 {
            fs::metadata(self.at(name)).expect("it is there").mode() & 0o777
        }

        fn write(&self, name: &str, text: &str) -> Output {
            let mut output = Output::create(&self.at(name)).expect("the folder can be written");
            output.write(text).expect("there is space");
            output
        }
    }

    #[test]
    fn a_file_keeps_its_text_and_its_mode_until_the_end_and_what_is_not_committed_leaves_nothing() {
        let folder = Folder::new();
        let mode = Permissions::from_mode(0o640);
        fs::set_permissions(folder.at("figures"), mode).expect("it is ours");
        drop(folder.write("other", "new"));
        let mut output = folder.write("figures", "new");
        assert_eq!(folder.text("figures"), "old, and longer than what comes");
        output.commit().expect("the folder can be written");
        assert_eq!(
            (folder.text("figures").as_str(), folder.mode("figures")),
            ("new", 0o640)
        );
        assert_eq!(folder.names(), ["figures"]);
        // A new file is like any other program's.
        fs::write(folder.at("usual"), "").expect("it is ours");
        folder
            .write("fresh", "new")
            .commit()
            .expect("it can be written");
        assert_eq!(folder.mode("fresh"), folder.mode("usual"));
    }

    #[test]
    fn a_broken_off_run_writes_beside_the_file() {
        let folder = Folder::new();
        let mut output = folder.write("figures", "half");
        let partial = output.commit_partial().expect("the folder can be written");
        assert_eq!(partial, folder.at("figures.partial"));
        assert!(folder.text("figures").starts_with("old"));
        assert_eq!(folder.text("figures.partial"), "half");
        output.restart();
        output.write("all").expect("there is space");
        output.commit_whole().expect("the folder can be written");
        assert_eq!(folder.names(), ["figures"]);
        assert_eq!(folder.text("figures"), "all");
    }

    #[test]
    fn links_are_followed_and_stay() {
        let folder = Folder::new();
        for (target, name) in [("figures", "one"), ("one", "two"), ("ring", "ring")] {
            symlink(target, folder.at(name)).expect("the folder can be written");
        }
        folder
            .write("two", "new")
            .commit()
            .expect("the folder can be written");
        assert_eq!(folder.text("figures"), "new");
        assert!(folder.at("one").is_symlink() && folder.at("two").is_symlink());
        assert!(Output::create(&folder.at("ring")).is_err());
    }

    #[test]
    fn what_cannot_be_replaced_is_written_to_and_what_cannot_be_written_is_told_at_once() {
        for path in ["/dev/null", "/dev/full", "/dev/stdout", "/proc/self/fd/1"] {
            let output = Output::create(Path::new(path)).expect("it can be opened");
            assert!(!output.is_replaced(), "{path}");
        }
        let mut full = Output::create(Path::new("/dev/full")).expect("it can be opened");
        assert!(full.write("text").is_err());
        let folder = Folder::new();
        for path in [folder.at("absent/figures"), folder.at(""), "..".into()] {
            let error = Output::create(&path).err().expect("it cannot be written");
            assert!(error.to_string().starts_with("cannot write "), "{error:#}");
        }
        assert_eq!(folder.names(), ["figures"]);
    }
}
