"""Starts a program that dies with its parent, even when the parent is killed with SIGKILL.

    python guard.py SIGNAL PARENT_PID PROGRAM [ARGUMENT...]

Asks the kernel to send SIGNAL to this process when its parent ends, then becomes PROGRAM: the request
survives exec, and no process is left in between. Run by its path with `-S`, it starts in some 20 ms and
imports nothing of ours. Only Linux knows the request; elsewhere the program is started without it.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Does not return: this process becomes the program, or ends with status 127."""
    signal_number, parent, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
        if os.getppid() != int(parent):  # it ended before the request was made
            sys.exit(0)
    try:
        os.execvp(command[0], command)  # noqa: S606 - a shell is not wanted
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
