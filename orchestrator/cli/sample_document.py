"""A long document that is on every machine: the Python language reference inside `pydoc_data.topics`.

python -m orchestrator.cli.sample_document --output FILE [--all]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from pydoc_data.topics import topics

# At least 20,000 tokens. This process has no tokenizer; for the embedded model's, a token of this text was
# measured to be 4.11 characters (113,108 tokens in all), so this is some 21,000 of them.
PART_CHARACTERS = 86_000


def sample_document(*, whole: bool) -> str:
    """The whole reference, or its first part, cut at the end of a paragraph."""
    text = "\n\n".join(body.strip() for body in topics.values()) + "\n"
    return text if whole else text[: text.index("\n\n", PART_CHARACTERS)] + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--all", action="store_true", help="all of it, over 100,000 tokens")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(sample_document(whole=arguments.all), encoding="utf-8")


if __name__ == "__main__":
    main()
