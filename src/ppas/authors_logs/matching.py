"""Logged runs -> the runs of ``conf/experiment`` that they are, as result frames.

A logged run is one of ours if an experiment asks for the same model, GPU, budgets, phases,
lengths and seed. It is kept under every experiment that does, as each table reads its own.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import pandas as pd
import yaml

from ppas.authors_logs.lines import REQUEST_MARK, LoggedRun, short
from ppas.config import CONF, ConfigError, experiments, load
from ppas.digest import content_digest
from ppas.metrics import METRICS, RUN_KEYS
from ppas.results import RECORD_COLUMNS
from ppas.runs import Run, enumerate_runs
from ppas.workload import format_phases, parse_phases

SOURCE = "published-raw"
# Short names of the logs -> file of conf/model, where the two differ.
MODEL_FILES = {"qwen_3b": "qwen2_5_3b"}
# mbt_2048_s256, ppas_plus_16k_1280_s256: policy, B_max, B_cap if adaptive, max_num_seqs.
CONFIG_NAME = re.compile(r"(mbt|ppas_plus|ppas)_(\d{1,6}k?)(?:_(\d{1,6}k?))?_s\d+")
KINDS = {"mbt": "static", "ppas": "ppas", "ppas_plus": "ppas_plus"}
RUN_VALUES = {
    "e2e_mean_s": "avg_latency",
    "e2e_p95_s": "p95_latency",
    "ttft_mean_s": "avg_ttft",
    "tpot_mean_s": "avg_tpot",
    "makespan_s": "makespan",
}
RUN_COLUMNS = [*RUN_KEYS, "prompt_tokens", "output_tokens", "n_requests", "n_tpot", *METRICS]
RECORD_VALUES = {
    "request_id": "request_id",
    "arrival_s": "scheduled_arrival_s",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "first_token_s": "first_token_s",
    "completed_s": "completed_s",
    "ttft_s": "ttft",
    "tpot_s": "tpot",
    "e2e_s": "latency",
}
CONDITION = ["experiment", "phases", "burst_rate", "prompt_tokens", "output_tokens"]


class Budgets(NamedTuple):
    """A scheduler as a log tells it: policy kind, B_max and, if adaptive, B_cap in tokens."""

    kind: str
    b_max: int
    b_cap: int | None


class Condition(NamedTuple):
    """What a logged run and one of ours are matched by, besides lengths."""

    model: str
    hardware: str
    budgets: Budgets
    phases: str
    seed: int


@dataclass(frozen=True)
class Names:
    """A log's names -> the paper's model names, and budgets of schedulers named by hand."""

    models: Mapping[str, str]
    budgets: Mapping[str, Budgets] = field(default_factory=dict)


@dataclass(frozen=True)
class Imported:
    """Runs (columns of ``metrics.run_metrics``), records where a log has requests, and problems.

    Run values are the authors' own. They measure from the client's submission, and so do
    ``e2e_s`` and ``ttft_s``; ``arrival_s`` is the scheduled arrival, equal for all schedulers.
    """

    runs: pd.DataFrame
    records: pd.DataFrame
    problems: list[str]


def known_names(pairs: Sequence[str] = ()) -> Names:
    """The names that logs may use, with those given as ``LOGGED=CONF``.

    Raises:
        ConfigError: one line; not such a pair, or ``conf/`` has no file CONF.
    """
    files, schedulers = _conf("model"), _conf("scheduler")
    models = {slug: model["name"] for slug, model in files.items()}
    models |= {logged: models[slug] for logged, slug in MODEL_FILES.items()}
    models |= {model["repository"]: model["name"] for model in files.values()}
    budgets = {}
    for pair in pairs:
        logged, _, slug = pair.rpartition("=")
        if slug not in {*files, *schedulers}:
            known = ", ".join([*files, *schedulers])
            raise ConfigError(f"--name {pair}: not LOGGED=CONF, with CONF one of {known}")
        if slug in files:
            models[logged] = files[slug]["name"]
        else:
            budgets[logged] = _budgets(schedulers[slug])
    return Names(models, budgets)


def known_hardware(name: str) -> str:
    """The paper's name of a GPU, given by it or by its file in ``conf/hardware``.

    Raises:
        ConfigError: one line; there is no such file.
    """
    names = {slug: hardware["name"] for slug, hardware in _conf("hardware").items()}
    for slug, known in names.items():
        if name.lower() in (slug, known.lower()):
            return known
    raise ConfigError(f"--hardware {name}: not one of {', '.join(names.values())}")


@cache
def _conf(group: str) -> dict[str, dict[str, Any]]:
    paths = sorted((CONF / group).glob("*.yaml"))
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths}


def _budgets(scheduler: Mapping[str, Any]) -> Budgets:
    policy = scheduler["policy"]
    return Budgets(policy["kind"], scheduler["max_num_batched_tokens"], policy.get("b_cap"))


@cache
def known_runs() -> dict[Condition, list[Run]]:
    """Every run of every experiment; composing them takes Hydra seconds.

    Raises:
        ConfigError: an experiment is wrong.
    """
    known: dict[Condition, list[Run]] = {}
    for name in experiments():
        config = load([f"experiment={name}"])
        for run in enumerate_runs(config):
            budgets = _budgets(vars(run.scheduler))
            key = Condition(config.model.name, config.hardware.name, budgets, run.phases, run.seed)
            known.setdefault(key, []).append(run)
    return known


def assemble(
    logged: Sequence[LoggedRun], hardware: str, names: Names, known: Mapping[Condition, list[Run]]
) -> Imported:
    """Match logged runs with ``known`` ones; what does not match is a problem.

    A run told twice is used neither time. Schedulers are compared on the same traces, so a seed
    that one scheduler of a condition lacks is used for none of them.
    """
    problems: list[str] = []
    found: dict[tuple, list[tuple[LoggedRun, Condition, list[Run]]]] = {}
    for run in logged:
        try:
            condition = _condition(run, hardware, names)
            ours = _ours(run, condition, known)
        except ValueError as error:
            problems.append(f"{run.place}: {error}")
        else:
            found.setdefault((condition, ours[0].run_id), []).append((run, condition, ours))
    rows, requests = [], []
    for (run, condition, ours), *again in found.values():
        for copy, *_ in again:
            problems.append(f"{copy.place}: tells the run of {run.place} again; keep one of them")
        for match in () if again else ours:
            keys = _keys(condition, match)
            rows.append(keys | _run_row(run, match))
            requests += [keys | _record(request) for request in run.requests]
    shapes = {"prompt_tokens": "Int64", "output_tokens": "Int64"}
    runs, unpaired = _paired(pd.DataFrame(rows, columns=RUN_COLUMNS).astype(shapes))
    records = pd.DataFrame(requests, columns=list(RECORD_COLUMNS))
    records = records.astype({"error": "string", "preemptions": "Int64"})
    records = records[records["run_id"].isin(runs["run_id"])].reset_index(drop=True)
    return Imported(runs, records, problems + unpaired)


def _condition(run: LoggedRun, hardware: str, names: Names) -> Condition:
    if run.model is None:
        raise ValueError("no EXPERIMENT, RUN or START SERVER line above names the model; add one")
    if run.model not in names.models:
        raise ValueError(f"model {short(run.model)} is unknown; {_name_it('model')}")
    config_name, b_max = run.values["config_name"], run.values["max_num_batched_tokens"]
    budgets = names.budgets.get(config_name) or _logged_budgets(config_name)
    if budgets.b_max != b_max:
        raise ValueError(
            f"config_name {short(config_name)} has {budgets.b_max} tokens, but "
            f"max_num_batched_tokens is {b_max}; take the run out"
        )
    try:
        phases = format_phases(parse_phases(run.values["phase_schedule"]))
    except ValueError as error:
        raise ValueError(f"phase_schedule: {error}; take the run out") from None
    return Condition(names.models[run.model], hardware, budgets, phases, run.values["seed"])


def _logged_budgets(name: str) -> Budgets:
    found = CONFIG_NAME.fullmatch(name)
    if found is None or (found[1] == "mbt") != (found[3] is None):
        raise ValueError(f"config_name {short(name)} is unknown; {_name_it('scheduler')}")
    return Budgets(KINDS[found[1]], _tokens(found[2]), found[3] and _tokens(found[3]))


def _name_it(group: str) -> str:
    return f"say what it is with --name LOGGED=CONF, CONF a file of conf/{group}"


def _tokens(text: str) -> int:
    return int(text[:-1]) * 1024 if text.endswith("k") else int(text)


def _ours(run: LoggedRun, condition: Condition, known: Mapping[Condition, list[Run]]) -> list[Run]:
    """The same run in every experiment that has it: one or more."""
    prompts, outputs = _lengths(run)

    def on(gpu: str) -> list[Run]:
        return [
            ours
            for ours in known.get(condition._replace(hardware=gpu), ())
            if prompts <= set(ours.prompt_tokens) and outputs <= set(ours.output_tokens)
        ]

    found = on(condition.hardware)
    if not found:
        others = [gpu for gpu in sorted({key.hardware for key in known}) if on(gpu)]
        remedy = f"pass --hardware {' or '.join(others)}, which has it" if others else "take it out"
        raise ValueError(
            f"no experiment of {condition.model} on {condition.hardware} has "
            f"{run.values['config_name']}, phases {condition.phases}, {_listed(prompts)} prompt "
            f"and {_listed(outputs)} output tokens, seed {condition.seed}; {remedy}"
        )
    expected, count = len(found[0].trace), run.values["num_requests"]
    if count != expected:
        raise ValueError(
            f"num_requests: {count}, but seed {condition.seed} brings {expected} over "
            f"{condition.phases}; take the run out"
        )
    return found


def _lengths(run: LoggedRun) -> tuple[set[int], set[int]]:
    """Prompt and output lengths in tokens; of a mixture only request rows tell."""
    if run.requests:
        rows = pd.DataFrame(run.requests)
        return set(rows["requested_prompt_tokens"]), set(rows["requested_output_tokens"])
    for kind in ("prompt", "output"):
        length = run.values[f"configured_{kind}_tokens"]
        for key in (f"{kind}_mean", f"{kind}_max"):
            if run.values.get(key, length) != length:
                raise ValueError(
                    f"{key}: {short(run.values[key])}, configured {length}; lengths that differ "
                    f"need the {REQUEST_MARK} lines of the run"
                )
    return {run.values["configured_prompt_tokens"]}, {run.values["configured_output_tokens"]}


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def _keys(condition: Condition, ours: Run) -> dict[str, Any]:
    keys = {
        "experiment": ours.experiment,
        "model": condition.model,
        "hardware": condition.hardware,
        "scheduler": ours.scheduler.name,
        "seed": ours.seed,
        "burst_rate": ours.burst_rate,
        "phases": ours.phases,
        "source": SOURCE,
    }
    return keys | {"run_id": content_digest([keys, ours.prompt_tokens, ours.output_tokens])}


def _run_row(run: LoggedRun, ours: Run) -> dict[str, Any]:
    """Every output of ``conf/experiment`` has the two tokens that a TPOT needs."""
    count = run.values["num_requests"]
    return {
        "prompt_tokens": ours.prompt_tokens[0] if len(ours.prompt_tokens) == 1 else pd.NA,
        "output_tokens": ours.output_tokens[0] if len(ours.output_tokens) == 1 else pd.NA,
        "n_requests": count,
        "n_tpot": count,
        **{ours: float(run.values[logged]) for ours, logged in RUN_VALUES.items()},
    }


def _record(request: Mapping[str, Any]) -> dict[str, Any]:
    """No log tells preemptions."""
    values = {ours: request[logged] for ours, logged in RECORD_VALUES.items()}
    return values | {"error": None, "preemptions": pd.NA}


def _paired(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The runs whose seed every scheduler of their condition has; a problem for each gap."""
    kept, problems = [runs.head(0)], []
    for _, group in runs.groupby(CONDITION, dropna=False, sort=False):
        seeds = group.groupby("scheduler")["seed"].agg(set)
        anywhere, everywhere = set.union(*seeds), set.intersection(*seeds)
        first = group.iloc[0]
        problems += [
            f"{first['experiment']}, burst rate {first['burst_rate']}: {scheduler} lacks seed "
            f"{_listed(anywhere - have)}, which another scheduler has; add its log"
            for scheduler, have in seeds.items()
            if have != anywhere
        ]
        kept.append(group[group["seed"].isin(everywhere)])
    return pd.concat(kept, ignore_index=True), problems
