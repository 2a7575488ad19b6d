"""The disaster floor: what no mode lets through, and what it must leave alone."""

from __future__ import annotations

import pytest

from mxclaw_nb.permissions import disaster

HOME = "/home/u/.mx-claw"

REFUSED = [
    "rm -rf /",
    "rm -rf /*",
    "sudo rm -fr ~",
    "rm -r -f $HOME",
    "rm --recursive --force /",
    "rm -rf --no-preserve-root /",
    "rm -Rf ${HOME}/*",
    "rm -rf //",
    "rm -rf /usr/../",
    "rm -rf /etc/",
    'rm -rf "/"',
    "rm -rf '~'/ ~",
    "r\\m -rf /",
    "rm -rf \\\n /",
    "bash -c 'rm -rf /'",
    "sh -ec 'rm -rf /'",
    "eval 'rm -rf ~'",
    "echo hi; rm -rf /",
    "true && rm -rf /",
    "ls | xargs rm -rf /",
    "echo $(rm -rf /)",
    "echo `rm -rf /`",
    "(rm -rf /)",
    "if true; then rm -rf /; fi",
    "env X=1 rm -rf /",
    "nohup rm -rf / &",
    "timeout 5 rm -rf /",
    "nice -n 5 rm -rf /",
    "/bin/rm -rf /",
    "X=1 rm -rf /",
    "chmod -R 777 /",
    "chown -R me ~",
    "find / -delete",
    "find / -exec rm {} +",
    "mv / /tmp/x",
    ":(){ :|:& };:",
    "bomb() { bomb | bomb & }; bomb",
    "dd if=/dev/zero of=/dev/sda",
    "mkfs.ext4 /dev/sdb1",
    "mkfs /dev/sdb",
    "wipefs -a /dev/sda",
    "echo x > /dev/nvme0n1",
    "cp image /dev/sda",
    "shred /dev/sda",
    "sfdisk /dev/sda",
    "shutdown -h now",
    "reboot",
    "init 0",
    "systemctl poweroff",
    "kill -9 -1",
    "kill -1",
    "mxclaw approve a-1",
    "mxclaw",
    "/usr/local/bin/mxclaw deny x",
    "python -m mxclaw_nb approve x",
    "python3.11 -m mxclaw_nb.__main__ approve x",
    "env -i mxclaw approve a",
    "yes | mxclaw session delete s-1",
    "cat ~/.mx-claw/config.json",
    "sqlite3 /home/u/.mx-claw/mx-claw.db 'select 1'",
    "ls $HOME/.mx-claw",
    "cat /home/u/'.mx-claw'/config.json",
    "MX_CLAW_HOME=/tmp/x python x.py",
    "ls ${MX_CLAW_HOME}",
]

LEFT_ALONE = [
    "rm -rf build",
    "rm -rf ./dist",
    "rm -rf /tmp/scratch",
    "rm -r node_modules",
    "rm file",
    "rm -rf ~/projects/x/build",
    "echo 'rm -rf /'",
    "git commit -m 'never rm -rf /'",
    "grep -r 'rm -rf /' .",
    "chmod -R u+w build",
    "find . -delete",
    "find / -name x",
    "dd if=/dev/zero of=disk.img",
    "kill 123",
    "kill -9 123",
    "kill -1 123",
    "ls /dev/sda",
    "pip install mxclaw-nb",
    "mxclaw --version",
    "python -m pytest",
    "grep mxclaw README.md",
    "cat > f <<E\nhello\nE",
    "echo shutdown",
    "systemctl status",
    "ls ~/.mx-claw-other",
    "python -c 'print(1)'",
    "mv a b",
    "mkdir -p x",
    "",
    "git rm -r --cached x",
    "docker run --rm -it x",
    "echo a > b",
    "cat /dev/null > x",
    "echo x > /dev/null",
]


@pytest.mark.parametrize("command", REFUSED)
def test_a_catastrophe_is_refused_however_it_is_spelled(command: str) -> None:
    assert disaster(command, HOME)


@pytest.mark.parametrize("command", LEFT_ALONE)
def test_ordinary_work_is_left_alone(command: str) -> None:
    assert disaster(command, HOME) is None


@pytest.mark.parametrize("command", ["'" * 5000, "$(" * 5000, "`" * 999, "a;" * 20_000, "bash -c " * 3000, "\\" * 9999])
def test_hostile_text_neither_raises_nor_hangs(command: str) -> None:
    disaster(command, HOME)
