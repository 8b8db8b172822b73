"""The options that several commands share, with the product's own defaults."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.errors import OptionError
from orchestrator.jobs import JobOptions

DEFAULTS = JobOptions()
_KEYWORD = inspect.Parameter.KEYWORD_ONLY

_READING, _WRITING, _OUTPUT = "How the document is read", "How the text is written", "Output"


def _reading(help_text: str, metavar: str | None = None) -> Any:
    return typer.Option(metavar=metavar, help=help_text, rich_help_panel=_READING)


def _writing(help_text: str, metavar: str | None = None) -> Any:
    return typer.Option(metavar=metavar, help=help_text, rich_help_panel=_WRITING)


MODEL = _reading("Name or path of a causal language model.", "NAME")
MAX_NEW_TOKENS = _writing("The longest text to write, in tokens.", "N")
SEED = _writing("Of everything that is random.", "N")
REPETITION_PENALTY = _writing("Above 1 discourages repetition.", "X")
REREAD = _writing("For a question or a query: the most passages to read again; 0 for none.", "N")
TEMPERATURE = _writing("0 always takes the likeliest token.", "X")

Model = Annotated[str, MODEL]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.", rich_help_panel=_OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel=_OUTPUT)]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, as `docexpress jobs` lists it.")]
File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Text, Markdown, HTML, PDF or Word (.docx); - for standard input."),
]


# A field of JobOptions, its type on the command line, and its help.
_JOB_OPTIONS: dict[str, Any] = {
    "model": Model,
    "query": Annotated[str | None, _writing("What the summary should be about.", "TEXT")],
    "cache_entries": Annotated[int, _reading("Entries of the state, per KV head and layer.", "N")],
    "segment_tokens": Annotated[int, _reading("Tokens read at a time.", "N")],
    "policy": Annotated[str, _reading("How entries are chosen.", "NAME")],
    "policy_parameters": Annotated[
        list[str],
        typer.Option(
            "--policy-parameter",
            metavar="NAME=VALUE",
            help="A parameter of the policy, as often as needed: sinks=16.",
            show_default=False,
            rich_help_panel=_READING,
        ),
    ],
    "positions": Annotated[str, _reading("auto, original, or dense (beyond the model's window).", "NAME")],
    "max_new_tokens": Annotated[int, MAX_NEW_TOKENS],
    "seed": Annotated[int, SEED],
    "temperature": Annotated[float, TEMPERATURE],
    "repetition_penalty": Annotated[float, REPETITION_PENALTY],
    "reread": Annotated[int, REREAD],
}


def with_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command one option for each of `_JOB_OPTIONS` and hands them over as its argument `options`.

    The options are checked as JobOptions checks them: the command raises OptionError.
    """

    @functools.wraps(command)
    def parsed(**arguments: Any) -> None:
        chosen = {name: arguments.pop(name) for name in _JOB_OPTIONS}
        command(options=job_options(**chosen), **arguments)

    own = inspect.signature(command, eval_str=True).parameters.values()
    added = [
        inspect.Parameter(name, _KEYWORD, annotation=kind, default=_default(name))
        for name, kind in _JOB_OPTIONS.items()
    ]
    keywords = [each.replace(kind=_KEYWORD) for each in own if each.name != "options"]
    signature = inspect.Signature([keywords[0], *added, *keywords[1:]])
    parsed.__signature__ = signature  # type: ignore[attr-defined] # what typer reads
    parsed.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return parsed


def _default(name: str) -> Any:
    value = getattr(DEFAULTS, name)
    return list(value) if name == "policy_parameters" else value


def job_options(**chosen: Any) -> JobOptions:
    """Options of a job; a value of None leaves the default. Raises OptionError."""
    given = {name: value for name, value in chosen.items() if value is not None}
    if "model" in given and Path(given["model"]).is_dir():
        given["model"] = str(Path(given["model"]).absolute())  # workers need not run in this folder
    given["policy_parameters"] = dict(map(_name_and_value, given.get("policy_parameters", [])))
    return dataclasses.replace(DEFAULTS, **given)


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise OptionError(f"policy parameter {text!r} is not of the form NAME=VALUE")
    return name.replace("-", "_"), value
