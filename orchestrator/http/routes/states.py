"""Stored states: list, look, export, import, delete."""

from __future__ import annotations

import tempfile
from pathlib import Path

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from cache_store.errors import TransferError
from orchestrator.http.bodies import received_file
from orchestrator.http.context import TheService
from orchestrator.service import Service
from orchestrator.wire import StateInfo

router = APIRouter(prefix="/v1/states", tags=["states"])


@router.get("")
def states(service: TheService) -> list[StateInfo]:
    """The stored states, the newest first."""
    return [StateInfo.model_validate(state) for state in service.states()]


@router.post(
    "/import",
    status_code=201,
    openapi_extra={"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}},
)
async def import_(request: Request, service: TheService) -> StateInfo:
    """Stores a state from a file that `export` wrote, sent as the body or as the field `file` of a form."""
    async with received_file(request) as path:
        return await run_sync(_import, service, path)


@router.get("/{name}")
def state(name: str, service: TheService) -> StateInfo:
    """`name` may be an unambiguous beginning; here and below."""
    return StateInfo.model_validate(service.show_state(name))


@router.get("/{name}/export", response_class=FileResponse)
def export(name: str, service: TheService) -> FileResponse:
    """The state as one file."""
    found = service.show_state(name).name
    with tempfile.NamedTemporaryFile(prefix="docexpress-export-", delete=False) as file:
        path = Path(file.name)
    try:
        service.export_state(found, path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return FileResponse(
        path,
        media_type="application/octet-stream",
        filename=f"{found[:16]}.state",
        background=BackgroundTask(path.unlink, missing_ok=True),
    )


@router.delete("/{name}", status_code=204)
def delete(name: str, service: TheService) -> None:
    service.delete_state(name)


def _import(service: Service, path: Path) -> StateInfo:
    try:
        return StateInfo.model_validate(service.import_state(path))
    except TransferError as error:
        raise TransferError(str(error).replace(str(path), "The file")) from error
