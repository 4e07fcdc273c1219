//! Finds the kubelet of this node, and whether it subscribes to the runtime's events (its feature gate
//! EventedPLEG), from its process and its configuration files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::bounded;
use crate::proc::{Belongs, Proc, Process};

/// The configuration file of kubeadm, in case the kubelet's command line names none.
const DEFAULT_CONFIG: &str = "/var/lib/kubelet/config.yaml";

/// Where a kubelet serves its health by default.
const HEALTHZ_PORT: u16 = 10248;

/// Programs that contain a kubelet. It has no command line of its own.
const EMBEDDING: [&str; 4] = ["k3s", "k3s-server", "k3s-agent", "kubelite"];
/// Programs that are a kubelet.
const KUBELET: [&str; 2] = ["kubelet", "hyperkube"];

/// Why a kubelet on this node may subscribe to the runtime's events, if one may. Checks the processes below `root`,
/// which is `/` except in tests. A kubelet that uses another socket than `socket` does not count; `None`: the
/// socket is not known.
pub(crate) fn find_subscriber(root: &Path, socket: Option<&Path>) -> Option<String> {
    let proc = Proc::below(root);
    let Ok(processes) = proc.processes() else {
        return unknown(format!("{} cannot be read", proc.path("").display()));
    };
    let kubelets = among(&proc, processes.values());
    let mut found = false;
    for kubelet in kubelets {
        let pid = kubelet.pid;
        if let Some(name) = &kubelet.embedded_in {
            return unknown(format!("{name} (pid {pid}) contains a kubelet"));
        }
        found = true;
        if socket.is_some_and(|socket| kubelet.is_other(socket) == Some(true)) {
            continue;
        }
        let args = kubelet.args();
        if let Some(why) = subscribes(&kubelet.directory, &args) {
            return Some(format!("the kubelet (pid {pid}) {why}"));
        }
    }
    if found || proc.shows_host() {
        None
    } else {
        unknown("the processes of the host are not visible from here".to_owned())
    }
}

/// A process that is or contains a kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KubeletProcess {
    pub(crate) pid: u32,
    /// Where it serves its health; 0: nowhere.
    pub(crate) healthz_port: u16,
    /// Its runtime, if that is not the one that serves the socket.
    pub(crate) other_runtime: Option<String>,
    /// The file of its flag `--log-file`.
    pub(crate) log_file: Option<PathBuf>,
}

/// The kubelet of this node, of these processes: one that uses the socket, or else another one.
pub(crate) fn find_process(
    proc: &Proc,
    processes: &BTreeMap<u32, Process>,
    socket: Option<&Path>,
) -> Option<KubeletProcess> {
    let kubelets = among(proc, processes.values()).map(|kubelet| {
        let other = socket.filter(|_| kubelet.embedded_in.is_none());
        let other = other.filter(|socket| kubelet.is_other(socket) != Some(false));
        let endpoint = other.and_then(|_| kubelet.endpoint());
        (kubelet, endpoint)
    });
    // Those that use the socket have no other runtime, which sorts first.
    let (kubelet, other_runtime) = kubelets.min_by_key(|(_, other)| other.is_some())?;
    let (directory, args) = (&kubelet.directory, kubelet.args());
    let flag = values(&args, "--healthz-port").last();
    let port = flag.and_then(|port| port.parse().ok());
    let port = port.or_else(|| configured(directory, &args, |c| c.healthz_port));
    let log_file = values(&args, "--log-file").last();
    Some(KubeletProcess {
        pid: kubelet.pid,
        healthz_port: port.unwrap_or(HEALTHZ_PORT),
        other_runtime,
        log_file: log_file.map(|path| here(directory, Path::new(path))),
    })
}

struct Found {
    pid: u32,
    /// Its directory in /proc.
    directory: PathBuf,
    line: String,
    /// The name of the program that contains it.
    embedded_in: Option<String>,
}

impl Found {
    fn args(&self) -> Vec<&str> {
        self.line.split('\0').collect()
    }

