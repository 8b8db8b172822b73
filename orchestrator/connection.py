"""What a failure of the job store's Redis means, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from cache_store.connection import describe
from cache_store.errors import StoreUnavailable
from orchestrator.errors import JobStoreUnavailable


@contextmanager
def job_store_errors(client: redis.Redis) -> Iterator[None]:
    """Turns the client's exceptions, and those of the worker registry on it, into JobStoreUnavailable."""
    try:
        yield
    except StoreUnavailable as error:
        raise JobStoreUnavailable(_sentence(client, "cannot be reached", error.__cause__ or error)) from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise JobStoreUnavailable(_sentence(client, "cannot be reached", error)) from error
    except redis.RedisError as error:
        raise JobStoreUnavailable(_sentence(client, "refused a command", error)) from error


def _sentence(client: redis.Redis, what: str, error: BaseException) -> str:
    detail = " ".join(str(error).split())[:200] or type(error).__name__
    return f"Redis for jobs at {describe(client)} {what}: {detail}"
