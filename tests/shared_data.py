"""The folder of shared documents: DOCEXPRESS_DATA, or ../shared/data beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(os.environ.get("DOCEXPRESS_DATA") or Path(__file__).parents[2] / "shared" / "data")
INPUTS = DATA / "inputs"
EXPECTATIONS = INPUTS / "EXPECT.json"
ABSENT = f"the shared documents are not in {DATA} (set DOCEXPRESS_DATA)"
