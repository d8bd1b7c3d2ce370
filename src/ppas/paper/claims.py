"""Verdicts on the paper's claims (``data/published/claims.yaml``), from our numbers and its own."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import yaml

from ppas.paper import outputs, rules, tidy
from ppas.paper.finding import (
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    NOT_EVALUATED,
    Finding,
    MissingCell,
    Side,
)
from ppas.paper.study import Study
from ppas.paper.tables.render import markdown_grid, short

COLUMNS = [
    "id", "quote", "where", "rule", "tolerance", "published", "got", "source", "verdict",
]  # fmt: skip
ORDER = [FAILS, INCONCLUSIVE, NOT_EVALUATED, HOLDS]
FIELDS = {"id", "quote", "where", "rule", "tolerance", "experiments"}


def load(path: Path) -> list[dict]:
    """The claims of a YAML file.

    Raises:
        ValueError: one line naming the file, the claim and what is wrong.
    """
    claims = yaml.safe_load(path.read_text(encoding="utf-8"))
    for claim in claims:
        if set(claim) != FIELDS:
            raise ValueError(f"{path}: {claim.get('id')}: fields must be {sorted(FIELDS)}")
        if claim["rule"]["kind"] not in rules.RULES:
            raise ValueError(f"{path}: {claim['id']}: kind must be one of {sorted(rules.RULES)}")
    return claims


def evaluate(study: Study) -> pd.DataFrame:
    """One row per claim and source, what fails first; columns are ``COLUMNS``."""
    claims = load(study.published_dir / "claims.yaml")
    rows = pd.DataFrame([row for claim in claims for row in _verdicts(claim, study)])
    rank = rows["verdict"].map(ORDER.index)
    number = rows["id"].str.lstrip("C").astype(int)
    order = rows.assign(rank=rank, number=number).sort_values(["rank", "number", "source"])
    return order[COLUMNS].reset_index(drop=True)


def to_csv(verdicts: pd.DataFrame) -> str:
    """The verdicts, one line per claim and source."""
    return verdicts.to_csv(index=False, lineterminator="\n")


def to_markdown(verdicts: pd.DataFrame) -> str:
    """Count of each verdict, then the table."""
    counts = verdicts["verdict"].value_counts()
    summary = ", ".join(f"{counts.get(name, 0)} {name}" for name in ORDER)
    present = [name for name in tidy.SOURCES if name in set(verdicts["source"])]
    sources = "; ".join(f"{name}: {tidy.SOURCES[name]}" for name in present)
    shown = verdicts[["verdict", "id", "quote", "where", "rule", "tolerance", *COLUMNS[5:8]]]
    grid = markdown_grid(shown.rename(columns=str.capitalize))
    note = (
        "A rule is asked of our numbers (got) and of the paper's (published); a claim holds when "
        "both bear it. Two schedulers that differ by inconclusive pct or less are not told apart."
    )
    return f"# Claims: {summary}\n\n{note} Sources: {sources}.\n\n{grid}\n"


def describe(rule: dict) -> str:
    """A rule as one sentence."""
    fields = {
        key: ", ".join(short(str(item)) for item in (value if isinstance(value, list) else [value]))
        for key, value in rule.items()
    }
    return rules.DESCRIPTIONS[rule["kind"]].format(**fields)


def _verdicts(claim: dict, study: Study) -> Iterator[dict]:
    rule, tolerance = claim["rule"], claim["tolerance"]
    tables = rule["table"] if isinstance(rule.get("table"), list) else [rule.get("table")]
    paper = _paper(rule, tables, study)
    for ours in _ours(claim["experiments"], tables, study):
        try:
            found = rules.RULES[rule["kind"]](rule, tolerance, ours, paper)
        except MissingCell as missing:
            found = Finding("", str(missing), INCONCLUSIVE)
        yield {
            "id": claim["id"],
            "quote": claim["quote"],
            "where": claim["where"],
            "rule": describe(rule),
            "tolerance": _text(tolerance),
            "published": found.published,
            "got": found.got,
            "source": ours.source,
            "verdict": found.verdict,
        }


def _paper(rule: dict, tables: list[int | None], study: Study) -> Side:
    if tables == [None]:
        return Side(tidy.PUBLISHED)
    printed = pd.concat([outputs.printed(table, study) for table in tables], ignore_index=True)
    if "cells" in rule:
        return Side(tidy.PUBLISHED, study.published(rule["cells"]), printed=printed)
    return Side(tidy.PUBLISHED, printed, printed=printed)


def _ours(experiments: list[str], tables: list[int | None], study: Study) -> Iterator[Side]:
    """One side per source; a claim without experiments is about what the paper prints."""
    if not experiments:
        yield Side(tidy.PUBLISHED)
        return
    cells = pd.concat([study.cells(name) for name in experiments], ignore_index=True)
    records = pd.concat([study.records(name) for name in experiments], ignore_index=True)
    rows = _rows([table for table in tables if table is not None], study)
    for source in sorted(pd.unique(cells["source"])):
        mine = (frame[frame["source"] == source] for frame in (cells, records))
        yield Side(
            source,
            *mine,
            rows=rows[rows["source"] == source],
            study=study,
            experiments=tuple(experiments),
        )


def _rows(tables: list[int], study: Study) -> pd.DataFrame:
    """The tables of a claim as we build them; none if a scheduler or a burst rate is missing."""
    empty = pd.DataFrame(columns=tidy.COLUMNS)
    try:
        built = [outputs.table_rows(table, study) for table in tables]
        return pd.concat(built or [empty], ignore_index=True)
    except ValueError:
        return empty


def _text(tolerance: dict) -> str:
    """The limits of a claim, each once, with the metrics that share it."""
    parts = []
    for key, value in tolerance.items():
        limits = value if isinstance(value, dict) else {"": value}
        same = {limit: [m for m, v in limits.items() if v == limit] for limit in limits.values()}
        texts = [f"{limit} {', '.join(map(short, names))}".strip() for limit, names in same.items()]
        parts.append(f"{key.replace('_', ' ')} {'; '.join(texts)}")
    return "; ".join(parts) or "exact"
