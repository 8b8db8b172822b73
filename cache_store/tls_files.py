"""Files with certificates and keys (PEM), checked when a process reads its settings."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator


def check_authority(path: Path | None) -> Path | None:
    """The path itself, of certificates of authorities; ValueError where they cannot be read."""
    if path is not None:
        _readable(path)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
        except ssl.SSLError:
            raise ValueError(f"{path} holds no certificate in PEM form") from None
    return path


def check_pair(names: tuple[str, str], cert: Path | None, key: Path | None) -> None:
    """A certificate and its key, or neither; `names` are their settings.

    Raises ValueError for one alone, and where they do not belong together.
    """
    if cert is None and key is None:
        return
    if cert is None or key is None:
        given, lacking = names if key is None else reversed(names)
        raise ValueError(f"DOCEXPRESS_{given} needs DOCEXPRESS_{lacking}, too")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError:
        raise ValueError(
            f"{cert} and {key} are not a certificate and its own key, in PEM form and without a password"
        ) from None


def _no_password() -> str:
    return ""


def _check_readable(path: Path | None) -> Path | None:
    if path is not None:
        _readable(path)
    return path


def _readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def _unset_if_empty(value: Any) -> Any:
    """A variable that is set to nothing, as in compose files, is not set."""
    return None if value == "" else value


_OrEmpty = BeforeValidator(_unset_if_empty)
PemFile = Annotated[Path | None, AfterValidator(_check_readable), _OrEmpty]
AuthorityFile = Annotated[Path | None, AfterValidator(check_authority), _OrEmpty]
HostName = Annotated[str | None, _OrEmpty]
