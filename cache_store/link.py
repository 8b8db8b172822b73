"""One tenant's line to the server: scripts and pipelines, with the store's own errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from cache_store import scripts
from cache_store.connection import redis_errors
from cache_store.keys import TenantKeys

Command = tuple[str | bytes | int, ...]


class TenantLink:
    """Runs commands for one tenant. Raises StoreUnavailable or StoreFull; safe to share between threads."""

    def __init__(self, client: redis.Redis, tenant: str) -> None:
        self.client = client
        self.keys = TenantKeys(tenant)
        self._index = (self.keys.expiry, self.keys.book)
        self._scripts = {
            "reserve": client.register_script(scripts.RESERVE),
            "commit": client.register_script(scripts.COMMIT),
            "renew": client.register_script(scripts.RENEW),
            "drop": client.register_script(scripts.DROP),
            "keep": client.register_script(scripts.KEEP),
            "usage": client.register_script(scripts.USAGE),
            "clear": client.register_script(scripts.CLEAR),
        }

    def run(self, script: str, *arguments: str | bytes | int) -> Any:
        """The reply of one of the scripts of `cache_store.scripts`; its arguments are described there."""
        with redis_errors(self.client):
            return self._scripts[script](keys=self._index, args=arguments)

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """The replies of several commands sent at once. A reply may be a redis.ResponseError, not raised."""
        with redis_errors(self.client):
            pipe: Any = self.client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            return list(pipe.execute(raise_on_error=False))

    def raise_refused(self, replies: Sequence[Any]) -> None:
        """Raises for the first reply of a pipeline that is an error."""
        for reply in replies:
            if isinstance(reply, redis.ResponseError):
                with redis_errors(self.client):
                    raise reply
