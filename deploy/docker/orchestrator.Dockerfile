# The orchestrator and the command line: no tensor library inside.
#   docker build -f deploy/docker/orchestrator.Dockerfile -t docexpress-orchestrator .

FROM python:3.11.14-slim-bookworm AS build
# Optional dependencies.
ARG EXTRAS="traces"
WORKDIR /source
COPY . .
RUN python -m venv /opt/docexpress \
    && /opt/docexpress/bin/pip install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]"

FROM python:3.11.14-slim-bookworm
RUN useradd --no-log-init --uid 10001 --create-home --home-dir /var/lib/docexpress docexpress
COPY --from=build /opt/docexpress /opt/docexpress
ENV PATH=/opt/docexpress/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DOCEXPRESS_REDIS_URL=redis://broker:6379/0 \
    DOCEXPRESS_CACHE_URL=redis://cache-store:6379/0
USER 10001
WORKDIR /var/lib/docexpress
# Fails, too, when the process lives but no longer takes messages from its queues.
HEALTHCHECK --interval=15s --timeout=10s --start-period=30s --retries=3 \
    CMD ["docexpress", "orchestrate", "--check"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["docexpress"]
CMD ["orchestrate"]
