"""The rehearsal: a loopback OpenAI-compatible server that plays a scripted model over real HTTP and SSE.

Everything around it is real (sockets, streaming, tools, approvals); only the brain is a script. The built-in
``quickstart`` script is what the ``rehearsal`` provider plays; tests play their own::

    async with RehearsalServer(sequence(call("list_dir", path="."), say("Done."))) as server:
        ...  # ask server.base_url with server.token, then look at server.requests
"""

from .quickstart import quickstart
from .script import (
    ChatMessage,
    ChatRequest,
    HttpError,
    RawFrames,
    Reply,
    Script,
    ScriptedCall,
    Speech,
    call,
    calls,
    chunks,
    fail,
    raw,
    say,
    sequence,
)
from .server import RehearsalServer

__all__ = [
    "ChatMessage",
    "ChatRequest",
    "HttpError",
    "RawFrames",
    "RehearsalServer",
    "Reply",
    "Script",
    "ScriptedCall",
    "Speech",
    "call",
    "calls",
    "chunks",
    "fail",
    "quickstart",
    "raw",
    "say",
    "sequence",
]
