"""Figure 6: a prefill delays active decodes, less so in small chunks.

Drawn from the step list of a small simulation with the primary study's cost model: some requests
decode when one prompt arrives, which fits a large budget once and a small one several times.
"""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppas.paper.figures import style
from ppas.paper.study import Study

EXPERIMENTS = ("rtx5090_primary",)
BUDGETS = ("mbt_16k", "mbt_2k")  # in conf/experiment, from one iteration to several
DECODES = 3  # requests that decode while the prompt arrives
OUTPUT = 64  # tokens of each, enough to outlast the prompt's prefill
LEAD_S = 0.05  # shown before the prompt arrives
TAIL = 1.15  # shown of the longest prefill, as a multiple


def plot(study: Study) -> Figure:
    """Steps against time in milliseconds since the prompt arrived, one panel per budget."""
    config = study.config(*EXPERIMENTS)
    large, small = (config["schedulers"][slug]["max_num_batched_tokens"] for slug in BUDGETS)
    prompt = (small - DECODES) * (large // small)  # with the decodes, it fills whole steps
    logs = {slug: step_list(config, slug, prompt) for slug in BUDGETS}
    end = max(log.loc[log["prefill_tokens"] > 0, "end_s"].max() for log in logs.values())
    figure, panels = plt.subplots(nrows=len(BUDGETS), sharex=True, figsize=style.SINGLE)
    for axes, letter, (slug, log) in zip(panels, "ab", logs.items(), strict=True):
        _steps(axes, log[log["end_s"] <= end * TAIL])
        iterations = int((log["prefill_tokens"] > 0).sum())
        name = config["schedulers"][slug]["name"]
        plural = "s" if iterations > 1 else ""
        axes.set_title(f"({letter}) {name}: the prefill takes {iterations} iteration{plural}")
    source = config["cost_model"]["source"]
    panels[-1].set(xlabel=f"Time since the prompt arrived [s], {source}")
    handles = panels[0].get_legend_handles_labels()[0]
    figure.legend(handles=handles, ncols=len(handles), loc="outside lower center")
    figure.set_layout_engine("constrained")
    return figure


def step_list(config: dict, slug: str, prompt: int) -> pd.DataFrame:
    """Steps since the prompt arrived: start and end in seconds, prefill and decode tokens."""
    from ppas.simulator.cost_model import CostModel

    cost = CostModel(**config["cost_model"]["coefficients"])
    context = config["workload"]["prompt_tokens"][0]
    budget = config["schedulers"][slug]["max_num_batched_tokens"]
    decodes = [(0.0, context, OUTPUT)] * DECODES
    served, _ = _simulate(config, cost, budget, decodes)
    # All decode once the last of them has its first token.
    arrival = float(served["first_token"].max())
    _, steps = _simulate(config, cost, budget, [*decodes, (arrival, prompt, 1)])
    log = pd.DataFrame({name: steps[name] for name in steps.dtype.names})
    log["start_s"] = log["time_s"] - arrival
    log["end_s"] = log["start_s"] + log["duration_s"]
    log["decode_tokens"] = log["scheduled_tokens"] - log["prefill_tokens"]
    return log[log["start_s"] >= -LEAD_S]


def _simulate(config: dict, cost, budget: int, shapes: list) -> tuple[np.ndarray, np.ndarray]:
    from ppas.policies import make_policy
    from ppas.simulator.engine import REQUEST, EngineOptions, simulate

    requests = np.zeros(len(shapes), REQUEST)
    requests["arrival"], requests["prompt"], requests["output"] = zip(*shapes, strict=True)
    requests["first_token"] = requests["completed"] = -1
    engine = config["engine"]
    tokens = int(requests["prompt"].sum() + requests["output"].sum())
    options = EngineOptions(
        max_num_batched_tokens=budget,
        max_num_seqs=engine["max_num_seqs"],
        kv_blocks=tokens // engine["block_size"] + len(shapes),  # room for all of them
        block_size=engine["block_size"],
        watermark_blocks=0,
        reserve_full_prompt=engine["reserve_full_prompt"],
        steps_in_flight=2 if engine["async_scheduling"] else 1,
    )
    policy = make_policy("static", budget_limit=budget)
    _, steps, _ = simulate(requests, policy, options, cost, True, False)
    return requests, steps


def _steps(axes: Axes, log: pd.DataFrame) -> None:
    mixed = log["prefill_tokens"] > 0
    for rows, look, label in (
        (log[mixed], style.PREFILL_STEP, "step with prefill"),
        (log[~mixed], style.DECODE_STEP, "decodes only"),
    ):
        spans = rows[["start_s", "duration_s"]].to_numpy()
        axes.broken_barh(spans, (0, 1), label=label, **look)
    tokens = log[log["decode_tokens"] > 0]
    height = np.ones(len(tokens))
    label = "every decode gets a token"
    axes.plot(tokens["end_s"], height, clip_on=False, label=label, **style.TOKEN)
    axes.set(yticks=[], ylim=(0, 1), xlim=(-LEAD_S, log["end_s"].max()))
