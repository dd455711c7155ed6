"""Complete recipes, compared byte by byte."""

from __future__ import annotations

import pytest

from muster.images.recipe import Conda, Recipe, recipe_text

SMALL = """\
# A node of a generic cluster. Written by `muster image build`.
FROM docker.io/library/python:3.11-slim

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \\
    PIP_ROOT_USER_ACTION=ignore PIP_BREAK_SYSTEM_PACKAGES=1

# Muster, the program that nodes run
COPY muster_jobs-1.0-py3-none-any.whl /opt/muster/
RUN python3 -m pip install /opt/muster/muster_jobs-1.0-py3-none-any.whl

WORKDIR /code

ENV CLUSTER_TYPE=GENERIC
# without a command the container joins its cluster in WORK_DIR
ENTRYPOINT []
CMD ["muster", "node"]
"""

LARGE = """\
# A node of a dask cluster. Written by `muster image build`.
# micromamba installs environment.yaml: gdal come from conda
FROM reg.example.com/base:1

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \\
    PIP_ROOT_USER_ACTION=ignore PIP_BREAK_SYSTEM_PACKAGES=1

# system packages (Debian, Ubuntu)
RUN apt-get update \\
 && apt-get install --yes --no-install-recommends g++ libgomp1 \\
 && rm -rf /var/lib/apt/lists/*

# the conda environment; python3 is its Python from here on
COPY --from=docker.io/mambaorg/micromamba:2.0.5 /bin/micromamba /usr/local/bin/micromamba
COPY environment.yaml /opt/muster/
ENV MAMBA_ROOT_PREFIX=/opt/conda
RUN --mount=type=secret,id=pip-config,target=/run/secrets/pip.conf \\
    --mount=type=secret,id=ca-bundle,target=/run/secrets/ca.pem \\
    export PIP_CONFIG_FILE=/run/secrets/pip.conf PIP_CERT=/run/secrets/ca.pem && \
micromamba create --yes --prefix /opt/env --file /opt/muster/environment.yaml \
&& micromamba clean --all --yes
ENV PATH=/opt/env/bin:$PATH

# what dask needs
RUN --mount=type=secret,id=pip-config,target=/run/secrets/pip.conf \\
    --mount=type=secret,id=ca-bundle,target=/run/secrets/ca.pem \\
    export PIP_CONFIG_FILE=/run/secrets/pip.conf PIP_CERT=/run/secrets/ca.pem && \
python3 -m pip install 'dask[distributed]==2026.8.0' bokeh

# what the code needs
COPY requirements/ /opt/muster/requirements/
RUN --mount=type=secret,id=pip-config,target=/run/secrets/pip.conf \\
    --mount=type=secret,id=ca-bundle,target=/run/secrets/ca.pem \\
    export PIP_CONFIG_FILE=/run/secrets/pip.conf PIP_CERT=/run/secrets/ca.pem && \
python3 -m pip install --requirement '/opt/muster/requirements/our own.txt'

# Muster, the program that nodes run
COPY muster_jobs-1.0-py3-none-any.whl /opt/muster/
RUN --mount=type=secret,id=pip-config,target=/run/secrets/pip.conf \\
    --mount=type=secret,id=ca-bundle,target=/run/secrets/ca.pem \\
    export PIP_CONFIG_FILE=/run/secrets/pip.conf PIP_CERT=/run/secrets/ca.pem && \
python3 -m pip install /opt/muster/muster_jobs-1.0-py3-none-any.whl

# the code comes last, so that changing it rebuilds nothing else
WORKDIR /code
COPY code/ /code/

EXPOSE 8700-8800 8786
ENV CLUSTER_TYPE=DASK ENTRY_POINT="/code/my \\$HOME \\"train\\".py"
# without a command the container joins its cluster in WORK_DIR
ENTRYPOINT []
CMD ["muster", "node"]
"""


@pytest.mark.shows("cluster-design/recipe-base", "cluster-design/recipe-scripts")
def test_the_smallest_recipe_is_written() -> None:
    recipe = Recipe(
        framework="generic",
        base="docker.io/library/python:3.11-slim",
        wheel="muster_jobs-1.0-py3-none-any.whl",
    )
    assert recipe_text(recipe) == SMALL


@pytest.mark.shows(
    "cluster-design/recipe-base",
    "cluster-design/recipe-code",
    "cluster-design/recipe-system-packages",
)
def test_a_recipe_with_everything_is_written() -> None:
    recipe = Recipe(
        framework="dask",
        base="reg.example.com/base:1",
        wheel="muster_jobs-1.0-py3-none-any.whl",
        debian=("g++", "libgomp1"),
        conda=Conda("docker.io/mambaorg/micromamba:2.0.5"),
        packages=("dask[distributed]==2026.8.0", "bokeh"),
        requirements="requirements/our own.txt",
        code=True,
        entrypoint='my $HOME "train".py',
        ports=("8700-8800", "8786"),
        secrets=("pip-config", "ca-bundle"),
        comments=("micromamba installs environment.yaml: gdal come from conda",),
    )
    assert recipe_text(recipe) == LARGE
