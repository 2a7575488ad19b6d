#!/bin/sh
# Make .venv with the package and the named extras in it, and do nothing where it is there already.
#
#     scripts/environment.sh lab          PYTHON=python3.12 scripts/environment.sh dev
#
# Needs nothing but a Python (>= 3.11) that can make virtual environments.
set -eu

cd "$(dirname "$0")/.."
extras=$1
stamp=.venv/.installed-$extras

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or newer that starts."
        printf '%s' "$PYTHON"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$candidate" >/dev/null 2>&1 && is_new_enough "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    fail "No Python 3.11 or newer was found. Install one, or name it: make lab PYTHON=/path/to/python3"
}

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

# A moved clone, another Python or a changed project file makes the stamp differ.
expected() {
    printf '%s %s %s\n' "$(cksum <pyproject.toml)" "$PWD" "$(version_of .venv/bin/python)"
}

python=$(find_python)

if [ -x .venv/bin/python ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(expected)" ]; then
    if [ -z "${PYTHON:-}" ] || [ "$(version_of "$python")" = "$(version_of .venv/bin/python)" ]; then
        exit 0
    fi
fi

usable() {
    is_new_enough .venv/bin/python || return 1
    .venv/bin/python -m pip --version >/dev/null 2>&1 || return 1
    [ -z "${PYTHON:-}" ] || [ "$(version_of "$python")" = "$(version_of .venv/bin/python)" ]
}

if ! usable; then
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || fail "$(
        printf '%s' "The Python at $(command -v "$python") cannot make virtual environments (no ensurepip). " \
            "On Debian and Ubuntu: apt install python3-venv. Or name another: make lab PYTHON=/path/to/python3"
    )"
    echo "Making .venv with $("$python" --version 2>&1) ..."
    "$python" -m venv --clear .venv || fail "The virtual environment could not be made in $PWD/.venv: see above."
fi

echo "Installing mxclaw_nb[$extras] into .venv (once; later runs skip this) ..."
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extras]" ||
    fail "The installation failed: see above. Run the same command again when the cause is gone."
expected >"$stamp"
