"""Documents: what a user hands over becomes clean text, or one sentence that says why it cannot be read.

    door.py     the one way in: a path, bytes, or text, whoever hands it over
    kinds.py    what the bytes are, by what they hold
    text.py     plain text: encodings, line breaks, control characters
    sandbox.py  reads every other format in a process of its own, with limits of time and memory
    child.py    that process; of its readers (word.py, pdf.py, web.py) it loads the one that is needed

Nothing here opens a connection.
"""

from orchestrator.documents.door import Document, document_from_bytes, document_from_text, load_document
from orchestrator.documents.limits import ReadingLimits

__all__ = ["Document", "ReadingLimits", "document_from_bytes", "document_from_text", "load_document"]
