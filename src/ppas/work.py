"""What one step asks of the GPU, counted alike by the simulator and by the plugin's step log.

Plain Python that numba compiles, as in ``ppas.policies``: the simulator runs it compiled, the
plugin interpreted.
"""

from typing import NamedTuple


class Work(NamedTuple):
    """One step's batch, in tokens; what the cost model is linear in."""

    new_tokens: int  # prefill and decode tokens computed
    prefill_tokens: int
    attention_pairs: float  # sum of chunk * (computed + chunk / 2) over prefill chunks
    reloaded: int  # sum of computed tokens over prefill chunks
    decode_context: int  # sum of computed tokens over decodes
    decode_context_max: int


COLUMNS = ("scheduled_tokens", *Work._fields[1:])  # as step logs name them
NO_WORK = Work(0, 0, 0.0, 0, 0, 0)


def add_chunk(w: Work, tokens: int, computed: int, prefill: bool) -> Work:
    """A batch with one more request, which gets ``tokens`` behind its ``computed`` ones.

    A decode computes the last token it knows; whoever has more to compute is a prefill, also
    where it recomputes what a preemption dropped.
    """
    new = w.new_tokens + tokens
    if prefill:
        pairs = w.attention_pairs + tokens * (computed + 0.5 * tokens)
        return Work(new, w.prefill_tokens + tokens, pairs, w.reloaded + computed,
                    w.decode_context, w.decode_context_max)  # fmt: skip
    longest = max(w.decode_context_max, computed)
    return Work(new, w.prefill_tokens, w.attention_pairs, w.reloaded,
                w.decode_context + computed, longest)  # fmt: skip
