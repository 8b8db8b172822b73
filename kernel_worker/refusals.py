"""Why this server turns a call down. Each message is one sentence that a user can act on.

Refusal
├── InvalidRequest     the request can never succeed
├── PlanMismatch       made for another model than the one loaded here
├── LeaseLost          the segment is not held here (any more)
├── Busy               too many calls wait, or too many segments are held
├── Draining           the worker is going away
└── CallerGone         the caller cancelled or its deadline passed; nobody reads the answer
"""

from __future__ import annotations


class Refusal(Exception):
    """A call that is not served; its message goes to the caller as it is."""


class InvalidRequest(Refusal):
    pass


class PlanMismatch(Refusal):
    pass


class LeaseLost(Refusal):
    pass


class Busy(Refusal):
    pass


class Draining(Refusal):
    def __init__(self) -> None:
        super().__init__("This worker is shutting down; send the call to another one.")


class CallerGone(Refusal):
    def __init__(self) -> None:
        super().__init__("The caller went away before the work was done.")
