# Grades submissions. Build it with the index that PyTorch's install page names for its CPU build, or
# pip fetches gigabytes of CUDA libraries:
#
#   docker build --build-arg TORCH_INDEX=... -t infralens-grader .
#   docker run --rm --network none -v "$PWD/submissions:/in:ro" -v "$PWD/run:/out" infralens-grader \
#       grade /in --out /out --tier contained
#
# It holds the references and the hidden tests: push it to no public registry. It runs as root, which
# the tier `contained` needs to give each submission a user of its own; `infralens probe` says which
# tier the container reaches. Where it may make namespaces, that is `sandbox`.
FROM python:3.12.11-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ libc6-dev \
    && rm -rf /var/lib/apt/lists/*

ARG TORCH_INDEX=""
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch>=2.6,<2.14"

WORKDIR /kit
COPY pyproject.toml README.md LICENSE conftest.py ./
COPY grader grader
RUN pip install --no-cache-dir ".[classroom,triton]"

COPY exercises exercises
COPY solutions solutions
COPY tests tests
# Root alone reads the kit: student code is another user.
RUN chmod 700 /kit

ENV PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["infralens"]
CMD ["probe"]
