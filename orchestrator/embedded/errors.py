"""What can go wrong with the embedded stack.

EmbeddedError                a sentence for the user; `exit_code` is what the command line ends with
├── EmbeddedUnavailable      this installation has no Valkey program
├── HomeUnusable             the data folder cannot be created or written
├── StartFailed              a part ended, or was not ready in time
├── NotSaved                 the stack ended, but its data could not be written
└── StackBusy                another command holds the stack and did not let go in time
"""


class EmbeddedError(Exception):
    """Base of every failure of the embedded stack; its text is one sentence for the user."""

    exit_code = 1


class EmbeddedUnavailable(EmbeddedError):
    """The package that carries the Valkey program is not installed, or not for this platform."""


class HomeUnusable(EmbeddedError):
    """The data folder cannot be created or written."""

    exit_code = 2


class StartFailed(EmbeddedError):
    """A part of the stack ended, or was not ready in time.

    `exit_code` is 2 when the part itself called its arguments bad (an unknown model, for example).
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class NotSaved(EmbeddedError):
    """The stack has ended, but what it held could not be written to the data folder."""


class StackBusy(EmbeddedError):
    """Another command holds the stack and did not let go in time."""


class Terminated(SystemExit):
    """Raised by a handler of SIGTERM or SIGHUP: everything stops now, whoever else uses it."""
