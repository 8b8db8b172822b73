"""`python -m kernel_worker`: a worker with the settings of the environment."""

import os
import sys

from kernel_worker.server import CUT_OFF, main

if __name__ == "__main__":
    code = main()
    if code == CUT_OFF:
        # Threads still compute; waiting for them is what was just given up.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
