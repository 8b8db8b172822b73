"""The commands, their arguments and their help; each hands over to a module that does the work."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from orchestrator.cli import options as opt
from orchestrator.cli.keys_app import keys_app
from orchestrator.cli.state_app import state_app
from orchestrator.jobs import JobOptions

app = typer.Typer(
    name="docexpress",
    help="Reads a document far longer than a model's window once, keeps a small state of it,"
    " and writes summaries and answers from that.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(state_app, name="state", rich_help_panel="Looking")
app.add_typer(keys_app, name="keys", rich_help_panel="Running")

_MAIN, _LOOKING, _RUNNING = "Main job", "Looking", "Running"


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        typer.echo(_version())
        raise typer.Exit()
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(rich_help_panel=_MAIN)
@opt.with_job_options
def summarize(
    file: opt.File, options: JobOptions, as_json: opt.Json = False, quiet: opt.Quiet = False
) -> None:
    """Summarize a document.

    Everything that is needed is started and stopped again, unless `docexpress up` runs or
    DOCEXPRESS_REDIS_URL names a Redis. The summary goes to standard output, progress to standard error.
    """
    from orchestrator.cli import summarize as job

    job.summarize(file, options, as_json=as_json, quiet=quiet)


@app.command(rich_help_panel=_MAIN)
@opt.with_job_options
def submit(file: opt.File, options: JobOptions, as_json: opt.Json = False) -> None:
    """Start the same job on a running stack, print its id, and do not wait."""
    from orchestrator.cli import summarize as job

    job.submit(file, options, as_json=as_json)


@app.command(rich_help_panel=_MAIN)
def ask(
    job_id: opt.JobId,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know.")],
    max_new_tokens: Annotated[int | None, opt.MAX_NEW_TOKENS] = None,
    seed: Annotated[int | None, opt.SEED] = None,
    temperature: Annotated[float | None, opt.TEMPERATURE] = None,
    repetition_penalty: Annotated[float | None, opt.REPETITION_PENALTY] = None,
    reread: Annotated[int | None, opt.REREAD] = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Ask a question about the document of a finished job.

    The passages that the question is about are read again, exactly, and named with the answer. What is not
    given is as it was in that job.
    """
    from orchestrator.cli import summarize as job

    job.ask(
        job_id,
        question,
        as_json=as_json,
        quiet=quiet,
        max_new_tokens=max_new_tokens,
        seed=seed,
        temperature=temperature,
        repetition_penalty=repetition_penalty,
        reread=reread,
    )


@app.command(rich_help_panel=_MAIN)
def watch(job_id: opt.JobId, as_json: opt.Json = False, quiet: opt.Quiet = False) -> None:
    """Show a job until it ends. Ctrl-C ends the watching alone."""
    from orchestrator.cli import summarize as job

    job.watch(job_id, as_json=as_json, quiet=quiet)


@app.command(rich_help_panel=_LOOKING)
def result(job_id: opt.JobId, as_json: opt.Json = False) -> None:
    """Print the text of a finished job."""
    from orchestrator.cli import jobs as look

    look.result(job_id, as_json=as_json)


@app.command(rich_help_panel=_LOOKING)
def jobs(as_json: opt.Json = False) -> None:
    """List all jobs."""
    from orchestrator.cli import jobs as look

    look.jobs(as_json=as_json)


@app.command(rich_help_panel=_LOOKING)
def cancel(job_id: opt.JobId, as_json: opt.Json = False) -> None:
    """Cancel a job."""
    from orchestrator.cli import jobs as look

    look.cancel(job_id, as_json=as_json)


@app.command(rich_help_panel=_LOOKING)
def doctor(as_json: opt.Json = False) -> None:
    """Check this installation and what it is connected to; exit code 1 when something is broken."""
    from orchestrator.cli.doctor_table import run_doctor

    raise typer.Exit(run_doctor(as_json=as_json))


