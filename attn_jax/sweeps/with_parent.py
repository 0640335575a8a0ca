"""Program that becomes another one, which Linux then kills as soon as the process that started it has ended.

    python -I -S with_parent.py PID COMMAND ...

PID is the process that starts it. A hook between fork and exec would do the same, but is unsafe in a process with
threads, such as one that has imported jax. It imports nothing of this package, so that it takes milliseconds.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # from linux/prctl.h; the setting survives exec


def main() -> None:
    """Becomes the command, unless the parent is gone already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() == int(sys.argv[1]):
        os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
