"""What can go wrong in an evaluation.

EvaluationError
├── DataMissing     a file of the data folder is not there
├── JournalForeign  the output folder holds results of other work
└── MethodUnknown   no method has the name that was asked for
"""

from __future__ import annotations


class EvaluationError(Exception):
    """Base of all; its text is one sentence for the user."""


class DataMissing(EvaluationError):
    """A data set is not where it was said to be."""


class JournalForeign(EvaluationError):
    """Results in the output folder belong to another model or profile."""


class MethodUnknown(EvaluationError):
    """A method was asked for that there is not."""
