"""The web page: files that are served as they are, to whoever asks; all that they show comes from /v1."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI
from fastapi.responses import FileResponse
from starlette.staticfiles import StaticFiles

FOLDER = Path(__file__).parents[1] / "page"
# Nothing from elsewhere, no inline script or style, and no string that becomes HTML.
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

router = APIRouter(include_in_schema=False)


@router.get("/", response_class=FileResponse)
def page() -> FileResponse:
    return FileResponse(FOLDER / "index.html", headers={"Content-Security-Policy": CONTENT_POLICY})


def install(app: FastAPI) -> None:
    """Serves the page at / and its files under /page."""
    app.include_router(router)
    app.mount("/page", StaticFiles(directory=FOLDER))
