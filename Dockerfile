# keval on a CPU: `scripts/image` builds it. Stages: build, test (asked for by --target), runtime (the last).
# Without --network host, clients reach the server only where it listens off loopback; it then refuses to start unless
# given TLS and a way to authenticate callers, or told --insecure (docs/security.md).
ARG BASE=debian:12-slim

FROM ${BASE} AS build
ENV KEVAL_VENV=/opt/venv
WORKDIR /src
# Alone first: a change of the source keeps this layer.
COPY scripts/bootstrap scripts/lib.sh scripts/
RUN scripts/bootstrap
COPY . .
RUN cmake --preset release -DKEVAL_VENV=/opt/venv \
    && cmake --build --preset release \
    && scripts/stage /opt/keval

FROM build AS test
RUN ctest --preset release

FROM ${BASE} AS runtime
COPY --from=build /opt/keval /opt/keval
RUN echo /opt/keval/lib > /etc/ld.so.conf.d/keval.conf \
    && ldconfig \
    && useradd --system --uid 7400 --home-dir /var/lib/keval --create-home --shell /usr/sbin/nologin keval
ENV PATH=/opt/keval/bin:$PATH KEVAL_SERVER=127.0.0.1:7400
USER 7400
WORKDIR /var/lib/keval
VOLUME /var/lib/keval
# Control, bulk and health; kevald serves no metrics yet.
EXPOSE 7400 7401 7402
# The plaintext health address of CMD below, whatever TLS the others speak.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["keval", "health", "--server", "127.0.0.1:7402"]
ENTRYPOINT ["kevald"]
CMD ["--listen", "127.0.0.1:7400", "--bulk_listen", "127.0.0.1:7401", "--health_listen", "127.0.0.1:7402", "--data_dir", "/var/lib/keval"]
