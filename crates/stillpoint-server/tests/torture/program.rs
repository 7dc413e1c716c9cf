//! The program, its file, its limits.

use super::world::{Random, TENANTS};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

pub struct Program {
    child: Mutex<Child>,
    id: Pid,
    log: Arc<Mutex<String>>,
    folder: PathBuf,
    pub admin: PathBuf,
    pub sockets: [PathBuf; 5],
    /// Of a small tenant.
    pub churn: PathBuf,
    /// Whether clients move its clock.
    pub moves_clock: bool,
    /// Whether it evicts, and does not refuse.
    pub evicts: bool,
}

impl Program {
    /// Starts it, in a folder of its own.
    pub fn start(random: &mut Random, evicts: Option<bool>) -> Self {
        let name = format!("stillcache-torture-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let socket = |name: &str| folder.join(format!("{name}.sock"));
        let sockets = TENANTS.map(|tenant| match tenant {
            // Its clients come by the default tenant's socket.
            "" | "prefixed" => socket("default"),
            name => socket(name),
        });
        let (admin, churn) = (socket("admin"), socket("churn"));
        let moves_clock = random.one_in(2);
        let by_seed = !random.one_in(4);
        let evicts = evicts.unwrap_or(by_seed);
        let mut file = format!(
            "memory-limit = \"16m\"\nthreads = 2\nevict = {}\nconn-limit = 400\nbuffer-limit = \"256k\"\nmax-item-size = \"512k\"\nsend-timeout = 2\n",
            evicts
        );
        let mut listen = |path: &PathBuf, rest: &str| {
            let path = path.display();
            write!(file, "[[listen]]\npath = \"{path}\"\n{rest}\n").unwrap();
        };
        listen(&sockets[0], "");
        listen(&admin, "admin = true");
        listen(&churn, "tenant = \"churn\"");
        for (name, path) in TENANTS[1..4].iter().zip(&sockets[1..]) {
            listen(path, &format!("tenant = \"{name}\""));
        }
        for name in &TENANTS[1..4] {
            write!(file, "[[tenant]]\nname = \"{name}\"\nmin = \"1m\"\n").unwrap();
        }
        file += "[[tenant]]\nname = \"churn\"\nmin = \"128k\"\nmax = \"128k\"\n";
        file += "[[tenant]]\nname = \"prefixed\"\nprefix = [\"p:\"]\nmax = \"4m\"\n";
        fs::write(folder.join("stillcache.toml"), file).unwrap();
        let mut child = Command::new(
            std::env::var_os("STILLCACHE")
                .unwrap_or_else(|| env!("CARGO_BIN_EXE_stillcache").into()),
        );
        child.arg("--config").arg(folder.join("stillcache.toml"));
        if moves_clock {
            child.args(["-o", "debug"]);
        }
        let mut child = child.stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, written) = (
            BufReader::new(child.stderr.take().unwrap()),
            Arc::clone(&log),
        );
        std::thread::spawn(move || {
            for line in lines.lines() {
                let line = line.unwrap() + "\n";
                let mut log = written.lock().unwrap();
                // An hour's.
                if log.len() < 1 << 20 || line.contains("panicked") {
                    log.push_str(&line);
                }
            }
        });
        let program = Self {
            id: Pid::from_child(&child),
            child: Mutex::new(child),
            log,
            folder,
            admin,
            sockets,
            churn,
            moves_clock,
            evicts,
        };
        for _ in 0..6000 {
            if program.log.lock().unwrap().contains("threads\n") {
                return program;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not start: {}", program.log.lock().unwrap());
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.id, signal).unwrap();
    }

    /// What it has of the machine's memory, in bytes.
    pub fn resident(&self) -> u64 {
        let path = format!("/proc/{}/statm", self.id.as_raw_nonzero());
        // It has ended: that shows elsewhere.
        let Ok(pages) = fs::read_to_string(path) else {
            return 0;
        };
        let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size() as u64
    }

    /// Has it no more descriptors than that; those that are open stay.
    pub fn limit_descriptors(&self, most: u64) {
        let now = rustix::process::getrlimit(Resource::Nofile);
        let limit = Rlimit {
            current: Some(now.maximum.map_or(most, |maximum| most.min(maximum))),
            maximum: now.maximum,
        };
        // Of a child, without further rights.
        prlimit(Some(self.id), Resource::Nofile, limit).unwrap();
    }

    /// Has it read a file again, which is right or wrong.
    pub fn reload(&self, wrong: bool) {
        let path = self.folder.join("stillcache.toml");
        let text = fs::read_to_string(&path).unwrap();
        let right = text.trim_end_matches("wrong = \n").to_owned();
        let wanted = if wrong { right + "wrong = \n" } else { right };
        fs::write(&path, wanted).unwrap();
        self.signal(Signal::HUP);
    }

    /// Ends it as a service manager does.
    pub fn end(self) {
        self.signal(Signal::TERM);
        let status = self.child.lock().unwrap().wait().unwrap();
        let log = self.log.lock().unwrap();
        assert!(status.success(), "{status}: {log}");
        assert!(!log.contains("panicked"), "{log}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log.lock().unwrap();
            let end = log.char_indices().rev().nth(4000).map_or(0, |(at, _)| at);
            eprintln!("its log ends: {}", &log[end..]);
        }
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
