"""Run llama.cpp's server on a free loopback port, in a process of its own, until its standard input ends.

    python serve.py SITE MODEL KEY CONTEXT_TOKENS REPLY_TOKENS

Prints the address as the first line of its standard output. One slot, one thread, no GPU;
REPLY_TOKENS bounds a reply whose request names no bound.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Start, say where, and wait for the parent to close our input (or to die, which is the same)."""
    site, model, key, context_tokens, reply_tokens = sys.argv[1:]
    sys.path.insert(0, site)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"smollm2"}
    params.api_keys = [key]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = int(context_tokens)
    params.n_predict = int(reply_tokens)
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.endpoint_slots = True
    params.ctx_shift = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