    /// The endpoint of its runtime, if it is set.
    fn endpoint(&self) -> Option<String> {
        let args = self.args();
        let flag = values(&args, "--container-runtime-endpoint").last();
        flag.map(str::to_owned)
            .or_else(|| configured(&self.directory, &args, Configuration::endpoint))
    }

    /// Whether its runtime serves another socket. `None`: it names one that does not exist, so that cannot be told.
    fn is_other(&self, socket: &Path) -> Option<bool> {
        let Some(endpoint) = self.endpoint() else {
            return Some(false);
        };
        let path = endpoint.strip_prefix("unix://").unwrap_or(&endpoint);
        let identity = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino()));
        match (
            identity(&here(&self.directory, Path::new(path))),
            identity(socket),
        ) {
            (Ok(theirs), Ok(ours)) => Some(theirs != ours),
            (Err(_), Ok(_)) => None,
            (_, Err(_)) => Some(false),
        }
    }
}

/// The processes of the system that are or contain a kubelet. Those of pods and of other users do not count, whatever
/// they are called: what they name would be read as root.
fn among<'a>(
    proc: &'a Proc,
    processes: impl Iterator<Item = &'a Process>,
) -> impl Iterator<Item = Found> {
    let named = processes.filter(|process| {
        let name = process.name.as_str();
        KUBELET.contains(&name) || EMBEDDING.contains(&name)
    });
    let of_system = named.filter(|p| proc.belongs(p.pid) == Some(Belongs::System));
    of_system.filter_map(|process| {
        let pid = process.pid;
        // A process that has just ended has no command line.
        let line = proc.read(&format!("{pid}/cmdline")).ok()?;
        let args: Vec<&str> = line.split('\0').collect();
        let embedded_in = match program(&args) {
            Program::Kubelet => None,
            Program::Embedding(name) => Some(name.to_owned()),
            Program::Other => return None,
        };
        Some(Found {
            pid,
            directory: proc.path(&pid.to_string()),
            line,
            embedded_in,
        })
    })
}

fn unknown(why: String) -> Option<String> {
    Some(format!("a kubelet may use them: {why}"))
}

enum Program<'a> {
    Kubelet,
    Embedding(&'a str),
    Other,
}

fn program<'a>(args: &[&'a str]) -> Program<'a> {
    let [first, rest @ ..] = args else {
        return Program::Other;
    };
    // A program that sets its own title has one argument with spaces in it.
    let path = first.split(' ').next().unwrap_or(first);
    let name = path.rsplit('/').next().unwrap_or(path);
    match (name, rest.first()) {
        ("kubelet", _) | ("hyperkube", Some(&"kubelet")) => Program::Kubelet,
        (name, _) if EMBEDDING.contains(&name) => Program::Embedding(name),
        _ => Program::Other,
    }
}

/// The runtime endpoint that the kubelet of this node is given, and the kubelet's pid.
pub(crate) fn runtime_endpoint(root: &Path) -> Option<(u32, String)> {
    let proc = Proc::below(root);
    let processes = proc.processes().ok()?;
    let mut given = among(&proc, processes.values());
    given.find_map(|kubelet| Some((kubelet.pid, kubelet.endpoint()?)))
}

/// A value in the kubelet's configuration files, if all of them can be read. The last one counts.
fn configured<T>(
    process: &Path,
    args: &[&str],
    value: impl Fn(Configuration) -> Option<T>,
) -> Option<T> {
    let files = config_files(process, args).into_iter();
    let read = files.map(|(_, file)| Configuration::read(&file)).collect();
    let all: Result<Vec<Configuration>, _> = read;
    all.ok()?.into_iter().filter_map(value).next_back()
}

/// A path of the process, from here.
fn here(process: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix("/") {
        Ok(path) => process.join("root").join(path),
        Err(_) => process.join("cwd").join(path),
    }
}

