//! The kubelet of this node: process, flags, configuration. With the gate EventedPLEG, a kubelet subscribes to events.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::bounded;
use crate::proc::{Belongs, Proc, Process};

/// The configuration file of kubeadm, in case the kubelet's command line names no file.
const DEFAULT_CONFIG: &str = "/var/lib/kubelet/config.yaml";
const HEALTHZ_PORT: u16 = 10248;
/// Programs that run a kubelet inside their own process, so that the kubelet has no command line of its own.
const EMBEDDING: [&str; 4] = ["k3s", "k3s-server", "k3s-agent", "kubelite"];
/// The kubelet's feature gate for events, and the gates that set it together with others.
const EVENTED: &str = "EventedPLEG";
const INCLUDING: [&str; 2] = ["AllAlpha", "AllBeta"];
type Gates = BTreeMap<String, bool>;

/// The reason why a kubelet on this node may subscribe to the runtime's events; `None` if no kubelet may. A kubelet
/// with another socket than `socket` (`None`: not known) does not count. `root` is `/` except in tests.
pub(crate) fn find_subscriber(root: &Path, socket: Option<&Path>) -> Option<String> {
    let unknown = |why: String| Some(format!("a kubelet may use them: {why}"));
    let proc = Proc::below(root);
    let Ok(kubelets) = Kubelet::all(&proc) else {
        return unknown(format!("{} cannot be read", proc.path("").display()));
    };
    for kubelet in &kubelets {
        let pid = kubelet.pid;
        if let Some(name) = &kubelet.embedded_in {
            return unknown(format!("{name} (pid {pid}) contains a kubelet"));
        }
        if socket.is_none_or(|socket| kubelet.other_runtime(&proc, socket).is_none())
            && let Some(why) = kubelet.subscribes()
        {
            return Some(format!("the kubelet (pid {pid}) {why}"));
        }
    }
    match kubelets.is_empty() && !proc.shows_host() {
        true => unknown("the processes of the host are not visible from here".to_owned()),
        false => None,
    }
}

/// The pid of a kubelet on this node, and the runtime endpoint in its flags or configuration.
pub(crate) fn runtime_endpoint(root: &Path) -> Option<(u32, String)> {
    let mut kubelets = Kubelet::all(&Proc::below(root)).ok()?.into_iter();
    kubelets.find_map(|kubelet| Some((kubelet.pid, kubelet.endpoint()?)))
}

/// A process that is or contains a kubelet.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Constructor)]
pub(crate) struct Kubelet {
    pub(crate) pid: u32,
    directory: PathBuf,
    arguments: Vec<String>,
    embedded_in: Option<String>,
}

impl Kubelet {
    pub(crate) fn has_name_of(process: &Process) -> bool {
        let name = process.name.as_str();
        matches!(name, "kubelet" | "hyperkube") || EMBEDDING.contains(&name)
    }

    /// The kubelet in this process, unless a user or a pod started it: its flags could make us read any file as root.
    pub(crate) fn of(proc: &Proc, process: &Process) -> Option<Self> {
        let pid = process.pid;
        if !Self::has_name_of(process) || proc.belongs(pid) != Some(Belongs::System) {
            return None;
        }
        let arguments = proc.arguments(pid)?;
        // A program that sets its own title has a single argument with spaces, so only its first word is used.
        let path = arguments.first()?.split(' ').next()?;
        let name = path.rsplit('/').next().unwrap_or(path);
        let embedded_in = match (name, arguments.get(1).map(String::as_str)) {
            ("kubelet", _) | ("hyperkube", Some("kubelet")) => None,
            (name, _) if EMBEDDING.contains(&name) => Some(name.to_owned()),
            _ => return None,
        };
        let directory = proc.path(&pid.to_string());
        Some(Self::new(pid, directory, arguments, embedded_in))
    }

    fn all(proc: &Proc) -> std::io::Result<Vec<Self>> {
        let processes = proc.pids()?.filter_map(|pid| proc.process(pid));
        let kubelets = processes.filter_map(|process| Self::of(proc, &process));
        Ok(kubelets.collect())
    }

    fn endpoint(&self) -> Option<String> {
        let flag = value(&self.arguments, &["--container-runtime-endpoint"]);
        let configured = || self.configured(|config| config.container_runtime_endpoint);
        let configured = || configured().filter(|endpoint| !endpoint.is_empty());
        flag.map(str::to_owned).or_else(configured)
    }

    /// The endpoint of the kubelet's runtime, if it is known to be another socket than `socket`.
    pub(crate) fn other_runtime(&self, proc: &Proc, socket: &Path) -> Option<String> {
        let endpoint = self.endpoint().filter(|_| self.embedded_in.is_none())?;
        (is_same(proc, self.pid, &endpoint, socket) == Some(false)).then_some(endpoint)
    }

    /// The port of the kubelet's `/healthz`; 0 if it is disabled.
    pub(crate) fn healthz_port(&self) -> u16 {
        let flag = value(&self.arguments, &["--healthz-port"]).and_then(|port| port.parse().ok());
        let port = flag.or_else(|| self.configured(|config| config.healthz_port));
        port.unwrap_or(HEALTHZ_PORT)
    }

    pub(crate) fn log_file(&self) -> Option<PathBuf> {
        Some(self.here(Path::new(value(&self.arguments, &["--log-file"])?)))
    }

