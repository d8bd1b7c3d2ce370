"""Table 5: total prefill time with small and large chunks (section 6.1).

The paper's numbers come from a profiler. Beside them stands what the cost models say about one
chunk of 16,384 tokens and about eight of 2,048; no such number was fitted to this table, but
Qwen2.5-3B's costs per context token come from Figure 5. Qwen2.5-7B has no cost model, for the
paper prints no serving cell of it. Where `ppas profile` measured the prefill, that is shown too.
"""

import pandas as pd

from ppas.paper.study import Study
from ppas.paper.tables.render import Layout
from ppas.paper.tidy import beside, rows_of

EXPERIMENTS = ("rtx5090_models_qwen2_5_0_5b", "rtx5090_primary")
PROFILED = ("times",)
TITLE = "Table 5: total prefill time of Qwen2.5 models"
LAYOUT = Layout(rows=("scheduler",), bold_lowest=False)
PROMPT = 16384  # tokens; Figure 5 compares chunks that add up to one of 16k
CHUNKS = {"MBT 2k": 2048, "MBT 16k": 16384}  # tokens
PAIR = "MBT 16k vs MBT 2k"
MS_PER_S = 1000
NO_LENGTH = pd.Series(dtype="Int64")  # as in the paper's table


def build(study: Study) -> pd.DataFrame:
    """Prefill time in milliseconds and its reduction in percent."""
    made = [_predicted(study.config(name)) for name in EXPERIMENTS]
    return beside(study.published(5), pd.concat([*made, *_measured(study)], ignore_index=True))


def _predicted(config: dict) -> pd.DataFrame:
    times = {name: prefill_s(config, chunk) for name, chunk in CHUNKS.items()}
    small, large = times.values()
    rows = [(None, name, "prefill_ms", seconds * MS_PER_S) for name, seconds in times.items()]
    rows.append((None, PAIR, "reduction_pct", (1 - large / small) * 100))
    return rows_of(config, config["cost_model"]["source"], rows)


def _measured(study: Study) -> list[pd.DataFrame]:
    """Profiled times, and reductions of what the same tool timed; the paper prints no length."""
    times = study.profiles(["prefill_ms"], PROMPT).assign(prompt_tokens=NO_LENGTH)
    made = []
    for _, rows in times.groupby(["model", "hardware", "tool"]):
        made.append(rows)
        value = rows.set_index("scheduler")["value"]
        if set(CHUNKS) <= set(value.index):
            small, large = value[list(CHUNKS)]
            reduction = (1 - large / small) * 100
            setting = {"scheduler": PAIR, "metric": "reduction_pct", "std": None}
            made.append(rows.head(1).assign(value=reduction, **setting))
    return made


def prefill_s(config: dict, chunk: int) -> float:
    """Seconds that the GPU takes for one prompt alone, in equal chunks."""
    from ppas.simulator.cost_model import CostModel, Work, step_time

    cost = CostModel(**config["cost_model"]["coefficients"])
    return sum(
        step_time(cost, Work(chunk, chunk, chunk * (done + chunk / 2), done, 0, 0))
        for done in range(0, PROMPT, chunk)
    )
