"""Where each experiment's numbers come from: measured before, measured now, or simulated.

All schedulers of an experiment share one source: a measured one is never compared with a
simulated one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ppas.measured import MEASURED, Store
from ppas.results import SIMULATED
from ppas.runs import VLLM

SIMULATOR, AUTO = "simulator", "auto"
BACKENDS = (AUTO, SIMULATOR, VLLM)


@dataclass(frozen=True)
class Experiment:
    """One experiment to run; its content hash decides whether its simulated results are valid."""

    name: str
    source: str
    digest: str
    overrides: tuple[str, ...]
    results: tuple[str, ...]  # files, one per scheduler and what vouches for them


@dataclass(frozen=True)
class Session:
    """One server's work: all runs of one scheduler of an experiment."""

    experiment: str
    slug: str
    digest: str
    overrides: tuple[str, ...]
    hardware: str  # its file in conf/hardware
    device: str  # part of the GPU's name; empty for a CPU
    pair: str  # the cost model of its model and hardware, once it is measured
    runs: tuple[str, ...]  # ids
    run_s: tuple[float, ...]  # length of each run's trace, seconds

    @property
    def results(self) -> tuple[str, str]:
        """The files that the session publishes, relative to the checkout."""
        store = self.store(Path("results"))
        return str(store.records_path), str(store.provenance_path)

    def store(self, root: Path) -> Store:
        """Where its runs live under a results folder."""
        return Store(root, self.hardware, self.experiment, self.slug)


@dataclass(frozen=True)
class Candidate:
    """What an experiment would be under each backend that may be asked for."""

    name: str
    simulated: Experiment | None
    sessions: tuple[Session, ...]


@dataclass(frozen=True)
class Choice:
    """An experiment with its source, and the sessions that are still to be run for it."""

    experiment: Experiment | None  # None: it cannot be had as asked
    sessions: tuple[Session, ...]
    reason: str  # one line for the user


def choose(
    backend: str, candidate: Candidate, root: Path, can_measure: Callable[[Session], bool]
) -> Choice:
    """Choose an experiment's source.

    Args:
        backend: ``auto``, ``simulator`` or ``vllm``.
        root: the results folder, where measured results may lie.
        can_measure: whether the session's hardware and a vLLM for it are at hand.
    """
    if backend == SIMULATOR or (backend == AUTO and not candidate.sessions):
        return Choice(candidate.simulated, (), "simulated")
    if not candidate.sessions:
        return Choice(None, (), "left out: its step log is only simulated")
    missing = tuple(s for s in candidate.sessions if unfinished(s, root))
    hardware = candidate.sessions[0].hardware
    if not missing:
        return Choice(_measured(candidate), (), f"measured before on {hardware}")
    if all(map(can_measure, missing)):
        return Choice(_measured(candidate), missing, f"to be measured on {hardware}")
    if backend == AUTO:
        return Choice(candidate.simulated, (), "simulated")
    return Choice(None, (), f"left out: this host cannot measure on {hardware}")


def unfinished(session: Session, root: Path) -> list[float]:
    """Lengths in seconds of the session's runs that are not published."""
    known = session.store(root).published()["runs"]
    return [s for run, s in zip(session.runs, session.run_s, strict=True) if run not in known]


def announce(choices: Iterable[tuple[str, Choice]], root: Path) -> list[str]:
    """What was chosen, in lines of (reason: experiments), and how long measuring will replay."""
    by_reason: dict[str, list[str]] = {}
    for name, choice in choices:
        by_reason.setdefault(choice.reason, []).append(name)
        for session in choice.sessions:
            left = unfinished(session, root)
            text = f"session {session.experiment} {session.slug}: {len(left)} runs, "
            by_reason.setdefault(f"{text}{sum(left) / 60:.1f} min of traces", [])
    return [f"{reason}{_listed(names)}" for reason, names in by_reason.items()]


def _listed(names: Sequence[str]) -> str:
    if len(names) > 4:
        return f": {len(names)} experiments"
    return f": {', '.join(names)}" if names else ""


def _measured(candidate: Candidate) -> Experiment:
    first = candidate.sessions[0]
    files = tuple(path for session in candidate.sessions for path in session.results)
    return Experiment(candidate.name, MEASURED, "", first.overrides, files)


def simulated(name: str, digest: str, overrides: Sequence[str], files: Sequence[str]) -> Experiment:
    """An experiment as the simulator runs it; ``files`` are names within its folder."""
    folder = f"results/{SIMULATED}/{name}"
    return Experiment(
        name, SIMULATED, digest, tuple(overrides), tuple(f"{folder}/{file}" for file in files)
    )


def on_host(vllm_python: str | None, elsewhere: Sequence[str]) -> Callable[[Session], bool]:
    """Whether a session can run here, or on hardware that jobs will find elsewhere."""
    from ppas.serving import host

    def can(session: Session) -> bool:
        return session.hardware in elsewhere or host.can_measure(session.device, vllm_python)

    return can
