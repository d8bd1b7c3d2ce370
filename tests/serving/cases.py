"""Fixed random workloads: recorded once from each vLLM version, compared ever after."""

import json
import random
from pathlib import Path

from .lockstep import Case, Steps

GOLDEN = Path(__file__).parents[1] / "golden"
COUNT = 24
POLICIES = (
    {"policy": "static"},
    {"policy": "ppas", "b_cap": 24, "cap_scope": "prefill"},
    {"policy": "ppas", "b_cap": 40, "n_th": 1},
    {"policy": "ppas_plus", "b_cap": 32, "t_large": 300},
)


def golden_cases() -> list[Case]:
    """Workloads of all policies, synchronous and asynchronous, with plenty and with few blocks."""
    rng = random.Random(20260815)
    cases = []
    for k in range(COUNT):
        arrival, requests = 0.0, []
        for _ in range(14):
            arrival += rng.choice((0, 0.5, 2, 7))
            requests.append((arrival, rng.randint(1, 500), rng.randint(1, 40)))
        cases.append(
            Case(
                requests=tuple(requests),
                max_num_batched_tokens=rng.choice((64, 128, 200)),
                max_num_seqs=rng.choice((3, 8)),
                kv_blocks=rng.choice((36, 50, 200)),
                steps_in_flight=1 + k % 2,
                reserve_full_prompt=rng.random() < 0.5,
                policy=POLICIES[k % len(POLICIES)],
            )
        )
    return cases


def write_golden(version: str, logs: list[Steps]) -> Path:
    """Keep what a vLLM version scheduled: per case and step, [request, tokens] pairs."""
    path = GOLDEN / f"steps_vllm_{version}.json"
    lines = [
        json.dumps([list(step.items()) for step in log], separators=(",", ":")) for log in logs
    ]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return path


def read_golden(path: Path) -> list[Steps]:
    """The recorded steps of every case."""
    return [[dict(step) for step in log] for log in json.loads(path.read_text())]
