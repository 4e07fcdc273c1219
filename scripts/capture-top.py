#!/usr/bin/env python3
"""Runs `pleg top` on a simulated node with a hung pod, and copies its screen into README.md. Needs tmux."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- just capture -->\n```text\n).*?(```\n<!-- end -->)", re.DOTALL)
SOCKET = "/tmp/cri.sock"
# In a terminal with fewer lines, `pleg top` shortens its header.
WIDTH, HEIGHT = 100, 20
SECONDS = 60


def main() -> None:
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    pleg = target / "debug" / "pleg"
    if os.path.exists(SOCKET):
        sys.exit(f"{SOCKET} exists; is a simulated runtime running?")
    with tempfile.TemporaryDirectory() as directory:
        screen = capture(str(pleg), directory)
    text, blocks = BLOCK.subn(lambda found: found[1] + screen + found[2], README.read_text())
    if blocks != 1:
        sys.exit("README.md has no place for the capture")
    README.write_text(text)


def capture(pleg: str, directory: str) -> str:
    """The screen of `pleg top` while a pod hangs."""
    endpoint = f"unix://{SOCKET}"
    sim = subprocess.Popen([pleg, "sim", "--socket", SOCKET], stderr=subprocess.DEVNULL)
    tmux = ["tmux", "-u", "-S", f"{directory}/tmux"]

    def shown() -> str:
        command = [*tmux, "capture-pane", "-p"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def ctl(*command: str) -> None:
        command = [pleg, "sim", "ctl", "--socket", SOCKET, *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    try:
        wait("the runtime", lambda: os.path.exists(SOCKET))
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        top = [pleg, "top", "-r", endpoint]
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        new = [*tmux, "-f", "/dev/null", "new-session", "-d", *size, *top]
        subprocess.run(new, check=True, env=environment)
        wait("five pods", lambda: len(re.findall(r"^. demo/", shown(), re.MULTILINE)) >= 5)
        uid, container = running(pleg, endpoint)
        ctl(f"pod.{uid}.hang=on")
        ctl("exit", container, "3")
        wait("a hung pod", lambda: re.search(r"Hung \d+s", shown()) and "pods_hung" in shown())
        lines = [line.rstrip() for line in shown().rstrip().splitlines()]
        return "\n".join(lines) + "\n"
    finally:
        subprocess.run([*tmux, "kill-server"], stderr=subprocess.DEVNULL, check=False)
        sim.terminate()
        sim.wait()


def running(pleg: str, endpoint: str) -> tuple[str, str]:
    """A pod with two containers, and one of its running containers."""
    command = [pleg, "pods", "-o", "json", "-r", endpoint]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for pod in map(json.loads, lines.splitlines()):
        ids = [c["id"] for c in pod["containers"] if c["state"] == "Running"]
        if len(ids) >= 2:
            return pod["pod"]["uid"], ids[0]
    sys.exit("no pod has two containers")


def wait(what: str, until) -> None:
    for _ in range(SECONDS * 10):
        if until():
            return
        time.sleep(0.1)
    sys.exit(f"waited for {what} in vain")


if __name__ == "__main__":
    main()
