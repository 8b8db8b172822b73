"""The port of the server: in plain, with TLS, or with TLS and a certificate of the caller."""

from __future__ import annotations

import grpc

from kernel_worker.settings import WorkerSettings


def add_port(server: grpc.Server, settings: WorkerSettings) -> int:
    """The number of the port. Raises RuntimeError (of grpc) where nothing can listen there.

    The files are read now, once: a new certificate needs a restart.
    """
    cert, key, ca = settings.grpc_server_cert, settings.grpc_server_key, settings.grpc_client_ca
    if cert is None or key is None:
        return server.add_insecure_port(settings.listen)
    credentials = grpc.ssl_server_credentials(
        [(key.read_bytes(), cert.read_bytes())],
        root_certificates=None if ca is None else ca.read_bytes(),
        require_client_auth=ca is not None,
    )
    return server.add_secure_port(settings.listen, credentials)
