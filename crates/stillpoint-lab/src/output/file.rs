//! Files that a run fills at its end. Where the figures go is decided before the run:
//!
//! * A path to a regular file, over symbolic links, or to a free name in a folder: the text is kept in
//!   memory, written into a new file beside the place, and that is renamed. Until then the place keeps what
//!   it has, and if the rename fails, the new file stays and the message names it.
//! * A path to anything else (a device, a pipe), or to a file that this process has open for writing
//!   (standard output, a descriptor of the shell): written to at once, at its end.
//! * A directory, a path that ends in no name, a link to nothing: refused as bad usage, as is what the
//!   system does not let the program write.

use std::fs::{self, DirEntry, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::error::ErrorKind;

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
    /// Opens a file at `path`. Fails with a usage error if that could not be written at the end: this
    /// must be known before a run, not after it.
    pub fn create(path: &Path) -> Result<Self> {
        let to = Target::open(path).map_err(|error| {
            let message = format!("cannot write {}: {error}\n", path.display());
            clap::Error::raw(ErrorKind::Io, message)
        })?;
        let path = path.to_owned();
        Ok(Self { path, to })
    }

    /// Returns the path, as the command line has it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where [`commit_partial`](Output::commit_partial) puts what it has.
    pub fn partial_path(&self) -> PathBuf {
        match &self.to {
            Target::Place(place, _) => partial(place),
            Target::Open(_) => self.path.clone(),
        }
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
    /// and returns where: the path of the file with `.partial` behind it.
    pub fn commit_partial(&mut self) -> Result<PathBuf> {
        self.replace(partial)?;
        Ok(self.partial_path())
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
            io::Result::Ok(file)
        };
        let cannot = || format!("cannot write {}", self.path.display());
        let Err(failed) = fill().with_context(cannot)?.persist(&place) else {
            return Ok(());
        };
        let (_, kept) = failed.file.keep().with_context(cannot)?;
        let kept = format!("{}; what it was to hold is in {}", cannot(), kept.display());
        Err(failed.error).context(kept)
    }
}

impl Target {
    fn open(path: &Path) -> io::Result<Self> {
        let place = match fs::metadata(path) {
            // Appends, because the file may have text already.
            Ok(found) if !found.is_file() || is_open(&found) => {
                return OpenOptions::new().append(true).open(path).map(Self::Open);
            }
            // A file that may not be written to must not be replaced either.
            Ok(_) => OpenOptions::new()
                .write(true)
                .open(path)
                .and(path.canonicalize())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if path.is_symlink() {
                    return Err(io::Error::other("it is a symbolic link to nothing"));
                }
                let bytes = path.as_os_str().as_bytes();
                let mut names = path.file_name().into_iter();
                if !names.any(|name| bytes.ends_with(name.as_bytes())) {
                    return Err(io::Error::other("it names no file"));
                }
                path.to_owned()
            }
            Err(error) => return Err(error),
        };
        tempfile::tempfile_in(directory(&place))?;
        Ok(Self::Place(place, String::new()))
    }
}

/// Returns whether this process has the file open for writing.
fn is_open(file: &Metadata) -> bool {
    let leads_there = |descriptor: DirEntry| {
        // The mode of the link itself says what the descriptor was opened for.
        let writes = descriptor
            .metadata()
            .is_ok_and(|link| link.mode() & 0o200 != 0);
        let found = fs::metadata(descriptor.path());
        writes && found.is_ok_and(|open| (open.dev(), open.ino()) == (file.dev(), file.ino()))
    };
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten();
    descriptors.flatten().any(leads_there)
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
    use std::os::fd::AsRawFd;
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
        for (target, name) in [
            ("figures", "one"),
            ("one", "two"),
            ("ring", "ring"),
            ("absent", "dangling"),
        ] {
            symlink(target, folder.at(name)).expect("the folder can be written");
        }
        let mut output = folder.write("two", "new");
        let partial = output.commit_partial().expect("the folder can be written");
        assert_eq!(partial, folder.at("figures.partial"));
        output.commit_whole().expect("the folder can be written");
        assert_eq!(folder.text("figures"), "new");
        assert!(folder.at("one").is_symlink() && folder.at("two").is_symlink());
        assert!(Output::create(&folder.at("ring")).is_err());
        assert!(Output::create(&folder.at("dangling")).is_err());
        assert!(folder.at("dangling").is_symlink() && !folder.at("absent").exists());
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
        for name in [
            "absent/figures",
            "absent/",
            "absent/.",
            "absent/..",
            "figures/",
            "",
            "..",
        ] {
            let error = Output::create(&folder.at(name)).err();
            let error = error.expect("it cannot be written");
            assert!(error.is::<clap::Error>(), "{name}: {error:#}");
            assert!(error.to_string().contains("cannot write "), "{error:#}");
        }
        assert_eq!(folder.names(), ["figures"]);
    }

    #[test]
    fn a_file_that_is_open_already_is_appended_to_unless_it_is_only_read() {
        let folder = Folder::new();
        let link = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
        let read = File::open(folder.at("figures")).expect("it is there");
        assert!(folder.write("figures", "").is_replaced());
        let open = OpenOptions::new().append(true).open(folder.at("figures"));
        let open = open.expect("it is there");
        for path in [folder.at("figures"), link(&open).into(), link(&read).into()] {
            let mut output = Output::create(&path).expect("it can be opened");
            assert!(!output.is_replaced(), "{}", path.display());
            output.write(", and more").expect("there is space");
            output.commit().expect("it is out");
        }
        let text = folder.text("figures");
        assert!(text.starts_with("old") && text.matches(", and more").count() == 3);
    }

    #[test]
    fn figures_whose_place_is_lost_are_kept_elsewhere() {
        let folder = Folder::new();
        let mut output = folder.write("lost", "new");
        fs::create_dir(folder.at("lost")).expect("the folder can be written");
        let error = output.commit().expect_err("a directory is there now");
        let said = error.to_string();
        let (_, kept) = said.split_once(" is in ").expect("it says where");
        assert_eq!(fs::read_to_string(kept).expect("it is there"), "new");
    }
}
