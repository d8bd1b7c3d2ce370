"""Step time of one GPU: a physical model with a named unit for each coefficient.

``ppas.work`` sums up a step's batch; ``step_time`` turns it into seconds. The form follows from
what a step does: it reads the weights, multiplies the new tokens, and attends over their contexts.
"""

from typing import NamedTuple

from numba import njit

from ppas.work import Work


class CostModel(NamedTuple):
    """Coefficients of one (model, GPU) pair; every one is >= 0.

    A step without prefill runs as a CUDA graph and is bound by reading weights and KV; a step
    with prefill also pays for its tokens, and there decodes are slower.
    """

    t_decode: float  # s per decode-only step
    kv_decode: float  # s per context token of a decode-only step
    t_mixed: float  # s per step with prefill
    per_token: float  # s per new token of a step with prefill
    attention: float  # s per (new token x context token) of a prefill chunk
    kv_reload: float  # s per context token that a prefill chunk finds computed
    kv_mixed: float  # s per context token of the decodes of a step with prefill
    kv_tail: float  # s per context token of that step's longest decode
    client_submit: float  # s from a request's arrival until the engine has it
    client_complete: float  # s from its last token until the client has the response


@njit(cache=True)
def step_time(c: CostModel, w: Work) -> float:
    """Seconds that the GPU takes for a step."""
    if w.prefill_tokens == 0:
        return c.t_decode + c.kv_decode * w.decode_context
    return (
        c.t_mixed
        + c.per_token * w.new_tokens
        + c.attention * w.attention_pairs
        + c.kv_reload * w.reloaded
        + c.kv_mixed * w.decode_context
        + c.kv_tail * w.decode_context_max
    )
