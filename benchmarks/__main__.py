"""All benchmarks, one after the other, each in a process of its own. The slow ones only when named.

python -m benchmarks [NAME ...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

QUICK = {
    "attention": [],
    "express": [],
    "halving": ["speed"],
    "prefill": [],
    "decode": [],
    "batching": [],
    "store": [],
}
SLOW = {
    "express_long": ["express", "--lengths", "32768,131072"],
    "express_growth": ["express", "--growth", "--lengths", "65536,131072,262144,524288"],
    "express_half_million": [
        "express",
        "--heads",
        "2,2",
        "--rounds",
        "1",
        "--lengths",
        "65536,131072,524288",
    ],
    "error": ["halving", "error"],
    "long_document": ["long_document"],
    "first_token": ["first_token"],
    "question": ["question"],
    "scale_out": ["scale_out"],
}  # minutes each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join([*QUICK, *SLOW]))
    names = parser.parse_args().names or list(QUICK)
    commands = {name: [name, *arguments] for name, arguments in QUICK.items()} | SLOW
    if unknown := [name for name in names if name not in commands]:
        parser.error(f"no benchmark is called {unknown[0]}; there are {', '.join(commands)}")
    failed = [name for name in names if run(name, commands[name])]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def run(name: str, command: list[str]) -> int:
    """Runs one benchmark; its exit status."""
    print(f"\n== {name}", flush=True)
    # Machines set these for old libraries; they slow a current numpy down.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OPENBLAS_")}
    module, *arguments = command
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments], env=environment, check=False
    ).returncode


if __name__ == "__main__":
    main()
