"""The environment of a command: the kernel's own, by whitelist, with everything off that would wait for a person.

Keys are safe because they are not on the list, not because they are recognised; the patterns for what looks like one
only guard what is passed: families (``CONDA_*`` and the like) by name, everything against well-known shapes of keys.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping

MARKER = "MX_CLAW_AGENT_COMMAND"
"""Set to ``1`` in every command's environment."""

_PASSED = frozenset(
    name
    for names in (
        # who and where
        "HOME USER LOGNAME SHELL HOSTNAME TMPDIR TEMP TMP TZ",
        "XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME",
        # the interpreter and its packages
        "VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTHONNOUSERSITE PYTHONDONTWRITEBYTECODE",
        "PYTHONPYCACHEPREFIX PYTHONHASHSEED PYENV_ROOT MAMBA_EXE MAMBA_ROOT_PREFIX _CE_CONDA _CE_M",
        "PIP_CONFIG_FILE PIP_CACHE_DIR PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_TRUSTED_HOST PIP_NO_INDEX",
        "UV_CACHE_DIR UV_INDEX_URL UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_PYTHON UV_OFFLINE",
        # the way out: proxies and who is trusted
        "HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy ftp_proxy all_proxy no_proxy",
        "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE PIP_CERT NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO",
        "GIT_SSL_CAPATH CARGO_HTTP_CAINFO NIX_SSL_CERT_FILE HTTPLIB2_CA_CERTS GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
        # libraries, compilers and other languages
        "LD_LIBRARY_PATH DYLD_LIBRARY_PATH DYLD_FALLBACK_LIBRARY_PATH LIBRARY_PATH CPATH PKG_CONFIG_PATH",
        "CMAKE_PREFIX_PATH CC CXX FC CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS JAVA_HOME GOPATH GOROOT GOFLAGS",
        "GOPROXY CARGO_HOME RUSTUP_HOME NVM_DIR NODE_PATH R_HOME R_LIBS R_LIBS_USER JULIA_DEPOT_PATH JULIA_PROJECT",
        "SPARK_HOME HADOOP_HOME HADOOP_CONF_DIR",
        # data and models
        "HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE HF_DATASETS_CACHE HF_ENDPOINT TRANSFORMERS_CACHE TRANSFORMERS_OFFLINE",
        "TORCH_HOME NLTK_DATA CI",
    )
    for name in names.split()
)
_FAMILIES = (
    "CONDA_", "CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_", "NCCL_", "HIP_", "HSA_", "ROCR_", "ROCM_", "OMP_", "KMP_",
    "MKL_", "OPENBLAS_", "NUMEXPR_", "NUMBA_", "XLA_", "JAX_", "TF_", "TORCH_", "PYTORCH_", "TRITON_",
)  # fmt: skip
_LOOKS_SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE|(^|_)(KEY|AUTH|PAT|PWD)(_|$)", re.I
)
_SECRET_VALUE = re.compile(
    r"\b(?:sk|rk|pk)-[\w-]{16,}|\bgh[oprsu]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bxox[abprs]-[\w-]{10,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bhf_\w{20,}|\bpypi-[\w-]{40,}|\bnpm_\w{30,}|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
)
_OTHERS = ("TF_VAR_", "TF_CLI_")  # Terraform's, which are no part of TensorFlow's family
_PROXIES = re.compile(r"(?:https?|ftp|all)_proxy", re.I)
_URL_WITH_LOGIN = re.compile(r"://[^/\s]*@")
_OURS = "MX_CLAW_"

_QUIET = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    "SSH_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "never",
    "SUDO_ASKPASS": "false",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "UV_NO_PROGRESS": "1",
    "CONDA_ALWAYS_YES": "false",
    "MPLBACKEND": "Agg",
}
_UTF8 = {
    "LANG": "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8",
    "LC_ALL": "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8",
    "PYTHONUTF8": "1",
    "PYTHONIOENCODING": "utf-8",
    "PYTHONUNBUFFERED": "1",  # what a stopped program had printed is seen, and in order
}
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def command_environment(
    own: Mapping[str, str] | None = None, *, added: Iterable[str] = (), interpreter: str = sys.executable
) -> dict[str, str]:
    """The whole environment of a command, from ours (``os.environ`` by default).

    ``added`` names more variables that pass, as the setting ``command_environment`` does; our own (``MX_CLAW_*``)
    never do. The folder of ``interpreter`` comes first in PATH.
    """
    source = os.environ if own is None else own
    names = {*added}
    environment = {
        name: value
        for name, value in source.items()
        if not name.startswith(_OURS) and (name in names or _passes(name, value))
    }
    environment["PATH"] = _path(source.get("PATH", ""), interpreter)
    for fixed in (_QUIET, _UTF8):
        environment.update({name: value for name, value in fixed.items() if name not in names or name not in source})
    environment[MARKER] = "1"
    return environment


def _passes(name: str, value: str) -> bool:
    if _SECRET_VALUE.search(value) or name.startswith(_OTHERS):
        return False
    if name in _PASSED:
        return bool(_PROXIES.fullmatch(name)) or not _URL_WITH_LOGIN.search(value)
    return name.startswith(_FAMILIES) and not _LOOKS_SECRET.search(name) and not _URL_WITH_LOGIN.search(value)


def _path(path: str, interpreter: str) -> str:
    """The search path with the interpreter's folder first; relative and empty parts, which mean the workspace, go."""
    folders = [os.path.dirname(interpreter), *path.split(os.pathsep)]
    kept = list(dict.fromkeys(folder for folder in folders if os.path.isabs(folder)))
    if len(kept) <= 1:
        kept += _DEFAULT_PATH.split(":")
    return os.pathsep.join(kept)
