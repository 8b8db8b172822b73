"""How much memory this process may count on."""

import os
from pathlib import Path

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def memory_bytes() -> int:
    """Physical memory, or the control group's limit where that is lower (in a container), in bytes."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(physical, int(CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return physical
