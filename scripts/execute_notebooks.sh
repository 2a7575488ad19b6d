#!/bin/sh
# Execute every notebook as a script would: in a copy, with a clean home, no key and nobody who could click.
set -eu

cd "$(dirname "$0")/.."
root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
cp -R notebooks "$scratch/notebooks"

unset MX_CLAW_API_KEY MX_CLAW_MODEL
export HOME="$scratch/home" MX_CLAW_HOME="$scratch/mx-claw" IPYTHONDIR="$scratch/ipython"
export JUPYTER_CONFIG_DIR="$scratch/config" JUPYTER_DATA_DIR="$scratch/data" JUPYTER_RUNTIME_DIR="$scratch/runtime"
mkdir -p "$HOME"

for notebook in "$scratch"/notebooks/*.ipynb; do
    [ -e "$notebook" ] || { echo "There are no notebooks." >&2; exit 1; }
    echo "Executing notebooks/$(basename "$notebook") ..."
    "$root/.venv/bin/python" -m nbconvert --log-level=WARN --to notebook --execute --ExecutePreprocessor.timeout=120 \
        --output-dir "$scratch/executed" "$notebook"
done
echo "All notebooks ran to their end."
