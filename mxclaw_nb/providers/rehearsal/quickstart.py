"""The built-in script: a demonstration of a turn with no key and no network, led only by the conversation.

It plays a few scenes (look around, write a file, run a command, a long reply, markdown), in English or Chinese, says
that it is a rehearsal, and quotes only results that it was really given.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .conversation import Conversation, Result, conversation
from .script import ChatRequest, Speech, call, say

PAUSE_S = 0.022
"""Seconds between chunks: about 40 a second, so that one sees the streaming."""

NOTES = "rehearsal-notes.md"
COUNT_COMMAND = f"wc -l {NOTES}"
PYTHON_COMMAND = "python --version && python -c 'print(6 * 7)'"

_READABLE = (".md", ".txt", ".rst", ".py", ".toml", ".cfg", ".csv")


def quickstart(request: ChatRequest) -> Speech:
    """The reply of the ``rehearsal`` provider."""
    turn = conversation(request)
    scene = next((scene for pattern, scene in _SCENES if pattern.search(turn.prompt[:500])), _other)
    return scene(turn).paced(PAUSE_S)


def _look_around(turn: Conversation) -> Speech:
    listing, reading = turn.result("list_dir"), turn.result("read_file")
    written, counted = turn.result("write_file"), turn.result("run_command")
    denied = any(result.outcome == "denied" for result in turn.results)
    if turn.can("list_dir"):
        return call("list_dir", path=".").saying(
            turn.pick(
                "This is a rehearsal: a script replies, not a model, but every tool is real. "
                "I will look around this folder first.",
                "这是一次排练（rehearsal）：回复的是脚本，不是模型，但每个工具都是真的。我先看看这个文件夹。",
            )
        )
    file = _file_to_read(listing) if listing and listing.outcome == "ok" else None
    if file and turn.can("read_file") and not denied:
        return call("read_file", path=file, limit=20).saying(
            turn.pick(
                f"I can see a file called `{file}`. Let me read its beginning.",
                f"我看到文件 `{file}`，读一下它的开头。",
            )
        )
    if listing and listing.outcome == "ok" and turn.can("write_file") and not denied:
        return call("write_file", path=NOTES, content=_notes(turn, listing, file, reading)).saying(
            turn.pick(
                f"I would like to write down what I found, in a small file `{NOTES}`. "
                "This changes your folder, so it needs permission.",
                f"我想把看到的内容写进一个小文件 `{NOTES}`。这会改动你的文件夹，所以需要许可。",
            )
        )
    if written and written.outcome == "ok" and turn.can("run_command") and not denied:
        return call("run_command", command=COUNT_COMMAND).saying(
            turn.pick(
                "It is written. A command will tell how long it is; that needs permission, too.",
                "写好了。再用一条命令数一数它有几行；这同样需要许可。",
            )
        )
    return say(
        "\n\n".join(
            part
            for part in (
                turn.pick("## What this rehearsal did", "## 这次排练做了什么"),
                _told(turn, listing, turn.pick("The folder, as `list_dir` gave it:", "`list_dir` 给出的文件夹内容：")),
                _told(turn, reading, turn.pick(f"The beginning of `{file}`:", f"`{file}` 的开头：")),
                _told(turn, written, turn.pick(f"Writing `{NOTES}` gave:", f"写入 `{NOTES}` 的结果：")),
                _told(turn, counted, turn.pick(f"`{COUNT_COMMAND}` printed:", f"`{COUNT_COMMAND}` 的输出：")),
                _not_offered(turn, "list_dir", "write_file", "run_command"),
                _signature(turn),
            )
            if part
        )
    )


def _write_file(turn: Conversation) -> Speech:
    if turn.can("write_file"):
        content = turn.pick(
            "# Rehearsal notes\n\nWritten by a script, not by a model, because it was asked to:\n\n",
            "# 排练笔记\n\n由脚本写成，不是模型写的，因为收到了这样的请求：\n\n",
        )
        return call("write_file", path=NOTES, content=f"{content}> {_one_line(turn.prompt)}\n").saying(
            turn.pick(
                f"This is a rehearsal: a script replies, not a model. I propose a small file `{NOTES}`; "
                "it is written only with permission.",
                f"这是一次排练（rehearsal）：回复的是脚本，不是模型。我提议写一个小文件 `{NOTES}`，得到许可才会写。",
            )
        )
    return _ending(turn, turn.result("write_file"), turn.pick("Writing the file gave:", "写文件的结果："), "write_file")


def _run_command(turn: Conversation) -> Speech:
    if turn.can("run_command"):
        return call("run_command", command=PYTHON_COMMAND).saying(
            turn.pick(
                "This is a rehearsal: a script replies, not a model. The command below is real; "
                "it runs only with permission.",
                "这是一次排练（rehearsal）：回复的是脚本，不是模型。下面的命令是真的，得到许可才会运行。",
            )
        )
    return _ending(turn, turn.result("run_command"), turn.pick("The command gave:", "命令的结果："), "run_command")


def _long_reply(turn: Conversation) -> Speech:
    opening = turn.pick(
        "This is a rehearsal: a script replies, not a model. Here is a long reply, so that you can watch it stream, "
        "scroll, or interrupt it.",
        "这是一次排练（rehearsal）：回复的是脚本，不是模型。下面是一段长回复，你可以看它逐步显示、滚动，或者中途打断它。",
    )
    line = turn.pick(
        "Line {n} of 40: nothing is thought here, but every chunk came over a real connection.",
        "第 {n} 行，共 40 行：这里没有任何思考，但每一小段都来自真实的网络连接。",
    )
    lines = "\n".join(f"{n}. {line.format(n=n)}" for n in range(1, 41))
    return say(f"{opening}\n\n{lines}\n\n{_signature(turn)}")


def _markdown(turn: Conversation) -> Speech:
    opening = turn.pick(
        "This is a rehearsal: a script replies, not a model. This is how markdown looks here:",
        "这是一次排练（rehearsal）：回复的是脚本，不是模型。这里的 markdown 是这样显示的：",
    )
    table = turn.pick(
        "| tool | needs approval | changes files |\n|---|:---:|:---:|\n| `list_dir` | no | no |\n"
        "| `read_file` | no | no |\n| `write_file` | yes | yes |\n| `run_command` | yes | perhaps |",
        "| 工具 | 需要同意 | 改动文件 |\n|---|:---:|:---:|\n| `list_dir` | 否 | 否 |\n| `read_file` | 否 | 否 |\n"
        "| `write_file` | 是 | 是 |\n| `run_command` | 是 | 可能 |",
    )
    lists = turn.pick(
        "1. **bold**, *italic* and `code`\n2. a nested list:\n   - one\n   - two\n\n> and a quotation",
        "1. **粗体**、*斜体* 和 `代码`\n2. 嵌套的列表：\n   - 一\n   - 二\n\n> 以及一段引用",
    )
    code = '```python\ndef greet(name: str) -> str:\n    return f"Hello, {name}!"\n```'
    return say(f"{opening}\n\n{table}\n\n{lists}\n\n{code}\n\n{_signature(turn)}")


def _other(turn: Conversation) -> Speech:
    asked = _one_line(turn.prompt) or turn.pick("(nothing)", "（空）")
    tools = ", ".join(f"`{name}`" for name in sorted(turn.offered)) or turn.pick("none", "无")
    return say(
        turn.pick(
            f"This is a rehearsal: a script replies, not a model, so I cannot answer this:\n\n> {asked}\n\n"
            f"It did arrive, though, as one of {turn.message_count} messages, with these tools: {tools}. "
            "Prompts that the script knows:\n\n"
            "- `look around this folder`: lists, reads, writes and runs, with your approval\n"
            "- `write a file`\n- `run a command`\n- `long reply`\n- `show a table`\n\n"
            "For real answers, configure a provider.",
            f"这是一次排练（rehearsal）：回复的是脚本，不是模型，所以我无法回答：\n\n> {asked}\n\n"
            f"不过它确实送到了：共 {turn.message_count} 条消息，可用工具：{tools}。脚本认识这些提示：\n\n"
            "- `看看这个文件夹`：列目录、读文件、写文件、运行命令，都会征得你的同意\n"
            "- `写一个文件`\n- `运行一条命令`\n- `长回复`\n- `显示一个表格`\n\n"
            "想要真正的回答，请配置一个模型提供方（provider）。",
        )
    )


_SCENES: tuple[tuple[re.Pattern[str], Callable[[Conversation], Speech]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), scene)
    for pattern, scene in (
        (r"\blong(er)? (reply|answer|text|message)|长回复|长回答|长文|长一点", _long_reply),
        (r"\b(table|markdown)\b|表格|排版", _markdown),
        (r"\blook (around|at|into)|\bexplore\b|\b(folder|directory)\b|看看|看一下|文件夹|目录|浏览", _look_around),
        (r"\b(write|create|make|save)\b.*\b(file|note|notes)\b|[写建存].{0,8}(文件|笔记)", _write_file),
        (
            r"\b(run|execute)\b.*\b(command|shell|something|python|it)\b|(运行|执行|跑).{0,6}(命令|指令|代码)",
            _run_command,
        ),
    )
)


def _file_to_read(listing: Result) -> str | None:
    """A text file that the listing names, a README first."""
    names = [line.split("  ")[0].strip() for line in listing.text.splitlines() if " -> " not in line]
    names = [name for name in names if name.lower().endswith(_READABLE) and name != NOTES and name[0] not in ".("]
    by_kind = sorted(names, key=lambda name: next(n for n, kind in enumerate(_READABLE) if name.lower().endswith(kind)))
    return min(by_kind, key=lambda name: not name.lower().startswith("readme"), default=None)


def _notes(turn: Conversation, listing: Result, file: str | None, reading: Result | None) -> str:
    parts = [
        turn.pick(
            "# Rehearsal notes\n\nWritten by a script, not by a model, from what it was given in this folder.",
            "# 排练笔记\n\n由脚本写成，不是模型写的，内容来自它在这个文件夹里得到的结果。",
        ),
        turn.pick("## The folder", "## 文件夹"),
        listing.quote(lines=20),
    ]
    if file and reading and reading.outcome == "ok":
        parts += [turn.pick(f"## The beginning of {file}", f"## {file} 的开头"), reading.quote(lines=5, characters=400)]
    return "\n\n".join(parts) + "\n"


def _told(turn: Conversation, result: Result | None, introduction: str) -> str:
    """What came of a call: its result, or what kept it from having one."""
    if result is None:
        return ""
    if result.outcome == "denied":
        return turn.pick(
            f"**Denied:** `{result.tool}` was not allowed, so I did not do it and go no further.\n\n",
            f"**已被拒绝：** `{result.tool}` 没有得到允许，所以我没有执行，也不再继续。\n\n",
        ) + result.quote(lines=4)
    if result.outcome == "failed":
        return turn.pick(f"`{result.tool}` did not succeed:\n\n", f"`{result.tool}` 没有成功：\n\n") + result.quote(
            lines=6
        )
    return f"{introduction}\n\n{result.quote(lines=8, characters=600)}"


def _not_offered(turn: Conversation, *tools: str) -> str:
    missing = ", ".join(f"`{tool}`" for tool in tools if tool not in turn.offered)
    if not missing:
        return ""
    return turn.pick(f"I was not given these tools: {missing}.", f"没有给我这些工具：{missing}。")


def _ending(turn: Conversation, result: Result | None, introduction: str, tool: str) -> Speech:
    parts = (_told(turn, result, introduction), _not_offered(turn, tool), _signature(turn))
    return say("\n\n".join(part for part in parts if part))


def _signature(turn: Conversation) -> str:
    if not turn.results:
        return turn.pick(
            "*This was a rehearsal: the words came from a script.*", "*以上是一次排练（rehearsal）：文字来自脚本。*"
        )
    return turn.pick(
        "*This was a rehearsal: the tools and their results were real, the words came from a script.*",
        "*以上是一次排练（rehearsal）：工具和结果都是真的，文字来自脚本。*",
    )


def _one_line(text: str, limit: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
