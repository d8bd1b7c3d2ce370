"""Fold Snakemake's rule graph into one node per kind of rule, as a Mermaid flow chart.

snakemake --rulegraph dot --forceall | python docs/rulegraph.py > docs/rulegraph.mmd
"""

import re
import sys
from collections import Counter

COMMAND = "snakemake --rulegraph dot --forceall | python docs/rulegraph.py > docs/rulegraph.mmd"
HEAD = f"%% Made by: {COMMAND}\nflowchart LR"
TEXTS = {
    "simulate": "one per experiment: conf/ to results/",
    "draw": "one per figure",
    "tabulate": "one per table",
    "judge": "the verdict on each claim",
    "write": "report.html",
}


def fold(dot: str) -> str:
    """DOT text of every rule -> Mermaid text of kinds, which are a rule's first word."""
    names = dict(re.findall(r'(\d+)\[label = "(\w+)', dot))
    kinds = {node: name.partition("_")[0] for node, name in names.items()}
    edges = {(kinds[a], kinds[b]) for a, b in re.findall(r"(\d+) -> (\d+)", dot)}
    # What follows from two other arrows needs none of its own.
    through = {(a, c) for a, b in edges for start, c in edges if b == start}
    lines = [HEAD]
    for kind, count in sorted(Counter(kinds.values()).items()):
        text = f"<br>{TEXTS[kind]}" if kind in TEXTS else ""
        lines.append(f'    {kind}["{kind}{f" x{count}" if count > 1 else ""}{text}"]')
    lines += [f"    {start} --> {end}" for start, end in sorted(edges - through)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(fold(sys.stdin.read()), end="")
