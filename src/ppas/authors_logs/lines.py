"""The lines of a log: text -> the runs it tells.

A log is what the authors' benchmark printed. Three kinds of lines matter; the rest is chatter:

- ``EXPERIMENT:``, ``RUN:`` and ``START SERVER:`` name the model, until the next of them;
- ``REQUEST_RESULT:`` and a Python dict: one request (some logs have none);
- a Python dict alone on its line: one run, that is, means and P95 over its requests.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

import pandas as pd

LONGEST_LINE = 65_536  # characters; a result takes about a thousand
REQUEST_MARK = "REQUEST_RESULT:"
MODEL_LINE = re.compile(
    r"EXPERIMENT: \S{,200}?model-(\S{1,200}?)_p\d+_o\d+"
    r"|RUN: .*--model[ =](\S{1,200})"
    r"|START SERVER: vllm serve (\S{1,200})"
)
RUN_FIELDS = {
    "config_name": str, "phase_schedule": str, "seed": int, "configured_prompt_tokens": int,
    "configured_output_tokens": int, "max_num_batched_tokens": int, "num_requests": int,
    "avg_latency": float, "p95_latency": float, "avg_ttft": float, "avg_tpot": float,
    "makespan": float,
}  # fmt: skip
REQUEST_FIELDS = {
    "config_name": str, "phase_schedule": str, "seed": int, "request_id": int,
    "scheduled_arrival_s": float, "submitted_s": float, "first_token_s": float,
    "completed_s": float, "latency": float, "ttft": float, "tpot": float,
    "requested_prompt_tokens": int, "requested_output_tokens": int, "prompt_tokens": int,
    "completion_tokens": int,
}  # fmt: skip
LARGEST = 2**53  # of whole numbers that a float holds
NEEDED = {str: "a text", int: "a whole number >= 0", float: "a finite number >= 0"}
# A piece of a result that lost its beginning still has one of these.
PIECES = [f"'{key}':" for key in {*RUN_FIELDS, *REQUEST_FIELDS, "failed", "error"}]
TOLERANCE = 1e-6  # relative, or seconds; run values and requests are printed in full


@dataclass(frozen=True)
class LoggedRun:
    """One run as a log tells it; ``place`` is FILE:LINE of its result.

    ``values`` are RUN_FIELDS (times in seconds) and each of ``requests`` REQUEST_FIELDS, checked.
    """

    place: str
    model: str | None
    values: Mapping[str, Any]
    requests: Sequence[Mapping[str, Any]] = ()


def parse(lines: Iterable[str], name: str) -> tuple[list[LoggedRun], list[str]]:
    """The runs that a log tells, and one line for each problem; ``name`` is the file's.

    Whatever the lines hold, nothing is raised and nothing of it is evaluated.
    """
    runs, problems, model = [], [], None
    waiting: dict[tuple, list[tuple[str, dict[str, Any]]]] = {}
    for number, line in enumerate(lines, start=1):
        place = f"{name}:{number}"
        try:
            model = _model(line) or model
            row = _result(line)
            if row is None:
                continue
            key = (model, row["config_name"], row["phase_schedule"], row["seed"])
            if "request_id" in row:
                waiting.setdefault(key, []).append((place, row))
                continue
            requests = [request for _, request in waiting.pop(key, ())]
            _check_requests(row, requests)
            runs.append(LoggedRun(place, model, row, requests))
        except ValueError as error:
            problems.append(f"{place}: {error}")
    for (place, _), *_ in waiting.values():
        problems.append(
            f"{place}: this request's run has no result below; complete the log or take it out"
        )
    if not runs and not problems:
        problems.append(f"{name}: no result in it; give a log of the authors, as UTF-8 text")
    return runs, problems


def _model(line: str) -> str | None:
    if len(line) > LONGEST_LINE:
        raise ValueError(f"a line of {len(line)} characters, {LONGEST_LINE} at most; split it")
    found = MODEL_LINE.match(line.strip())
    return found and next(filter(None, found.groups()))


def _result(line: str) -> dict[str, Any] | None:
    """The checked dict of a result line; None for chatter."""
    _, marked, tail = line.partition(REQUEST_MARK)
    text = (tail if marked else line).strip().lstrip("\ufeff")
    if not (marked or text.startswith("{") or any(piece in text for piece in PIECES)):
        return None
    row = _literal(text)
    is_request = bool(marked) or "request_id" in row
    failed, error = row.get("failed", 0), row.get("error", "")
    if failed != 0 or error:
        raise ValueError(
            f"failed: {short(failed)}, error: {short(error)}; no mean may hide that, "
            "take the run out"
        )
    _check_fields(row, REQUEST_FIELDS if is_request else RUN_FIELDS | {"failed": int, "error": str})
    return row


class _Floats(ast.NodeTransformer):
    """A dict is printed with NaN and infinity as bare names, which no literal may hold.

    They are read as the numbers they are, so that the field that holds one can be named.
    """

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float(node.id)) if node.id in ("nan", "inf") else node


def _literal(text: str) -> dict[str, Any]:
    """The dict that ``text`` spells."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the parser's, about text that is refused below
            row = ast.literal_eval(_Floats().visit(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        row = None  # the last two: nested too deeply
    if not isinstance(row, dict):
        raise ValueError(f"{short(text)} is no whole Python dict; mend the line or take it out")
    return row


def _check_fields(row: Mapping[str, Any], fields: Mapping[str, type]) -> None:
    for key, kind in fields.items():
        if key not in row:
            raise ValueError(f"no {key!r} in it; mend the line or take it out")
        value = row[key]
        known = type(value) in ((int, float) if kind is float else (kind,))
        if not known or (kind is not str and not 0 <= value <= LARGEST):
            raise ValueError(f"{key}: {short(value)} is not {NEEDED[kind]}; take the run out")


def _check_requests(run: Mapping[str, Any], requests: Sequence[Mapping[str, Any]]) -> None:
    """A run's request rows, where it has any, are complete and give the run's values."""
    if not requests:
        return
    rows = pd.DataFrame(requests, columns=list(REQUEST_FIELDS))
    if not rows["request_id"].nunique() == len(rows) == run["num_requests"]:
        raise ValueError(
            f"num_requests: {run['num_requests']}, but {len(rows)} {REQUEST_MARK} lines with "
            f"{rows['request_id'].nunique()} ids; complete the log or take the run out"
        )
    cut = rows["prompt_tokens"] != rows["requested_prompt_tokens"]
    cut |= rows["completion_tokens"] != rows["requested_output_tokens"]
    if cut.any():
        first = rows[cut].iloc[0]
        raise ValueError(
            f"request_id {first['request_id']}: {first['prompt_tokens']} prompt and "
            f"{first['completion_tokens']} output tokens are not those requested; take the run out"
        )
    for key, value in _values(rows).items():
        if not isclose(value, run[key], rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            raise ValueError(
                f"{key}: {run[key]}, but its requests give {value:.6g}; take the run out"
            )


def _values(requests: pd.DataFrame) -> dict[str, float]:
    """A run's values in seconds (section 4.4), from submission as the authors measure."""
    return {
        "avg_latency": requests["latency"].mean(),
        "p95_latency": requests["latency"].quantile(0.95, interpolation="linear"),
        "avg_ttft": requests["ttft"].mean(),
        "avg_tpot": requests["tpot"].mean(),
        "makespan": requests["completed_s"].max() - requests["submitted_s"].min(),
    }


def short(value: Any) -> str:
    """A value of a log in one short line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
