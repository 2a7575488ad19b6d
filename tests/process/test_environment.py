"""What a command sees of our environment, and what it never sees."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mxclaw_nb.process import command_environment, run

SECRETS = [
    "OPENAI_API_KEY", "MX_CLAW_API_KEY", "MX_CLAW_HOME", "MX_CLAW_MODEL", "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "GITHUB_TOKEN", "GH_TOKEN", "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN", "DATABASE_URL", "PGPASSWORD", "MYSQL_PWD", "REDIS_URL", "SLACK_WEBHOOK",
    "AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS", "JUPYTER_TOKEN", "JPY_API_TOKEN", "SSH_AUTH_SOCK",
    "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "NETRC", "KUBECONFIG", "BASH_ENV", "ENV", "PROMPT_COMMAND",
    "PYTHONSTARTUP", "LD_PRELOAD", "LD_AUDIT", "BASH_FUNC_ls%%", "SOMETHING_UNKNOWN", "PIP_PASSWORD",
    "UV_PUBLISH_TOKEN", "CONDA_TOKEN", "CONDA_API_KEY", "TF_API_KEY", "NVIDIA_API_KEY", "JAX_PRIVATE", "TORCH_AUTH",
    "HIP_PASSPHRASE", "NCCL_CREDENTIALS", "XLA_SECRET", "ANACONDA_TOKEN", "WANDB_API_KEY",
]  # fmt: skip
PASSED = [
    "HOME", "USER", "TMPDIR", "TZ", "HTTP_PROXY", "https_proxy", "NO_PROXY", "all_proxy", "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_EXE", "VIRTUAL_ENV", "PYTHONPATH",
    "OMP_NUM_THREADS", "HF_HOME", "PIP_INDEX_URL",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_what_is_not_known_to_be_harmless_does_not_pass(name: str) -> None:
    assert command_environment({name: "value", "PATH": "/bin"}).get(name) is None


@pytest.mark.parametrize("name", PASSED)
def test_what_work_in_the_kernel_needs_passes(name: str) -> None:
    assert command_environment({name: "value"})[name] == "value"


def test_a_proxy_keeps_its_login_and_an_index_with_one_stays_here() -> None:
    login = "http://user:word@example.test/"
    environment = command_environment(
        {"HTTPS_PROXY": login, "http_proxy": login, "PIP_INDEX_URL": login, "CONDA_CHANNEL": login}
    )
    assert environment["HTTPS_PROXY"] == environment["http_proxy"] == login
    assert "PIP_INDEX_URL" not in environment and "CONDA_CHANNEL" not in environment


@pytest.mark.parametrize(
    "value",
    [
        "sk-" + "a1" * 12, "ghp_" + "a" * 36, "github_pat_" + "a" * 30, "glpat-" + "a" * 20, "xoxb-" + "1" * 12,
        "AKIA" + "A" * 16, "AIza" + "a" * 35, "hf_" + "a" * 30, "x=" + "ghp_" + "a" * 36,
        "-----BEGIN RSA " + "PRIVATE KEY-----",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["CONDA_FOO", "CFLAGS", "TF_X", "HF_ENDPOINT"])
def test_what_has_the_shape_of_a_key_does_not_pass_under_any_name(name: str, value: str) -> None:
    assert name not in command_environment({name: value})
    assert command_environment({name: value}, added=[name])[name] == value  # the user asked for it


def test_a_neighbour_of_a_family_is_no_member() -> None:
    assert not {"TF_VAR_db", "TF_CLI_ARGS"} & set(command_environment({"TF_VAR_db": "x", "TF_CLI_ARGS": "x"}))


def test_the_setting_adds_names_but_never_ours() -> None:
    own = {"DATABASE_URL": "sqlite://", "MX_CLAW_API_KEY": "k", "TERM": "xterm"}
    environment = command_environment(own, added=["DATABASE_URL", "MX_CLAW_API_KEY", "TERM", "ABSENT"])
    assert environment["DATABASE_URL"] == "sqlite://" and environment["TERM"] == "xterm"
    assert "MX_CLAW_API_KEY" not in environment and "ABSENT" not in environment


@pytest.mark.parametrize("path", ["", ".", ":", "relative/bin", None])
def test_a_path_of_nothing_becomes_the_usual_one(path: str | None) -> None:
    """H22."""
    own = {} if path is None else {"PATH": path}
    folders = command_environment(own, interpreter="/env/bin/python")["PATH"].split(":")
    assert folders[0] == "/env/bin" and "/bin" in folders and "" not in folders and "." not in folders


def test_the_interpreters_folder_comes_first_and_once() -> None:
    own = {"PATH": "/usr/bin:/env/bin:/bin"}
    assert command_environment(own, interpreter="/env/bin/python")["PATH"] == "/env/bin:/usr/bin:/bin"


def test_nothing_waits_for_a_person() -> None:
    """H10."""
    environment = command_environment({"TERM": "xterm-256color", "EDITOR": "vim", "PAGER": "less", "GIT_ASKPASS": "x"})
    assert environment["TERM"] == "dumb" and environment["GIT_TERMINAL_PROMPT"] == "0"
    assert environment["PAGER"] == environment["GIT_PAGER"] == "cat"
    assert environment["EDITOR"] == environment["GIT_EDITOR"] == environment["VISUAL"] == "true"
    assert environment["DEBIAN_FRONTEND"] == "noninteractive" and environment["PIP_NO_INPUT"] == "1"
    assert "GIT_ASKPASS" not in environment


def test_text_is_utf8_whatever_the_locale(tmp_path: Path) -> None:
    """H22."""
    environment = command_environment(
        {"LANG": "C", "LC_CTYPE": "POSIX", "LC_ALL": "zh_CN.GB18030", "PATH": os.environ["PATH"]}
    )
    assert "LC_CTYPE" not in environment
    script = (
        "import sys, locale; print(sys.stdout.encoding, locale.getpreferredencoding(False), open(0).encoding, '中文')"
    )
    result = asyncio.run(
        run([sys.executable, "-c", script], cwd=tmp_path, env=environment, timeout_s=20, output_cap=10_000)
    )
    assert result.output.decode().lower().split() == ["utf-8", "utf-8", "utf-8", "中文"]


NOT_OURS = ("_", "SHLVL", "PWD", "OLDPWD", "MX_CLAW_RUN_ID")  # bash's, and the run's id


def test_a_command_sees_exactly_that(shell: Any) -> None:
    environment = command_environment({"PATH": os.environ["PATH"], "SECRET": "x"})
    result = asyncio.run(shell.run("env -0", env=environment))
    seen = dict(item.split("=", 1) for item in result.output.decode().split("\0") if item)
    assert {name: value for name, value in seen.items() if name not in NOT_OURS} == environment
