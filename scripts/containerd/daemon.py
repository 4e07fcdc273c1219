"""A containerd, and the directory that contains all of its files."""

import collections
import contextlib
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import cri
from messages import die, say

IMAGE = "localhost/pleg-test:1"

# By version: the format of the configuration, and the names of the settings of the CRI service and its sandbox image.
FORMATS = {
    "1.7": (2, 'plugins."io.containerd.grpc.v1.cri"', 'plugins."io.containerd.grpc.v1.cri".sandbox_image'),
    "2": (3, 'plugins."io.containerd.cri.v1.runtime"', 'plugins."io.containerd.cri.v1.images".pinned_images.sandbox'),
}
# What all containerds of a machine share by default (its and runc's state, /opt/containerd, CNI's configuration, NRI's
# socket) is moved into the directory or turned off.
CONFIG = """\
version = {format}
root = "{dir}/root"
state = "{dir}/state"
grpc.address = "{socket}"
plugins."io.containerd.internal.v1.opt".path = "{dir}/opt"
plugins."io.containerd.nri.v1.nri".disable = true
{sandbox} = "{image}"
{cri}.restrict_oom_score_adj = true
{cri}.disable_apparmor = true
{cri}.netns_mounts_under_state_dir = true
{cri}.cni.conf_dir = "{dir}/cni/net.d"
{cri}.containerd.runtimes.runc.runtime_type = "io.containerd.runc.v2"
{cri}.containerd.runtimes.runc.options.BinaryName = "{runc}"
{cri}.containerd.runtimes.runc.options.Root = "{dir}/state/runc"
# The time limit for a shim's answer, 2 s by default. If a shim on a busy machine answers later, containerd assumes that
# the shim has no process, creates the pod's next container with the namespaces of process 0, and can never start it.
timeouts."io.containerd.timeout.task.state" = "60s"
"""


def within(seconds, succeeds):
    """Repeats the function until it returns True; returns False if it has not done so after this time."""
    deadline = time.monotonic() + seconds
    while not (has_succeeded := succeeds()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return has_succeeded


class Daemon:
    """The daemon of an existing directory. The file `settings` shows that `up` made the directory."""

    def __init__(self, directory):
        self.dir = Path(directory).resolve()
        self.socket = f"{self.dir}/run/containerd.sock"
        names = ("settings", "config.toml", "containerd.log")
        self.settings, self.config, self.log = (self.dir / name for name in names)
        # The parent of the cgroups of this daemon's pods.
        self.cgroup = f"/pleg-{hashlib.sha256(os.fsencode(self.dir)).hexdigest()[:12]}"
        if not self.settings.exists() and any(self.dir.iterdir()):
            die(f"{self.dir} is not of this script's making")

    def setting(self, key):
        return dict(line.split("=", 1) for line in self.settings.read_text().splitlines()).get(key, "")

    def pid(self):
        """The daemon's pid, or None if it does not run. (Another process may have the pid of a dead daemon.)"""
        try:
            pid = int((self.dir / "containerd.pid").read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if os.fsencode(self.config) in words else None

    def write_config(self, version, runc):
        names = dict(zip(("format", "cri", "sandbox"), FORMATS[version]))
        self.config.write_text(CONFIG.format(dir=self.dir, socket=self.socket, runc=runc, image=IMAGE, **names))

    def ctr(self, *arguments, **options):
        command = [f"{self.setting('BIN')}/ctr", "--address", self.socket, "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, **options)

    def answers(self):
        with contextlib.suppress(cri.CallFailed):
            cri.pods(self.socket)
            return self.ctr("version", capture_output=True).returncode == 0
        return False

    def start(self):
        """Starts the daemon, detached from the caller (in a new session, without the caller's open files), and waits
        for it. Returns True if it answers."""
        binaries = self.setting("BIN")
        environment = {**os.environ, "PATH": f"{binaries}:{os.environ.get('PATH', os.defpath)}"}
        environment.pop("NOTIFY_SOCKET", None)
        with self.log.open("ab") as log:
            command = [f"{binaries}/containerd", "--config", self.config]
            files = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            process = subprocess.Popen(command, cwd="/", env=environment, start_new_session=True, **files)
        (self.dir / "containerd.pid").write_text(f"{process.pid}\n")
        # On a loaded machine, containerd connects to the shims of its earlier life for longer than half a minute.
        return within(90, lambda: process.poll() is not None or self.answers()) and self.answers()

    def print_log_end(self):
        say(f"the end of {self.log}:")
        with self.log.open(errors="replace") as log:
            sys.stderr.writelines(collections.deque(log, 30))

    def report(self):
        print(f"ENDPOINT=unix://{self.socket}\nVERSION={self.setting('VERSION')}\nPID={self.pid() or ''}")
        print(f"IMAGE={IMAGE}\nCGROUP={self.cgroup}\nLOG={self.log}\nDIR={self.dir}")

    def import_image(self, archive, reference):
        self.ctr("images", "import", archive, stdout=subprocess.DEVNULL, check=True)
        # The CRI service learns of the new image a little later, from an event of containerd.
        is_known = within(10, lambda: cri.succeeds(self.socket, "image", reference))
        is_known or die(f"the CRI service does not know the image {reference}")
