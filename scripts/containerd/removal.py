"""The removal of a daemon and of all that it leaves: pods, processes, sockets, mounts, cgroups and its directory."""

import hashlib
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import cri
from binaries import CGROUPS
from daemon import within
from messages import die, say


def ids_of(daemon):
    """The ids of all pods and containers that containerd runs or its CRI service knows. Such an id is practically
    unique on the machine. Other names are left out, because all processes in the cgroup of an id are killed."""
    tasks = daemon.dir.glob("state/io.containerd.runtime.v2.task/k8s.io/*")
    known = daemon.dir.glob("root/io.containerd.grpc.v1.cri/*/*")
    return {path.name for path in (*tasks, *known) if re.fullmatch("[0-9a-f]{64}", path.name)}


def helpers(daemon):
    """The pids of the daemon, its shims, their runc processes, and processes that an interrupted `up` may have left."""
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            is_helper = re.search(rb"(^|/)(containerd(-shim[^/]*)?|runc|ctr)$", words[0])
            if is_helper and os.fsencode(f" {daemon.dir}/") in b" " + b" ".join(words):
                pids.append(pid)
    return pids


def own_cgroups(daemon, ids):
    """The cgroups of these ids, and all below the parent cgroup of this daemon; deepest first."""
    paths = [path for path, _, _ in os.walk(CGROUPS, topdown=False)]
    return [path for path in paths if os.path.basename(path) in ids or f"{daemon.cgroup}/" in f"{path}/"]


def send(pid, number):
    with suppress(ProcessLookupError):
        os.kill(int(pid), number)


def kill_rest(daemon, ids):
    """Kills all helpers and all processes in the daemon's cgroups. Returns True if it found none."""
    pids = helpers(daemon)
    for group in own_cgroups(daemon, ids):
        with suppress(OSError):
            # Processes of another pid namespace are listed as 0.
            pids += {*Path(group, "cgroup.procs").read_text().split()} - {"0"}
    for pid in pids:
        send(pid, signal.SIGKILL)
    return not pids


def mounts(daemon):
    """Lists mounts below the directory: the latest, and so the innermost, comes first."""
    lines = reversed(Path("/proc/self/mountinfo").read_text(errors="replace").splitlines())
    return [point for line in lines if (point := line.split()[4]).startswith(f"{daemon.dir}/")]


def unmount_all(daemon):
    for point in mounts(daemon):
        if subprocess.run(["umount", "--", point], stderr=subprocess.DEVNULL).returncode != 0:
            subprocess.run(["umount", "--lazy", "--", point])
    return not mounts(daemon)


def remove_cgroups(daemon, ids):
    for group in own_cgroups(daemon, ids):
        with suppress(OSError):
            os.rmdir(group)
    return not own_cgroups(daemon, ids)


def remove_pods(daemon):
    """Removes the pods through the CRI. For that, continues stopped processes, and starts a dead daemon."""
    for pid in helpers(daemon):
        send(pid, signal.SIGCONT)
    daemon.pid() or daemon.start()
    try:
        subprocess.run([sys.executable, cri.__file__, daemon.socket, "remove-pods"], timeout=60, check=True)
    except subprocess.SubprocessError:
        say("not all pods went through the CRI; killing the rest")


def take_down(daemon):
    # Without settings, `up` has written nothing to this directory.
    if not daemon.settings.exists():
        return daemon.dir.rmdir()
    ids = ids_of(daemon)
    if ids:
        remove_pods(daemon)
    pid = daemon.pid()
    if pid:
        send(pid, signal.SIGTERM)
        send(pid, signal.SIGCONT)
        within(5, lambda: not daemon.pid()) or send(pid, signal.SIGKILL)
    within(10, lambda: not daemon.pid()) or die(f"containerd ({pid}) does not die")

    # Remove what is left without the CRI.
    is_dead = within(10, lambda: kill_rest(daemon, ids))
    is_dead or die(f"processes of {daemon.dir} do not die: {' '.join(helpers(daemon))}")
    # All containerds of a machine have the sockets of their shims in one directory outside of their own. The name of a
    # socket is a hash of the daemon's socket, the namespace and the pod's id.
    for id in ids:
        name = hashlib.sha256(f"{daemon.socket}/k8s.io/{id}".encode()).hexdigest()
        Path("/run/containerd/s", name).unlink(missing_ok=True)
    within(5, lambda: unmount_all(daemon)) or die(f"still mounted: {' '.join(mounts(daemon))}")
    within(5, lambda: remove_cgroups(daemon, ids)) or die(f"cgroups left: {' '.join(own_cgroups(daemon, ids))}")
    # Remove the cgroup of pods that name no parent cgroup. rmdir fails if another containerd has pods in this cgroup.
    for group in (*CGROUPS.glob("k8s.io"), *CGROUPS.glob("*/k8s.io")):
        with suppress(OSError):
            group.rmdir()
    subprocess.run(["rm", "-rf", "--one-file-system", "--", daemon.dir], check=True)
