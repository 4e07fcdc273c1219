"""A private containerd for the whole-system tests. All of its files are in one directory; `down` removes them.

  containerd.sh up [--version 1.7|2] DIR         start a daemon in an empty or missing DIR; prints KEY=VALUE lines
                                                 ENDPOINT, VERSION, PID, IMAGE, CGROUP, LOG, DIR
  containerd.sh down DIR                         remove the daemon, its pods, shims, mounts, cgroups and DIR
  containerd.sh kill DIR                         kill -9 the daemon only; pods and shims go on
  containerd.sh start DIR                        start a killed daemon again over the same state; prints as `up` does
  containerd.sh stop-signal SIGSTOP|SIGCONT DIR  stop the daemon, or continue it
  containerd.sh import ARCHIVE IMAGE DIR         import one more image, from an OCI archive
  containerd.sh tasks DIR                        print the ids of the daemon's tasks, one per line
  containerd.sh install [--version 1.7|2]        only download missing binaries; prints their directory
  containerd.sh can [--version 1.7|2]            exit 0 if this machine can run this version, else 3 and print why not

The default version is 2. Any number of daemons may run at the same time, each in its directory. All commands except
`install` and `can` need root.

Notes for tests:
  * IMAGE is the only image: sandbox image of the pods, and one program for their containers (scripts/containerd/app.c):
    /app pause [CODE], /app exit CODE [MILLISECONDS], /app ignore-term. Its entrypoint is /app, its default argument `pause`.
  * Pods must be on the host network (linux.security_context.namespace_options.network = NODE): there is no CNI.
  * Pods should have CGROUP as linux.cgroup_parent; nobody else uses it, and `down` removes everything below it.
  * DIR/containerd.pid contains the daemon's pid, to which tests may send signals. LOG is DIR/containerd.log.
  * If `up` fails, it prints the end of the log and removes everything.
  * The daemon gets the caller's environment. For example, ENABLE_CRI_SANDBOXES=1 makes 1.7 use its newer CRI server.

Binaries: if PATH has a containerd of the requested version (with ctr and containerd-shim-runc-v2), this script uses
it. If not, it downloads Debian's package from the archive of this machine's apt, and unpacks it, without installing
it, into the cache: $PLEG_CONTAINERD_CACHE, by default ${XDG_CACHE_HOME:-~/.cache}/pleg-containerd. The same for runc.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from binaries import CACHE, SUITES, install, version_in, why_not
from daemon import IMAGE, Daemon, within
from messages import die
from removal import take_down


def up(version, path):
    import image  # Only here, because this import is slow.
    why = why_not(version)
    (path and not why) or die(why or "which directory?")
    programs, runc = install(version)
    directory = os.path.realpath(path)
    # Both paths are written into configuration files, and `directory` also appears in lists of mounts. So neither may
    # contain characters that these files and lists would escape.
    is_plain = re.fullmatch("[A-Za-z0-9/._@+-]+", f"{directory}{CACHE}")
    is_plain or die(f"no strange characters in paths, please: {directory}, {CACHE}")
    longest = f"{directory}/run/containerd.sock.ttrpc"
    len(longest) <= 107 or die(f"the path of a unix socket has at most 107 bytes, so DIR is too long: {longest}")
    os.makedirs(directory, exist_ok=True)
    daemon = Daemon(directory)
    if daemon.pid():
        die(f"a containerd runs in {directory} already")
    if daemon.settings.exists():
        die(f"an earlier containerd's state is in {directory}: start it again, or take it down first")
    try:
        daemon.settings.write_text(f"BIN={programs}\nVERSION={version_in(programs)}\n")
        (daemon.dir / "run").mkdir()
        daemon.write_config(version, runc)
        daemon.start() or die("containerd does not answer")
        source, app, archive = Path(__file__).with_name("app.c"), daemon.dir / "app", daemon.dir / "image.tar"
        subprocess.run(["cc", "-static", "-Os", "-s", "-Wall", "-Wextra", "-o", app, source], check=True)
        settings = {"Entrypoint": ["/app"], "Cmd": ["pause"], "WorkingDir": "/"}
        image.write(archive, IMAGE, [("app", app.read_bytes(), 0o755)], settings)
        daemon.import_image(archive, IMAGE)
    except BaseException:
        if daemon.log.exists():
            daemon.print_log_end()
        with suppress(SystemExit):
            take_down(daemon)
        raise
    daemon.report()


def enter(path):
    """The daemon of this directory, which `up` has made."""
    path or die("which directory?")
    os.path.isdir(path) or die(f"there is no directory {path}")
    daemon = Daemon(path)
    daemon.settings.exists() or die(f"there was never an up in {path}")
    return daemon


def running(path):
    """The daemon of this directory, and its pid."""
    daemon = enter(path)
    return daemon, daemon.pid() or die(f"no containerd runs in {daemon.dir}")


def run(version, command="", first="", second="", third="", *_):
    match command:
        case "up":
            up(version, first)
        case "down":
            first or die("which directory?")
            if os.path.isdir(first):
                take_down(Daemon(first))
        case "kill":
            daemon, pid = running(first)
            os.kill(pid, signal.SIGKILL)
            within(10, lambda: not daemon.pid()) or die(f"containerd ({pid}) does not die")
        case "start":
            daemon = enter(first)
            if daemon.pid():
                die(f"a containerd runs in {daemon.dir} already")
            if not daemon.start():
                daemon.print_log_end()
                die("containerd does not answer")
            daemon.report()
        case "stop-signal":
            first in ("SIGSTOP", "SIGCONT") or die("the signal is SIGSTOP or SIGCONT")
            os.kill(running(second)[1], signal.Signals[first])
        case "import":
            enter(third).import_image(first, second)
        case "tasks":
            enter(first).ctr("tasks", "ls", "--quiet", check=True)
        case "install":
            print(install(version)[0])
        case "can":
            why = why_not(version)
            if why:
                print(why)
                sys.exit(3)
        case _:
            print(__doc__, end="", file=sys.stderr)
            sys.exit(2)


def main(words):
    """--version is the only option; all other words are arguments."""
    version, arguments = "2", []
    for word in words:
        if word == "--version":
            version = next(words, "")
        elif word.startswith("--version="):
            version = word.removeprefix("--version=")
        elif word in ("-h", "--help", "help"):
            print(__doc__, end="")
            return
        else:
            arguments.append(word)
    version in SUITES or die(f"no version '{version}' here: it is {' or '.join(SUITES)}")
    run(version, *arguments)


if __name__ == "__main__":
    # With these handlers, a signal also makes `up` remove its daemon. A signal that the caller ignores stays ignored.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        main(iter(sys.argv[1:]))
    except subprocess.CalledProcessError as error:  # The failed program has printed why.
        sys.exit(error.returncode if error.returncode > 0 else 128 - error.returncode)
    except OSError as error:
        die(error)
