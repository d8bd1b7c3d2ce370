"""Token-budget policies: pure functions from a scheduler snapshot to a decision.

Every policy is written in the subset of Python that numba compiles: the simulator runs it
compiled, the vLLM plugin runs it as plain Python, and a test pins both to the same answers.
To add one: write the function, name its options in ``OPTIONS``, give it a line in ``decide``.
"""

from typing import NamedTuple

STATIC, PPAS, PPAS_PLUS = 0, 1, 2
KINDS = {"static": STATIC, "ppas": PPAS, "ppas_plus": PPAS_PLUS}

PREFILL, GLOBAL = 0, 1
CAP_SCOPES = {"prefill": PREFILL, "global": GLOBAL}

# Why a budget was chosen, as step logs name it; a reason's code is its position.
REASONS = ("static", "low", "count", "large")
FIXED, LOW, COUNT, LARGE = 0, 1, 2, 3


class Snapshot(NamedTuple):
    """Scheduler state before a step (paper section 3; units are requests and tokens).

    A prefill is a request with fewer computed than prompt tokens; every other running request
    is a decode. Preempted requests wait as prefills, for their computed tokens are gone.
    """

    now: float  # seconds on the engine's clock
    prefills_running: int
    prefills_waiting: int
    decodes_running: int
    decode_tokens: int  # what the decodes ask for: one each, more under speculative decoding
    residual_prefill: int  # prompt tokens not yet computed, summed over running prefills
    budget_limit: int  # vLLM's max_num_scheduled_tokens


class Decision(NamedTuple):
    """The token budget of one step and the index of its reason in ``REASONS``."""

    total_budget: int
    reason: int


class Policy(NamedTuple):
    """A policy and its parameters; built by ``make_policy``, which validates them."""

    kind: int
    b_max: int  # tokens; budget at low pressure
    b_cap: int  # tokens; budget under pressure
    n_th: int  # prefills at which pressure begins
    n_d_large: int  # decodes that one large prefill must compete with
    t_large: int  # residual prefill tokens that make a single prefill large
    cap_scope: int  # PREFILL caps the prefill tokens of a step, GLOBAL the whole step


OPTIONS = {
    "static": ("b_max",),
    "ppas": ("b_max", "b_cap", "n_th", "cap_scope"),
    "ppas_plus": ("b_max", "b_cap", "n_th", "cap_scope", "n_d_large", "t_large"),
}
REQUIRED = {"static": (), "ppas": ("b_cap",), "ppas_plus": ("b_cap", "t_large")}
DEFAULTS = {"n_th": 2, "n_d_large": 2, "cap_scope": "global"}


def static(s: Snapshot, p: Policy) -> Decision:
    """Keep the budget at ``b_max``: vLLM's own behaviour with that MBT."""
    return Decision(min(p.b_max, s.budget_limit), FIXED)


def ppas(s: Snapshot, p: Policy) -> Decision:
    """Cap the budget while several prefills compete with decodes (paper section 3, Eq. 4)."""
    prefills = s.prefills_running + s.prefills_waiting
    if prefills >= p.n_th and s.decodes_running > 0:
        return Decision(capped_budget(s, p), COUNT)
    return Decision(min(p.b_max, s.budget_limit), LOW)


def ppas_plus(s: Snapshot, p: Policy) -> Decision:
    """P-PAS, and cap as well while one large prefill runs beside decodes (paper section 7)."""
    decision = ppas(s, p)
    large = s.prefills_running == 1 and s.residual_prefill >= p.t_large
    if decision.reason == LOW and large and s.decodes_running >= p.n_d_large:
        return Decision(capped_budget(s, p), LARGE)
    return decision


def capped_budget(s: Snapshot, p: Policy) -> int:
    """Tokens of a step under pressure, in the policy's cap scope.

    The prefill scope (behind Tables 1-4 and 9-13) leaves decodes uncounted. Adding the tokens
    that decodes take to the cap bounds those of prefills without touching the scheduler's own
    allocation.
    """
    cap = p.b_cap
    if p.cap_scope == PREFILL:
        cap += s.decode_tokens
    return min(cap, p.b_max, s.budget_limit)


def decide(s: Snapshot, p: Policy) -> Decision:
    """Dispatch on the policy's kind. An integer, because numba cannot cache callables."""
    if p.kind == PPAS:
        return ppas(s, p)
    if p.kind == PPAS_PLUS:
        return ppas_plus(s, p)
    return static(s, p)


# What the simulator compiles, callees first.
FUNCTIONS = (capped_budget, static, ppas, ppas_plus, decide)


def describe(policy: Policy) -> str:
    """A policy and its options in words, as in ``ppas b_max=16384 b_cap=2048 ...``."""
    kind = next(name for name, number in KINDS.items() if number == policy.kind)
    scope = next(name for name, number in CAP_SCOPES.items() if number == policy.cap_scope)
    values = policy._asdict() | {"cap_scope": scope}
    return " ".join([kind, *(f"{key}={values[key]}" for key in OPTIONS[kind])])


def make_policy(kind: str, *, budget_limit: int, **options: object) -> Policy:
    """Validate ``options`` and build the policy; ``b_max`` defaults to ``budget_limit``.

    Raises:
        ValueError: one line that names the option and what it may be.
    """
    if kind not in KINDS:
        raise ValueError(f"kind: unknown policy {kind!r}; choose from {', '.join(KINDS)}")
    if unknown := [key for key in options if key not in OPTIONS[kind]]:
        allowed = ", ".join(OPTIONS[kind])
        raise ValueError(f"{unknown[0]}: not an option of policy {kind!r}; allowed: {allowed}")
    if missing := [key for key in REQUIRED[kind] if options.get(key) is None]:
        raise ValueError(f"{missing[0]}: policy {kind!r} needs it")
    given = {key: value for key, value in options.items() if value is not None}
    scope = given.pop("cap_scope", DEFAULTS["cap_scope"])
    if scope not in CAP_SCOPES:
        raise ValueError(f"cap_scope: {scope!r} is not one of {', '.join(CAP_SCOPES)}")
    for key, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{key}: {value!r} is not a positive whole number")
    b_max = given.get("b_max", budget_limit)
    b_cap = given.get("b_cap", b_max)
    if b_cap > b_max:
        raise ValueError(f"b_cap: {b_cap} is above b_max ({b_max}); choose b_cap <= b_max")
    return Policy(
        kind=KINDS[kind],
        b_max=b_max,
        b_cap=b_cap,
        n_th=given.get("n_th", DEFAULTS["n_th"]),
        n_d_large=given.get("n_d_large", DEFAULTS["n_d_large"]),
        t_large=given.get("t_large", 0),
        cap_scope=CAP_SCOPES[scope],
    )
