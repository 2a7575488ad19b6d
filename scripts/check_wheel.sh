#!/bin/sh
# Build the wheel, install it alone into a clean environment, and start it from a folder that is not this one.
set -eu

cd "$(dirname "$0")/.."
rm -rf dist
.venv/bin/python -m build --wheel --outdir dist . >/dev/null
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
.venv/bin/python -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check dist/*.whl
cd "$scratch"
export MX_CLAW_HOME="$scratch/mx-claw"
"$scratch/venv/bin/python" -c 'import mxclaw_nb; print("imported", mxclaw_nb.__version__)'
"$scratch/venv/bin/mxclaw" --version