/// Why the kubelet of this process subscribes or may subscribe. Flags override the files in
/// `--config-dir`, which override the file `--config`.
fn subscribes(process: &Path, args: &[&str]) -> Option<String> {
    let mut flags = Gates::default();
    for list in values(args, "--feature-gates") {
        for gate in list.split(',') {
            let (name, value) = gate.split_once('=').unwrap_or((gate, "true"));
            flags.set(name.trim(), !is_false(value.trim()));
        }
    }
    if let Some(enabled) = flags.evented {
        return enabled.then(|| "subscribes to them (--feature-gates=EventedPLEG=true)".to_owned());
    }
    let mut all = flags.all;
    let mut decided = None;
    for (shown, file) in config_files(process, args) {
        let gates = match Configuration::read(&file) {
            Ok(configuration) => configuration.gates(),
            Err(why) => return Some(format!("may subscribe to them: {} {why}", shown.display())),
        };
        all |= gates.all;
        decided = gates.evented.map(|enabled| (enabled, shown)).or(decided);
    }
    match decided {
        Some((true, file)) => Some(format!(
            "subscribes to them (EventedPLEG in {})",
            file.display()
        )),
        None if all => Some("subscribes to them (AllAlpha or AllBeta)".to_owned()),
        _ => None,
    }
}

/// The values of a flag, given as `--flag=value` or as `--flag value`.
pub(crate) fn values<'a>(args: &'a [&'a str], flag: &'a str) -> impl Iterator<Item = &'a str> {
    args.iter().enumerate().filter_map(move |(n, arg)| {
        match arg.strip_prefix(flag)?.strip_prefix('=') {
            Some(value) => Some(value),
            None if *arg == flag => args.get(n + 1).copied(),
            None => None,
        }
    })
}

/// The kubelet's configuration files: how the kubelet names them, and where they are from here.
fn config_files(process: &Path, args: &[&str]) -> Vec<(PathBuf, PathBuf)> {
    let here = |path: &Path| here(process, path);
    let mut files = Vec::new();
    match values(args, "--config").last() {
        Some(path) => files.push(PathBuf::from(path)),
        None if here(Path::new(DEFAULT_CONFIG)).exists() => files.push(DEFAULT_CONFIG.into()),
        None => {}
    }
    if let Some(dir) = values(args, "--config-dir").last().map(Path::new) {
        match fs::read_dir(here(dir)) {
            Ok(entries) => {
                let names = entries.flatten().map(|entry| dir.join(entry.file_name()));
                let mut names: Vec<_> = names
                    .filter(|path| path.extension().is_some_and(|e| e == "conf"))
                    .collect();
                names.sort();
                files.extend(names);
            }
            // It is reported as a file that cannot be read.
            Err(_) => files.push(dir.to_owned()),
        }
    }
    files
        .into_iter()
        .map(|path| (path.clone(), here(&path)))
        .collect()
}

#[derive(Default)]
struct Gates {
    evented: Option<bool>,
    /// AllAlpha or AllBeta, which include it.
    all: bool,
}

impl Gates {
    fn set(&mut self, name: &str, enabled: bool) {
        match name {
            "EventedPLEG" => self.evented = Some(enabled),
            "AllAlpha" | "AllBeta" => self.all |= enabled,
            _ => {}
        }
    }
}

/// The spellings of false that the kubelet knows.
fn is_false(value: &str) -> bool {
    matches!(value, "false" | "False" | "FALSE" | "f" | "F" | "0")
}

/// The part of a kubelet's configuration that is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    feature_gates: Option<BTreeMap<String, bool>>,
    container_runtime_endpoint: Option<String>,
    healthz_port: Option<u16>,
}

impl Configuration {
    fn read(file: &Path) -> Result<Self, &'static str> {
        let text = bounded::read(file).map_err(|_| "cannot be read")?;
        serde_saphyr::from_str(&text).map_err(|_| "cannot be parsed")
    }

    fn endpoint(self) -> Option<String> {
        self.container_runtime_endpoint.filter(|e| !e.is_empty())
    }

    fn gates(self) -> Gates {
        let mut gates = Gates::default();
        for (name, enabled) in self.feature_gates.unwrap_or_default() {
            gates.set(&name, enabled);
        }
        gates
    }
}

#[cfg(test)]
mod tests;
