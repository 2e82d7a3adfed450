# The broker and what it needs, as uv.lock pins it, with the path of a message compiled: no Spark, no tests, no compiler.
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
RUN pip install --no-cache-dir uv==0.13.8
ENV UV_PROJECT_ENVIRONMENT=/opt/pybroker UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
WORKDIR /src
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY pybroker ./pybroker
COPY pyspark_kahadb ./pyspark_kahadb
COPY docs/man ./docs/man
# The same hook as `make wheel`; --build-arg COMPILED=0 leaves it out, and takes a minute or two less.
ARG COMPILED=1
RUN HATCH_BUILD_HOOKS_ENABLE=$COMPILED uv sync --locked --no-editable --extra postgres --extra ldap --extra security --extra management

FROM python:3.12-slim
# A named volume mounted on /data takes over this directory's owner.
RUN useradd --system --uid 10001 pybroker && install --directory --owner=pybroker /data
COPY --from=build /opt/pybroker /opt/pybroker
ENV PATH=/opt/pybroker/bin:$PATH
USER pybroker
VOLUME /data
EXPOSE 61613 61616 8162
ENTRYPOINT ["pybroker"]
CMD ["start", "--store", "/data", "--bind", "0.0.0.0"]
