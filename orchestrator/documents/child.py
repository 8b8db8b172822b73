"""`python -m orchestrator.documents.child KIND LIMITS < document > text`: the process that parses a document.

The parser is loaded first, then the process gives up the network, other programs, writing files, and more
time and memory than the limits allow; only then it looks at the document.
"""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Callable
from typing import Any

from orchestrator.documents import sandbox
from orchestrator.documents.errors import Unreadable
from orchestrator.documents.limits import ReadingLimits

Reader = Callable[[bytes, ReadingLimits], str]
_FORBIDDEN = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "urllib.")


def main(kind: str, limits: ReadingLimits) -> int:
    """Reads standard input, writes text or a sentence; the exit code says which (`sandbox`)."""
    read = reader_of(kind)
    give_up_powers(limits)
    try:
        text = _within(read(sys.stdin.buffer.read(), limits), limits)
    except Unreadable as error:
        return _say(str(error).encode(), sandbox.REFUSED)
    except MemoryError:
        return sandbox.NO_MEMORY
    except Exception as error:  # whatever a parser makes of a broken file
        print(type(error).__name__, file=sys.stderr)
        return sandbox.BROKEN
    return _say(text, sandbox.READ)


def reader_of(kind: str) -> Reader:
    """The function that reads documents of a kind, its libraries loaded."""
    match kind:
        case "pdf":
            from orchestrator.documents import pdf

            return pdf.read
        case "zip":
            from orchestrator.documents import word

            return word.read
        case "html":
            from orchestrator.documents import web

            return web.read
    raise ValueError(f"no reader for {kind!r}")


def give_up_powers(limits: ReadingLimits) -> None:
    """Cannot be taken back."""
    seconds = math.ceil(limits.seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    if sys.platform == "linux":  # elsewhere it is refused, or means nothing
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_refuse)


def _refuse(event: str, _: tuple[Any, ...]) -> None:
    if event.startswith(_FORBIDDEN):
        raise PermissionError(f"a document must not cause {event}")


def _within(text: str, limits: ReadingLimits) -> bytes:
    data = text.encode("utf-8", "replace")
    if len(data) > limits.document_bytes:
        raise Unreadable(f"holds more than {limits.document_bytes:,} bytes of text, the most that is read")
    return data


def _say(data: bytes, code: int) -> int:
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], ReadingLimits(**json.loads(sys.argv[2]))))
