"""llama.cpp's own server, as a process: `python -m tests.remote.llama_server TARGET none|long|ngram|DRAFT.gguf [KEY]`.

`long` is without drafting too, and with room for a reply that takes minutes.
"""

import sys
import threading

LONG = 16_384
"""Tokens of a context."""


def main(target: str, drafting: str, key: str = "") -> None:
    import xllamacpp  # type: ignore[import-not-found,unused-ignore]

    given = xllamacpp.CommonParams()
    given.model.path, given.hostnames, given.port = target, ["127.0.0.1"], 0
    given.n_ctx, given.n_parallel, given.warmup = 2 * (LONG if drafting == "long" else 1024), 2, False
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
    given.endpoint_metrics = given.endpoint_slots = given.endpoint_props = True
    types = xllamacpp.common_speculative_type
    if drafting == "ngram":
        given.speculative.types = [types.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    elif drafting not in ("none", "long"):
        given.speculative.types = [types.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        draft = given.speculative.draft
        draft.mparams.path, draft.n_max, draft.n_min, draft.p_min = drafting, 4, 0, 0.0
    if key:
        given.api_keys = [key]
    server = xllamacpp.Server(given)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
