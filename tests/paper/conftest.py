"""Made-up results that equal the published cells, so that every expected value is known."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ppas.paper.study import Study

REPOSITORY = Path(__file__).parents[2]
PUBLISHED = REPOSITORY / "data" / "published"
EXPERIMENTS = {"rtx5090_primary": 9, "rtx5090_primary_high_load": 10}
REQUESTS, SEEDS = 21, 2  # with 21 requests, P95 is the second largest value
STATIC = ["MBT 1k", "MBT 2k", "MBT 4k", "MBT 8k", "MBT 16k"]


def run_records(cell: dict, experiment: str, seed: int) -> pd.DataFrame:
    """A run whose metrics are those of ``cell``; ``completed_s`` only carries the makespan."""
    mean, p95, burst = cell["e2e_mean_s"], cell["e2e_p95_s"], cell["burst"]
    tpot = cell.get("tpot_mean_s", mean / 100)
    rest = (REQUESTS * mean - 2 * p95) / (REQUESTS - 2)
    arrival = np.arange(REQUESTS) + seed / 10
    e2e = np.array([rest] * (REQUESTS - 2) + [p95] * 2)
    ttft = e2e - mean + cell.get("ttft_mean_s", mean - 31 * tpot)
    return pd.DataFrame(
        {
            "experiment": experiment,
            "model": "Qwen2.5-3B",
            "hardware": "RTX5090",
            "scheduler": cell["scheduler"],
            "run_id": f"{cell['scheduler']}-{burst}-{seed}",
            "seed": seed,
            "burst_rate": float(burst),
            "request_id": range(REQUESTS),
            "arrival_s": arrival,
            "prompt_tokens": 25000,
            "output_tokens": 32,
            "first_token_s": arrival + ttft,
            "completed_s": arrival[0] + cell["makespan_s"],
            "ttft_s": ttft,
            "tpot_s": tpot,
            "e2e_s": e2e,
            "error": pd.Series([None] * REQUESTS, dtype="string"),
            "phases": f"10:0.2,10:{burst},10:0.2,10:{burst},10:0.2",
            "source": "simulated",
        }
    )


def write_results(folder: Path) -> None:
    """One Parquet per (experiment, scheduler), as the workflow leaves them, and a step log."""
    for experiment, table in EXPERIMENTS.items():
        path = folder / "simulated" / experiment
        path.mkdir(parents=True)
        cells = Study(published=PUBLISHED).published(table)
        wide = cells.pivot(index=["scheduler", "burst"], columns="metric", values="value")
        for name, rows in wide.reset_index().groupby("scheduler"):
            records = [
                run_records(cell, experiment, seed)
                for cell in rows.to_dict("records")
                for seed in range(SEEDS)
            ]
            slug = name.lower().replace(" ", "_")
            pd.concat(records, ignore_index=True).to_parquet(path / f"{slug}.parquet")
    log = folder / "simulated" / "rtx5090_primary_timeline"
    log.mkdir()
    step_log().to_parquet(log / "steps.parquet")


def step_log() -> pd.DataFrame:
    """A pause before step 4; pressure in steps 1 and 2."""
    steps = pd.DataFrame(
        {
            "time_s": [1.0, 2.0, 2.5, 3.0, 6.0],
            "duration_s": [1.0, 0.5, 0.5, 1.0, 1.0],
            "prefills_running": [1, 1, 1, 0, 1],
            "prefills_waiting": [0, 2, 1, 0, 0],
            "decodes_running": [0, 1, 2, 3, 0],
            "budget": [16384, 2048, 2048, 16384, 16384],
            "reason": ["low", "count", "count", "low", "low"],
        }
    )
    unused = dict.fromkeys(
        ["residual_prefill", "scheduled_tokens", "prefill_tokens", "recomputed_tokens"], 0
    )
    return steps.assign(scheduler="P-PAS", seed=0, burst_rate=1.0, step=range(5), **unused)


@pytest.fixture(scope="session")
def results(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "results"
    write_results(folder)
    return folder


@pytest.fixture(scope="session")
def conf(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("conf")
    (folder / "cost_model").mkdir()
    text = f"fit:\n  cells:\n    - {{table: '9', schedulers: {STATIC}}}\n"
    (folder / "cost_model" / "qwen2_5_3b_rtx5090.yaml").write_text(text)
    return folder


@pytest.fixture(scope="session")
def study(results, conf) -> Study:
    return Study(results, PUBLISHED, conf)
