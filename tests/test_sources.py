"""Where an experiment's numbers come from: each backend, with and without measured results."""

import pandas as pd
import pytest

from ppas.config import load
from ppas.measured import stores
from ppas.planning import candidate
from ppas.sources import announce, choose, unfinished

OVERRIDES = ("experiment=cpu_demo", "seeds=[0]", "workload.burst_rates=[2]")
HERE, NOWHERE = (lambda session: True), (lambda session: False)


@pytest.fixture
def demo():
    return candidate("cpu_demo", "auto", OVERRIDES[1:])


def publish(results, slugs) -> None:
    """Measured results of some schedulers, one empty request each."""
    config = load([*OVERRIDES, "backend=vllm"])
    for store, runs in stores(config, results).items():
        if store.slug in slugs:
            store.keep_session("s", {})
            for run in runs:
                store.keep(run, pd.DataFrame({"run_id": [run.run_id]}), {"session": "s"})
            store.publish(config, runs)


@pytest.mark.parametrize(
    "backend, published, can, source, sessions",
    [
        ("simulator", "all", HERE, "simulated", 0),
        ("auto", "all", NOWHERE, "measured", 0),
        ("auto", "one", NOWHERE, "simulated", 0),  # never two sources in one experiment
        ("auto", "one", HERE, "measured", 2),
        ("auto", "none", HERE, "measured", 3),
        ("auto", "none", NOWHERE, "simulated", 0),
        ("vllm", "all", NOWHERE, "measured", 0),
        ("vllm", "none", HERE, "measured", 3),
        ("vllm", "none", NOWHERE, None, 0),
    ],
)
def test_source(demo, tmp_path, backend, published, can, source, sessions):
    slugs = [session.slug for session in demo.sessions]
    publish(tmp_path, {"all": slugs, "one": slugs[:1], "none": []}[published])
    choice = choose(backend, demo, tmp_path, can)
    assert (choice.experiment and choice.experiment.source) == source
    assert len(choice.sessions) == sessions


def test_records_that_nothing_vouches_for_do_not_count(demo, tmp_path):
    publish(tmp_path, [session.slug for session in demo.sessions])
    session = demo.sessions[0]
    assert not unfinished(session, tmp_path)
    session.store(tmp_path).records_path.write_bytes(b"something else")
    assert len(unfinished(session, tmp_path)) == len(session.runs)


def test_the_choice_is_told(demo, tmp_path):
    publish(tmp_path, [demo.sessions[0].slug])
    lines = announce([("cpu_demo", choose("auto", demo, tmp_path, HERE))], tmp_path)
    assert lines[0] == "to be measured on cpu: cpu_demo"
    assert lines[1:] == [
        f"session cpu_demo {session.slug}: 1 runs, 0.2 min of traces"
        for session in demo.sessions[1:]
    ]


def test_a_step_log_is_only_simulated():
    timeline = candidate("rtx5090_primary_timeline", "auto", ())
    assert not timeline.sessions


def test_what_decides_a_measured_run_is_not_the_simulator():
    """Neither a cost model nor code: hours on a GPU must outlive both."""

    def ids(*overrides):
        return candidate("cpu_demo", "vllm", overrides).sessions[0].runs

    plain = ids()
    assert ids("cost_model=zero_shot") == plain
    assert ids("backend.request_timeout_s=5") == plain
    assert ids("backend.first_token=text") != plain
    assert ids("hardware.serve_options=[--dtype,bfloat16]") != plain
    assert ids("model.layers=3") != plain
