"""Rules on what was run: requests, step logs, configurations and budgets."""

from types import SimpleNamespace

from ppas.metrics import matched_requests, with_run_shapes
from ppas.paper.finding import (
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    NOT_EVALUATED,
    Finding,
    MissingCell,
    Rule,
    Side,
    clearly,
    worst,
)
from ppas.paper.tables import oracle_regret

TRACE = ["arrival_s", "prompt_tokens", "output_tokens"]
CAPPED = ("count", "large")  # reasons for the small budget, in step logs
SECONDS_PER_HOUR = 3600


def _same_traces(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """Equal arrivals and lengths, request by request, for every scheduler of a seed and rate."""
    present = ours.records.groupby("experiment")["scheduler"].transform("nunique")
    compared = ours.records[present > 1].assign(present=present)
    if compared.empty:
        raise MissingCell(f"{ours.source}: one scheduler has nothing to compare with")
    lengths = with_run_shapes(compared)[TRACE[1:]].add_prefix("run_")
    trace = ["experiment", "model", "hardware", "phases", "burst_rate", "seed", *lengths]
    requests = compared.join(lengths).groupby([*trace, "request_id"], dropna=False)
    counts = requests[[*TRACE, "scheduler"]].nunique()
    equal = counts[TRACE].eq(1).all(axis=1) & counts["scheduler"].eq(requests["present"].first())
    traces = equal.groupby(trace, dropna=False).all()
    most = compared["present"].max()
    got = f"{traces.sum()} of {len(traces)} traces equal for up to {most} schedulers"
    return Finding("", got, HOLDS if traces.all() else FAILS)


def _request_wins(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """Share of matched requests that are faster, and exactly the paper's number of them."""
    rows = ours.rows[ours.rows["model"] == rule["model"]]
    wins, matched = (
        rows[rows["metric"] == name].set_index("burst")
        for name in ("request_wins_pct", "matched_requests")
    )
    asked = wins[wins["published"].notna()]
    if asked["value"].isna().any() or asked.empty:
        raise MissingCell(f"{ours.source}: no matched requests of {rule['model']}")
    texts = [
        f"{share:.1f}% of {matched.loc[label, 'value']:.0f} ({label})"
        for label, share in wins["value"].items()
    ]
    label, share = asked.index[0], asked["value"].iloc[0]
    printed = asked["published"].iloc[0]
    exact = matched.loc[label, "value"] == matched.loc[label, "published"]
    near = abs(share - printed) <= tolerance["points"]
    published = f"{printed:.1f}% of {matched.loc[label, 'published']:.0f}"
    return Finding(published, "; ".join(texts), HOLDS if exact and near else FAILS)


def _best_static(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """The fixed MBT with the lowest mean over all conditions is the paper's, per model.

    The mean is unweighted, in seconds, so heavy conditions weigh most.
    """
    published, got, verdicts = [], [], []
    for model, name in rule["best"].items():
        cells = ours.cells[ours.cells["metric"] == rule["metric"]]
        static = cells["scheduler"].str.startswith("MBT") & (cells["model"] == model)
        means = cells[static].groupby("scheduler")["value"].mean()
        if name not in means:
            raise MissingCell(f"{ours.source}: no {name} for {model}")
        rivals = means.drop(name)
        lead = (1 - means[name] / rivals.min()) * 100
        verdicts.append(clearly(lead, tolerance["inconclusive_pct"]))
        published.append(f"{name} for {model}")
        got.append(f"{name} {lead:+.1f}% under {rivals.idxmin()} for {model}")
    return Finding("; ".join(published), "; ".join(got), worst(verdicts))


def _oracle_regret(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """How far the better endpoint lies above the best fixed MBT, at the named output lengths."""
    table = oracle_regret.build(ours.study)
    table = table[(table["source"] == ours.source) & table["output_tokens"].isin(rule["outputs"])]
    text = ours.study.published("text")
    bound = text.loc[text["metric"] == "oracle_regret_pct", "value"].item()
    worst_row = table.loc[table["regret_pct"].idxmax()]
    where = f"{worst_row['output_tokens']} outputs at {worst_row['burst']} requests/s"
    got = f"at most {worst_row['regret_pct']:.1f}% ({where}, best {worst_row['oracle']})"
    over = worst_row["regret_pct"] - bound
    margin = tolerance["inconclusive_pct"]
    verdict = HOLDS if over <= 0 else INCONCLUSIVE if over <= margin else FAILS
    return Finding(f"within {bound:g}%", got, verdict)


def _beats_endpoints(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """At one output length under high load, the named MBT beats both endpoints."""
    table = oracle_regret.build(ours.study)
    table = table[(table["source"] == ours.source) & (table["output_tokens"] == rule["output"])]
    row = table.loc[table["burst"].astype(float).idxmax()]
    text = ours.study.published("text")
    text = text[(text["table"] == "10.1") & text["scheduler"].notna()]
    published = f"{text['scheduler'].item()}: {text['value'].item():g}% lower"
    got = (
        f"best is {row['oracle']}, {row['regret_pct']:.1f}% under {row['endpoint']} at "
        f"{row['burst']} requests/s"
    )
    if row["oracle"] == rule["scheduler"]:
        clear = row["regret_pct"] > tolerance["inconclusive_pct"]
        return Finding(published, got, HOLDS if clear else INCONCLUSIVE)
    return Finding(published, got, FAILS)


def _gpu_hours(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """Serving time of all runs; the paper's hours also hold server starts, so they are more."""
    text = ours.study.published("text")
    printed = text[text["metric"] == "gpu_hours"].set_index("model")["value"]
    runs = ours.records.groupby(["model", "run_id"]).agg(
        first=("arrival_s", "min"), last=("completed_s", "max")
    )
    serving = (runs["last"] - runs["first"]).groupby("model").agg(["sum", "size"])
    hours, count = serving["sum"] / SECONDS_PER_HOUR, serving["size"]
    rest = (printed - hours) * SECONDS_PER_HOUR / count
    got = [
        f"{hours[model]:.1f} of serving in {count[model]} runs of {model}, which leaves "
        f"{rest[model]:.0f} s per run for everything else"
        for model in printed.index
    ]
    published = "; ".join(f"{value:g} for {model}" for model, value in printed.items())
    possible = (hours.reindex(printed.index) <= printed).all()
    return Finding(published, "; ".join(got), HOLDS if possible else FAILS)


def _state_decides(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """Every logged step has one decision, and its own counts of requests explain it."""
    (name,) = ours.experiments
    steps = ours.study.steps(name)
    policy = ours.study.config(name)["schedulers"]["ppas"]["policy"]
    prefills = steps["prefills_running"] + steps["prefills_waiting"]
    pressure = (prefills >= policy["n_th"]) & (steps["decodes_running"] > 0)
    explained = pressure == steps["reason"].isin(CAPPED)
    once = ~steps.duplicated(["source", "scheduler", "burst_rate", "seed", "step"])
    good = int((explained & once).sum())
    return Finding("", f"{good} of {len(steps)} steps", HOLDS if good == len(steps) else FAILS)


def _reduces(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """Runs without a prompt of T_large's class end alike to the last bit under both policies."""
    matched = matched_requests(ours.records, rule["scheduler"], rule["to"])
    largest = matched.groupby("model")["prompt_tokens"].transform("max")
    run = ["model", "phases", "burst_rate", "seed"]
    runs = matched.assign(
        large=matched["prompt_tokens"] == largest,
        same=matched["e2e_s"] == matched["e2e_s_baseline"],
    ).groupby(run)
    without = ~runs["large"].any()
    same = runs["same"].all()
    if not without.any():
        raise MissingCell(f"{ours.source}: every run has a prompt of the largest class")
    got = (
        f"{int((same & without).sum())} of {int(without.sum())} runs without such a prompt are "
        f"equal; of all {len(same)} runs, {int((~same).sum())} differ"
    )
    return Finding("", got, HOLDS if same[without].all() else FAILS)


def _kv_room(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """Whether one prompt of the asked length fits the KV cache, from the models' architectures."""
    from ppas.sizing import kv_blocks, state_blocks

    got, verdicts = [], []
    for name in ours.experiments:
        config = _as_object(ours.study.config(name))
        rooms = [
            (kv_blocks(config, scheduler) - state_blocks(config)) * config.engine.block_size
            for scheduler in vars(config.schedulers).values()
        ]
        low, high, asked = min(rooms), max(rooms), rule["prompt_tokens"]
        fits = rule["fits"][config.model.name]
        surely, never = (low >= asked, high < asked) if fits else (high < asked, low >= asked)
        verdicts.append(HOLDS if surely else FAILS if never else INCONCLUSIVE)
        got.append(f"{config.model.name}: room for {low} to {high} tokens, depending on the MBT")
    published = "; ".join(
        f"{model}: {'fits' if fits else 'runs out of memory'}"
        for model, fits in rule["fits"].items()
    )
    return Finding(published, "; ".join(got), worst(verdicts))


def _as_object(value):
    if isinstance(value, dict):
        return SimpleNamespace(**{key: _as_object(item) for key, item in value.items()})
    return value


def _not_evaluated(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    return Finding("", rule["reason"], NOT_EVALUATED)


RULES: dict[str, Rule] = {
    "same_traces": _same_traces,
    "request_wins": _request_wins,
    "best_static": _best_static,
    "oracle_regret": _oracle_regret,
    "beats_endpoints": _beats_endpoints,
    "gpu_hours": _gpu_hours,
    "state_decides": _state_decides,
    "reduces": _reduces,
    "kv_room": _kv_room,
    "not_evaluated": _not_evaluated,
}
DESCRIPTIONS = {
    "same_traces": "all schedulers of a seed and burst rate get equal arrivals and lengths",
    "request_wins": "the paper's share of matched requests is strictly faster, and their number "
    "is the paper's",
    "best_static": "the fixed MBT with the lowest {metric}, averaged over all conditions, is the "
    "paper's",
    "oracle_regret": "the better endpoint is that close to the best fixed MBT at {outputs} outputs",
    "beats_endpoints": "{scheduler} beats both endpoints at {output} outputs and high load",
    "gpu_hours": "the time that all runs spend serving fits in the paper's GPU hours",
    "state_decides": "each step has one decision, which its own counts explain",
    "reduces": "{scheduler} and {to} are equal in runs whose prompts are all below T_large",
    "kv_room": "a prompt of {prompt_tokens} tokens fits the KV cache only where the paper says so",
    "not_evaluated": "nothing to check it with",
}
