#!/bin/sh
# Runs private containerds for the whole-system tests. `containerd.sh help` prints the commands.
#
# The python3 on PATH can be the wrapper script of a version manager such as pyenv. The wrapper takes 0.15 s, and changes
# the environment that the daemon gets.
python=/usr/bin/python3
[ -x "$python" ] || python=$(command -v python3) || {
    echo "The program python3 is missing."
    exit 3
}
exec "$python" "$(dirname -- "$0")/containerd/main.py" "$@"
