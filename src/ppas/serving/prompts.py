"""Prompts of token ids that no prefix cache can know, and the calls that carry them."""

import random

from ppas.schema import ModelConfig
from ppas.serving.client import Call
from ppas.workload import Trace

RANDOM_IDS = 128  # that begin a prompt, so that no two share a prefix (as in the paper's study)
FIRST_ID = 2  # below lie the ids with which models begin and end a text


def make_prompt(tokens: int, model: ModelConfig, salt: str) -> list[int]:
    """A prompt of ``tokens`` ids: random ones by the salt, then a filler.

    What is computed for a token does not depend on which it is, so the filler changes no time.
    """
    rng = random.Random(salt)
    head = [rng.randrange(FIRST_ID, model.vocab_size) for _ in range(min(tokens, RANDOM_IDS))]
    return head + [FIRST_ID] * (tokens - len(head))


def make_calls(trace: Trace, model: ModelConfig, salt: str) -> list[Call]:
    """A trace's requests; another salt makes prompts that share no prefix with these."""
    return [
        Call(arrival, make_prompt(prompt, model, f"{salt}/{i}"), output)
        for i, (arrival, prompt, output) in enumerate(
            zip(trace.arrivals_s, trace.prompt_tokens, trace.output_tokens, strict=True)
        )
    ]
