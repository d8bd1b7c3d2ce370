"""How long each step of a running engine took, from the moments at which it was decided.

The plugin's step log has one row per call of vLLM's ``schedule()``, and no end of a step. It
follows from the engine's loop (vllm/v1/engine/core.py): a synchronous engine decides on step k+1
when step k is done; an asynchronous one keeps two steps in flight, so it decides on step k+1 when
step k starts and on step k+2 when step k is done.
"""

import numpy as np


def step_durations(time_s: np.ndarray, busy: np.ndarray, steps_in_flight: int) -> np.ndarray:
    """Seconds from the moment a step could start on the GPU until the engine had its result.

    A step ends with the call that is ``steps_in_flight`` later, and starts when it is decided or
    when the step before it ends, whichever is later. Between busy steps this is the interval of
    two calls: with two in flight, the one that follows the next decision. What an idle engine
    waits for is never part of a step.

    Args:
        time_s: when each call of ``schedule()`` began, empty calls included, in order.
        busy: whether the call scheduled anything.
        steps_in_flight: 2 for asynchronous scheduling, 1 for synchronous.

    Returns:
        One duration per call; nan where the call was empty or the log ends before the step.
    """
    ends = np.full(len(time_s), np.nan)
    ends[: len(ends) - steps_in_flight] = time_s[steps_in_flight:]
    starts = np.array(time_s, float)
    starts[1:] = np.where(busy[:-1], np.maximum(starts[1:], ends[:-1]), starts[1:])
    return np.where(busy, ends - starts, np.nan)
