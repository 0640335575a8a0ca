"""Program that replaces itself by a command, which Linux kills as soon as its parent process has ended.

    python -I -S with_parent.py PID COMMAND ...

PID is the parent process. A hook between fork and exec would do the same, but is unsafe in a process with threads, such
as one that has imported jax. This program imports nothing of the package, so that it starts in milliseconds.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # from linux/prctl.h; the setting survives exec


def main() -> None:
    """Becomes the command, unless the parent has ended already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() == int(sys.argv[1]):
        os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