@app.command(
    rich_help_panel=_LOOKING,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def evaluate(context: typer.Context) -> None:
    """Measure on this machine what compression costs in quality; `evaluate --help` lists the options."""
    from orchestrator.cli import services

    services.evaluate(context.args)


@app.command(rich_help_panel=_RUNNING)
def plan(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder, a name in the local cache, or embedded.")
    ],
    documents: Annotated[int, typer.Option(min=1, metavar="N", help="How many are to be kept.")] = 1,
    tokens: Annotated[int, typer.Option(min=1, metavar="N", help="The length of a document.")] = 100_000,
    cache_entries: Annotated[
        int, typer.Option(min=1, metavar="N", help="Entries of the state, per KV head and layer.")
    ] = opt.DEFAULTS.cache_entries,
    segment_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Tokens read at a time.")
    ] = opt.DEFAULTS.segment_tokens,
    dtype: Annotated[
        str | None,
        typer.Option(help="float32 (as on a CPU), bfloat16 or float16; else the model's own."),
    ] = None,
    redis_gb: Annotated[
        float | None, typer.Option(min=0, metavar="GB", help="Say how many documents this much holds.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Tell what documents will take in Redis and on workers, from a model's config.json alone."""
    from orchestrator.cli import plan as sizes

    sizes.plan(
        model,
        documents=documents,
        tokens=tokens,
        cache_entries=cache_entries,
        segment_tokens=segment_tokens,
        dtype=dtype,
        redis_gb=redis_gb,
        as_json=as_json,
    )


@app.command(rich_help_panel=_RUNNING)
def up(
    model: opt.Model = opt.DEFAULTS.model,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="N", help="Serve HTTP on this port of 127.0.0.1, too."),
    ] = None,
) -> None:
    """Run everything on this machine until Ctrl-C: Valkey, one worker, one orchestrator."""
    from orchestrator.cli import services

    services.up(model, port)


@app.command(rich_help_panel=_RUNNING)
def serve(
    host: Annotated[str, typer.Option(metavar="HOST", help="Where to serve.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="On which port.")] = 8000,
    check: Annotated[
        bool, typer.Option("--check", help="Ask the server on this host whether it lives.")
    ] = False,
) -> None:
    """Serve the HTTP API of a running stack until SIGTERM.

    On any other host than this machine alone every request needs a key of `docexpress keys create`.
    """
    from orchestrator.cli import serving

    if check:
        serving.check(host, port)
    serving.serve(host, port)


@app.command(rich_help_panel=_RUNNING)
def worker(
    model: Annotated[str | None, typer.Option(help="Name or path of the model.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.", show_default=False)] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32, bfloat16 or float16.", show_default=False)
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to serve.", show_default=False)
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="Where others reach it.", show_default=False),
    ] = None,
    capacity: Annotated[
        int | None, typer.Option(metavar="N", help="Calls computed at once.", show_default=False)
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Ask the worker that serves here whether it is healthy.")
    ] = False,
) -> None:
    """Serve one model on one device until SIGTERM; what is not given comes from DOCEXPRESS_* variables."""
    from orchestrator.cli import services

    if check:
        services.check_worker(listen)
    services.worker(
        {
            "model": model,
            "device": device,
            "dtype": dtype,
            "listen": listen,
            "advertise": advertise,
            "capacity": None if capacity is None else str(capacity),
        }
    )


@app.command(rich_help_panel=_RUNNING)
def orchestrate(
    check: Annotated[
        bool, typer.Option("--check", help="Ask the orchestrator on this host whether it is healthy.")
    ] = False,
) -> None:
    """Drive the jobs of the Redis in DOCEXPRESS_REDIS_URL until SIGTERM."""
    from orchestrator.cli import services

    if check:
        services.check_orchestrator()
    services.orchestrate()


def _version() -> str:
    try:
        return f"docexpress {version('docexpress')}"
    except PackageNotFoundError:
        return "docexpress (not installed)"
