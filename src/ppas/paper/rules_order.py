"""Rules on which scheduler is faster, asked of cells that we and the paper both have."""

from itertools import groupby, pairwise, product

from ppas.paper.finding import (
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    NOT_EVALUATED,
    Finding,
    Rule,
    Side,
    clearly,
    on_both,
    worst,
)
from ppas.paper.tables.render import short


def _lower(rule: dict, tolerance: dict, side: Side) -> tuple[str, str]:
    margin = tolerance["inconclusive_pct"]
    texts, verdicts = [], []
    for burst in rule["bursts"]:
        for other in rule["than"]:
            gap = side.advantage_pct(burst, rule["scheduler"], other, rule["metric"])
            texts.append(f"{gap:+.1f}% under {other} at {burst}")
            verdicts.append(clearly(gap, margin))
    return "; ".join(texts), worst(verdicts)


def _close(rule: dict, tolerance: dict, side: Side) -> tuple[str, str]:
    limit, margin = tolerance["within_pct"], tolerance["inconclusive_pct"]
    texts, verdicts = [], []
    for burst in rule["bursts"]:
        gap = -side.advantage_pct(burst, rule["scheduler"], rule["to"], rule["metric"])
        texts.append(f"{gap:+.1f}% against {rule['to']} at {burst}")
        beyond = abs(gap) - limit
        verdicts.append(HOLDS if beyond <= 0 else INCONCLUSIVE if beyond <= margin else FAILS)
    return "; ".join(texts), worst(verdicts)


def _no_single_best(rule: dict, tolerance: dict, side: Side) -> tuple[str, str]:
    metric, bursts = rule["metric"], side.bursts()
    best = {
        burst: min(rule["among"], key=lambda name, b=burst: side.value(b, name, metric))
        for burst in bursts
    }
    verdicts = []
    for name in rule["schedulers"]:
        lost = max(side.advantage_pct(burst, best[burst], name, metric) for burst in bursts)
        beaten = lost > tolerance["inconclusive_pct"]
        verdicts.append(HOLDS if beaten else INCONCLUSIVE if lost > 0 else FAILS)
    return _winners(list(best.values()), bursts), worst(verdicts)


def _crossover(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    bursts = paper.bursts()
    theirs, mine = (_signs(rule, tolerance, side, bursts) for side in (paper, ours))
    verdicts = [_reversal(theirs), _reversal(mine)]
    if any(a * b < 0 for a, b in zip(theirs, mine, strict=True)):
        verdicts.append(FAILS)  # the order turns at another burst rate than in the paper
    if any(a != 0 and b == 0 for a, b in zip(theirs, mine, strict=True)):
        verdicts.append(INCONCLUSIVE)
    names = {1: rule["low"], -1: rule["high"], 0: "neither"}
    published, got = (_winners([names[s] for s in side], bursts) for side in (theirs, mine))
    return Finding(published, got, worst(verdicts))


def _signs(rule: dict, tolerance: dict, side: Side, bursts: list[float]) -> list[int]:
    """Per burst rate: 1 where the low-load scheduler is lower, -1 the other, 0 neither."""
    names = rule["low"], rule["high"]
    gaps = [side.advantage_pct(burst, *names, rule["metric"]) for burst in bursts]
    return [
        0 if abs(gap) <= tolerance["inconclusive_pct"] else 1 if gap > 0 else -1 for gap in gaps
    ]


def _reversal(signs: list[int]) -> str:
    clear = [sign for sign in signs if sign]
    if clear != sorted(clear, reverse=True) or signs[0] < 0 or signs[-1] > 0:
        return FAILS
    return HOLDS if signs[0] and signs[-1] else INCONCLUSIVE


def _winners(names: list[str], bursts: list[float]) -> str:
    """Neighbouring burst rates with the same winner, told together."""
    runs = groupby(zip(names, bursts, strict=True), key=lambda pair: pair[0])
    return "; ".join(f"{name} at {', '.join(str(b) for _, b in run)}" for name, run in runs)


def _monotone(rule: dict, tolerance: dict, side: Side) -> tuple[str, str]:
    """Along the schedulers, ``rises`` must grow and ``falls`` shrink at every burst rate."""
    margin, texts, verdicts = tolerance["inconclusive_pct"], [], []
    for metric, sign in ((rule["rises"], 1), (rule["falls"], -1)):
        against = []
        for burst, (low, high) in product(rule["bursts"], pairwise(rule["schedulers"])):
            step = sign * side.advantage_pct(burst, low, high, metric)
            verdicts.append(clearly(step, margin))
            if step <= margin:
                against.append(f"{low} to {high} at {burst} ({step:+.1f}%)")
        texts.append(
            f"{short(metric)}: {'all steps' if not against else 'not ' + ', '.join(against)}"
        )
    return "; ".join(texts), worst(verdicts)


def _not_evidenced(rule: dict, tolerance: dict, ours: Side, paper: Side) -> Finding:
    """The paper shows no such run: what ours says is told, and no verdict given."""
    got, _ = _lower(rule, tolerance, ours)
    return Finding(rule["reason"], f"our own run: {got}", NOT_EVALUATED)


RULES: dict[str, Rule] = {
    "lower": on_both(_lower),
    "close": on_both(_close),
    "crossover": _crossover,
    "no_single_best": on_both(_no_single_best),
    "monotone": on_both(_monotone),
    "not_evidenced": _not_evidenced,
}
DESCRIPTIONS = {
    "lower": "{scheduler} has a lower {metric} than {than} at burst {bursts}",
    "close": "{metric} of {scheduler} is close to that of {to} at burst {bursts}",
    "crossover": "{low} has the lower {metric} at low burst rates and {high} at high ones, "
    "turning where the paper's do",
    "no_single_best": "none of {schedulers} has the lowest {metric} at every burst rate among "
    "{among}",
    "monotone": "from {schedulers}, {rises} rises and {falls} falls step by step at burst {bursts}",
    "not_evidenced": "{scheduler} has a lower {metric} than {than} at burst {bursts}",
}
