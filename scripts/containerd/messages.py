"""Messages to the user, on standard error."""

import sys


def say(message):
    print(f"containerd.sh: {message}", file=sys.stderr)


def die(message):
    say(message)
    sys.exit(1)
