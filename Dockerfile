# Floorwatch's image: built in one stage, run in another that has no installer of its own.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
# The environment is made at its final path, since its scripts name it.
RUN python -m venv --without-pip /opt/floorwatch && python -m venv /opt/build
COPY requirements.txt requirements-build.txt ./
RUN /opt/build/bin/pip install --require-hashes -r requirements-build.txt \
 && /opt/build/bin/pip --python /opt/floorwatch/bin/python install --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY monitor ./monitor
COPY expectations ./expectations
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/build/bin/pip --python /opt/floorwatch/bin/python install --no-deps --no-index /wheels/*.whl

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="floorwatch" \
      org.opencontainers.image.description="Live throughput monitor for LLM inference servers" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/floorwatch /opt/floorwatch
# A new volume for `state:` takes its owner from here.
RUN install -d -o 65532 -g 65532 -m 0700 /var/lib/floorwatch
# Nothing is written, so the root file system may be read-only. NVML is all that is wanted of the
# NVIDIA driver.
ENV PATH=/opt/floorwatch/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_DRIVER_CAPABILITIES=utility
USER 65532:65532
WORKDIR /
EXPOSE 9838
# No proxy, whatever the environment says: this asks the container's own loopback.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "from urllib.request import ProxyHandler, build_opener; build_opener(ProxyHandler({})).open('http://127.0.0.1:9838/-/healthy', timeout=3)"]
ENTRYPOINT ["floorwatch"]
CMD ["run"]
