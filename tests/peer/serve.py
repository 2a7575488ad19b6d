"""Run llama.cpp's server on a free loopback port, in a process of its own, until its standard input ends.

Prints the address as the first line of its standard output. One slot, one thread, no GPU.
"""

from __future__ import annotations

import argparse
import os
import sys


def main() -> None:
    """Start, say where, and wait for the parent to close our input (or to die, which is the same)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", help="folder that xllamacpp is installed in")
    parser.add_argument("model", help="path of the .gguf file")
    parser.add_argument("key", help="the API key to ask for")
    parser.add_argument("--context-tokens", type=int, required=True)
    parser.add_argument("--reply-tokens", type=int, required=True, help="bound of a reply whose request names none")
    parser.add_argument("--endless", action="store_true", help="never stop before that bound")
    options = parser.parse_args()
    sys.path.insert(0, options.site)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {"smollm2"}
    params.api_keys = [options.key]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = options.context_tokens
    params.n_predict = options.reply_tokens
    params.sampling.ignore_eos = options.endless
    params.sampling.temp = 0.0
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
