"""ARTIFACT.md and the rule graph say what the repository holds."""

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from ppas.planning import make_plan

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARTIFACT.md").read_text(encoding="utf-8")
ARTIFACT = TEXT.partition("## Claims, outputs, commands")[2].partition("## How to judge")[0]


@pytest.fixture(scope="module")
def plan():
    return make_plan(yaml.safe_load((ROOT / "workflow/config.yaml").read_text()))


def claims_named(text: str) -> list[str]:
    """``C3-C5, C7`` -> C3, C4, C5, C7."""
    named = []
    for first, last in re.findall(r"\bC(\d+)(?:-C(\d+))?", text):
        named += [f"C{n}" for n in range(int(first), int(last or first) + 1)]
    return named


def test_every_claim_stands_in_the_artifacts_table_once(study):
    entries = yaml.safe_load((study.published_dir / "claims.yaml").read_text(encoding="utf-8"))
    column = "\n".join(re.findall(r"^\| ([^|]+) \|.*`[^`]+` \|$", ARTIFACT, re.MULTILINE))
    assert sorted(claims_named(column)) == sorted(entry["id"] for entry in entries)


def test_every_figure_table_and_target_is_an_output(plan):
    files = {file for output in plan.outputs for file in output.files}
    targets = re.findall(r"`([^`]+)` \|$", ARTIFACT, re.MULTILINE)
    named = {target for cell in targets for target in cell.split()}
    assert named <= files
    shown = {Path(file).stem for file in named}
    assert shown == {output.name for output in plan.outputs}


def test_the_rule_graph_counts_every_rule(plan):
    graph = (ROOT / "docs/rulegraph.mmd").read_text(encoding="utf-8")
    counts = Counter(output.verb for output in plan.outputs)
    counts["simulate"] = len(plan.simulated)
    for verb, count in counts.items():
        assert f'{verb}["{verb}{f" x{count}" if count > 1 else ""}<br>' in graph
