"""The programs of containerd and runc: those on PATH, or else those of Debian's packages, unpacked into the cache."""

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from messages import die, say

CACHES = os.environ.get("XDG_CACHE_HOME") or f"{os.environ.get('HOME') or '/root'}/.cache"
CACHE = Path(os.environ.get("PLEG_CONTAINERD_CACHE") or f"{CACHES}/pleg-containerd")
CGROUPS = Path("/sys/fs/cgroup")
# The Debian release with this version of containerd. Both versions run on Debian 12 and later: they need no newer libc.
SUITES = {"1.7": "trixie", "2": "forky"}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
APT_CONF = """\
Dir::Etc::SourceList "{0}/debian.sources";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "{0}/state";
Dir::State::Status "{0}/status";
Dir::Cache "{0}/cache";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "";
#clear APT::Update;
"""


def output(*command):
    """The standard output of the command: nothing if there is no such program."""
    with suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, text=True).stdout
    return ""


def version_in(directory):
    """The version number of the containerd in this directory, like 1.7.24."""
    found = re.match(r"\S+ \S+ v?([0-9.]+)", output(f"{directory}/containerd", "--version"))
    return found[1] if found else ""


def on_path(version):
    """The directory of a containerd of this version on PATH, or None."""
    directory = os.path.dirname(shutil.which("containerd") or "")
    is_whole = directory and all(shutil.which(f"{directory}/{name}") for name in ("ctr", "containerd-shim-runc-v2"))
    return directory if is_whole and version_in(directory).startswith(f"{version}.") else None


def codename():
    """This machine's own release, like bookworm."""
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "")


def debian_archive():
    """The address of the Debian archive, or None if apt's sources have no component main of this machine's own release
    (not of its suites for updates and security)."""
    files = output("apt-get", "update", "--print-uris")
    found = re.search(rf"^'(.*/debian(\.list)?)/+dists/{codename()}/main/binary-", files, re.MULTILINE)
    return found and found[1]


def fetch(suite, package):
    """Downloads and unpacks the package unless it is cached, and returns its directory. apt gets its own directories
    and only this suite, so the machine's lists do not change. apt checks the archive's signature as usual: if this
    fails because Debian has newer keys than this machine, upgrade debian-archive-keyring."""
    into = CACHE / suite / package
    into.parent.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if into.is_dir():
            return into
        archive = debian_archive() or die(f"no Debian archive among apt's sources to fetch {package} from")
        say(f"fetching {package} of Debian {suite}")
        with tempfile.TemporaryDirectory(prefix="fetch.", dir=CACHE) as name:
            work = Path(name)
            for part in ("state", "cache", "deb"):
                (work / part).mkdir()
            (work / "status").touch()
            signed = f"Signed-By: {KEYRING}\n" if os.path.exists(KEYRING) else ""
            source = f"Types: deb\nTargets: Packages\nURIs: {archive}\nSuites: {suite}\nComponents: main\n{signed}"
            (work / "debian.sources").write_text(source)
            (work / "apt.conf").write_text(APT_CONF.format(work))
            for command in (["update"], ["download", package]):
                apt_get = ["apt-get", f"-c={work}/apt.conf", "-q=2", *command]
                subprocess.run(apt_get, cwd=work / "deb", stdout=sys.stderr, check=True)
            subprocess.run(["dpkg", "-x", *work.glob("deb/*.deb"), work / "tree"], check=True)
            return (work / "tree").rename(into)


def install(version):
    """Returns the directory of containerd and the path of runc. Any version of runc works, so this is the version of
    this machine's release."""
    runc = shutil.which("runc") or fetch(codename(), "runc") / "usr/sbin/runc"
    directory = on_path(version)
    if not directory:
        directory = fetch(SUITES[version], "containerd") / "usr/bin"
        is_right = version_in(directory).startswith(f"{version}.")
        is_right or die(f"the containerd of Debian {SUITES[version]} is not {version}: see {directory}")
    return directory, runc


def why_not(version):
    """Returns one sentence on what this machine lacks, or None if it can run this version of containerd."""
    has, filesystems, cached = shutil.which, Path("/proc/filesystems"), CACHE / SUITES[version] / "containerd"
    no_programs = f"There is no runc with a containerd {version} on PATH, and no Debian archive among apt's sources"
    needs = {
        "containerd runs on Linux only.": lambda: os.uname().sysname == "Linux",
        "It takes root to run containerd.": lambda: os.geteuid() == 0,
        "The program cc is missing.": lambda: has("cc"),
        "The program unshare is missing.": lambda: has("unshare"),
        "The static C library (libc.a) is missing.": lambda: "/" in output("cc", "-print-file-name=libc.a"),
        "Root may not mount here, as in an unprivileged container.": lambda: output("unshare", "-m", "echo", "yes"),
        "The kernel has no overlayfs.": lambda: "overlay" in filesystems.read_text().split()
        or output("sh", "-c", "modprobe -q overlay && echo yes"),
        f"No cgroups are mounted at {CGROUPS}.": lambda: (CGROUPS / "cgroup.controllers").exists()
        or (CGROUPS / "memory").is_dir(),
        f"{no_programs} to fetch them from.": lambda: (has("runc") and (on_path(version) or cached.is_dir()))
        or (has("apt-get") and has("dpkg") and debian_archive()),
    }
    return next((why for why, is_met in needs.items() if not is_met()), None)