    /// The path by which this program reaches the file that the kubelet sees at `path`.
    fn here(&self, path: &Path) -> PathBuf {
        match path.strip_prefix("/") {
            Ok(path) => self.directory.join("root").join(path),
            Err(_) => self.directory.join("cwd").join(path),
        }
    }

    /// A value in the kubelet's configuration files, if all files can be read. The last file that has the value counts.
    fn configured<T>(&self, value: impl Fn(Configuration) -> Option<T>) -> Option<T> {
        let read = self.configurations().into_iter().map(|(_, read)| read);
        let all: Vec<Configuration> = read.collect::<Result<_, _>>().ok()?;
        all.into_iter().filter_map(value).next_back()
    }

    /// The kubelet's configuration files, with the paths that the kubelet uses. `--config-dir` overrides `--config`.
    fn configurations(&self) -> Vec<(PathBuf, Result<Configuration, &'static str>)> {
        let flag = |name| value(&self.arguments, &[name]).map(PathBuf::from);
        let default = Some(PathBuf::from(DEFAULT_CONFIG)).filter(|path| self.here(path).exists());
        let mut others = Vec::new();
        if let Some(dir) = flag("--config-dir") {
            match fs::read_dir(self.here(&dir)) {
                Ok(all) => others.extend(all.flatten().map(|entry| dir.join(entry.file_name()))),
                // If `--config-dir` cannot be read, it counts as one file that cannot be read.
                Err(_) => others.push(dir.join("*.conf")),
            }
        }
        others.retain(|path| path.extension().is_some_and(|end| end == "conf"));
        others.sort();
        let files = flag("--config").or(default).into_iter().chain(others);
        let read = files.map(|path| {
            let text = bounded::read(&self.here(&path)).map_err(|_| "cannot be read");
            let invalid = |_| "cannot be parsed";
            let parsed = text.and_then(|text| serde_saphyr::from_str(&text).map_err(invalid));
            (path, parsed)
        });
        read.collect()
    }

    /// The reason why the kubelet subscribes or may subscribe. Flags override the files.
    fn subscribes(&self) -> Option<String> {
        let flags = values(&self.arguments, "--feature-gates").flat_map(|list| list.split(','));
        let flags = flags.map(|gate| {
            let (name, value) = gate.split_once('=').unwrap_or((gate, "true"));
            // The spellings of false that the kubelet knows.
            let is_false = matches!(value.trim(), "false" | "False" | "FALSE" | "f" | "F" | "0");
            (name.trim().to_owned(), !is_false)
        });
        let flags: Gates = flags.collect();
        if let Some(enabled) = flags.get(EVENTED) {
            let why = "subscribes to them (--feature-gates=EventedPLEG=true)";
            return enabled.then(|| why.to_owned());
        }
        let includes = |gates: &Gates| INCLUDING.iter().any(|name| gates.get(*name) == Some(&true));
        let mut including = includes(&flags);
        let mut decided = None;
        for (path, read) in self.configurations() {
            let shown = path.display();
            let gates = match read.map(|config| config.feature_gates.unwrap_or_default()) {
                Ok(gates) => gates,
                Err(why) => return Some(format!("may subscribe to them: {shown} {why}")),
            };
            including |= includes(&gates);
            let why = format!("subscribes to them (EventedPLEG in {shown})");
            let own = gates.get(EVENTED).map(|enabled| enabled.then_some(why));
            decided = own.or(decided);
        }
        let why = "subscribes to them (AllAlpha or AllBeta)";
        decided.unwrap_or_else(|| including.then(|| why.to_owned()))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    feature_gates: Option<Gates>,
    container_runtime_endpoint: Option<String>,
    healthz_port: Option<u16>,
}

/// The values of a flag, given as `--flag=value` or as `--flag value`.
fn values<'a>(arguments: &'a [String], flag: &'a str) -> impl Iterator<Item = &'a str> {
    let next = arguments.iter().skip(1).map(Some).chain([None]);
    let all = arguments.iter().zip(next);
    all.filter_map(move |(argument, next)| match argument.strip_prefix(flag)? {
        "" => next.map(String::as_str),
        rest => rest.strip_prefix('='),
    })
}

/// The value of the first of `flags` that `arguments` contain. If they contain this flag several times, its last value.
pub(crate) fn value<'a>(arguments: &'a [String], flags: &[&'a str]) -> Option<&'a str> {
    flags.iter().find_map(|flag| values(arguments, flag).last())
}

/// Returns true if `address`, as the process `pid` sees it, leads to `socket`. `None` if that cannot be found out.
pub(crate) fn is_same(proc: &Proc, pid: u32, address: &str, socket: &Path) -> Option<bool> {
    let address = Path::new(address.strip_prefix("unix://").unwrap_or(address));
    let Some(ours) = identity(socket) else {
        return (address == socket).then_some(true);
    };
    let inside = proc.inside(pid, &address.to_string_lossy());
    let theirs = match inside.try_exists() {
        Ok(_) => identity(&inside),
        // AppArmor, or a lack of SYS_PTRACE, hides the process's root: assumes that `address` is the same file here.
        Err(_) => Some(identity(address)?),
    };
    Some(theirs == Some(ours))
}

pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests;
