"""Server sessions against a fake vLLM: what is kept, what is refused, and what is said."""

import json
import multiprocessing
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

from ppas.config import load
from ppas.measured import MeasuringFailed, stores
from ppas.paper.study import Study
from ppas.serving.server import Server, ServerDied, free_port
from ppas.serving.session import measure_store

from .fake_vllm import fake_python, starts

RUNS = 4  # of the configuration below: two rates, two seeds
OVERRIDES = ("experiment=cpu_demo", "backend=vllm", "backend.request_timeout_s=1.5",
             'workload.phases=["0.2:20,0.2:burst"]', "workload.burst_rates=[20,40]", "seeds=[0,1]",
             "workload.output_tokens=[4]", "workload.prompt_tokens=[64]")  # fmt: skip
SLUG = "ppas_cpu"
WARM_UP_REQUESTS = 4  # two of each budget
FIRST = WARM_UP_REQUESTS + 1  # number of the first request of a run


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch):
    """Sessions of other tests may hold this host's devices."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


class Bench:
    """A configuration, a fake vLLM and a results folder."""

    def __init__(self, folder: Path, *overrides: str) -> None:
        self.fake, self.results = folder / "fake", folder / "results"
        self.overrides = (*OVERRIDES, *overrides)
        self.config = load(self.overrides)
        by_slug = {store.slug: (store, runs) for store, runs in stores(
            self.config, self.results).items()}  # fmt: skip
        self.by_slug = by_slug
        self.store, self.runs = by_slug[SLUG]
        self.said: list[str] = []

    def measure(self, faults=None, slug=SLUG):
        python = fake_python(self.fake, faults)
        return measure_store(self.config, *self.by_slug[slug], python, self.said.append)

    def command(self) -> list[str]:
        """The same from the command line."""
        return [sys.executable, "-m", "ppas.cli", "measure", "--scheduler", SLUG,
                "--vllm-python", str(self.fake / "python"), "--results", str(self.results),
                *self.overrides]  # fmt: skip

    def kept(self) -> list[str]:
        return sorted(path.stem for path in self.store.runs.glob("*.json"))

    def check_complete(self) -> None:
        """Every run exactly once, every request of it once."""
        frame = pd.read_parquet(self.store.records_path)
        provenance = json.loads(self.store.provenance_path.read_text())
        assert sorted(provenance["runs"]) == sorted(run.run_id for run in self.runs)
        counts = frame.groupby("run_id")["request_id"].agg(["size", "nunique"])
        assert {run.run_id: (len(run.trace),) * 2 for run in self.runs} == {
            run_id: tuple(row) for run_id, row in zip(counts.index, counts.to_numpy(), strict=True)
        }
        assert frame["error"].isna().all() and frame["e2e_s"].gt(0).all()
        assert set(frame["source"]) == {"measured"}
        assert not self.store.runs.exists() and not self.store.sessions.exists()

    def check_servers_gone(self) -> None:
        deadline = time.monotonic() + 5
        while any(map(alive, starts(self.fake))):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def alive(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    try:
        return "State:\tZ" not in status.read_text()
    except OSError:
        return False


def test_one_server_measures_all_runs(bench):
    session = bench.measure()
    assert len(starts(bench.fake)) == 1
    bench.check_complete()
    bench.check_servers_gone()
    assert len(bench.runs) == RUNS
    provenance = json.loads(bench.store.provenance_path.read_text())
    ((name, facts),) = provenance["sessions"].items()
    assert (bench.store.logs / f"{name}.log").exists()
    assert facts["kv_cache"] == {"block_size": "16", "num_gpu_blocks": "1000"}
    assert facts["versions"]["python"] and facts["commit"]
    assert facts["flags"][facts["flags"].index("--max-num-batched-tokens") + 1] == "2048"
    assert facts["seconds"].keys() >= {"start", "warm-up", "replay", "drain"}
    assert session.servers[0].times()["overhead_pct"] < 100


def test_what_is_measured_is_not_measured_again(bench):
    bench.measure()
    bench.measure()
    assert len(starts(bench.fake)) == 1
    assert "4 runs done, 0 to measure" in bench.said[-1]


def test_a_new_rate_measures_only_its_runs(bench, tmp_path):
    bench.measure()
    before = json.loads(bench.store.provenance_path.read_text())["runs"]
    more = Bench(tmp_path, "workload.burst_rates=[20,40,60]")
    more.measure()
    more.check_complete()
    assert "4 runs done, 2 to measure" in more.said[0]
    after = json.loads(more.store.provenance_path.read_text())["runs"]
    assert all(after[run] == facts for run, facts in before.items())


def test_a_server_that_dies_is_restarted_once(bench):
    bench.measure({"die": [FIRST + 10]})
    assert len(starts(bench.fake)) == 2
    bench.check_complete()
    assert any("ended during" in text and "restarting it once" in text for text in bench.said)


def test_a_second_death_ends_the_session_and_keeps_what_is_done(bench):
    with pytest.raises(MeasuringFailed, match=r"(?s)vLLM server ended.*--- end of .*same command"):
        bench.measure({"die": [FIRST + 10, FIRST + 20]})
    kept = bench.kept()
    assert 0 < len(kept) < len(bench.runs)
    assert not bench.store.records_path.exists()
    bench.measure()
    bench.check_complete()
    assert f"{len(kept)} runs done" in next(t for t in reversed(bench.said) if "runs done" in t)


@pytest.mark.parametrize(
    "script, problem",
    [
        ("early_end", "stream ended after 2 of 4 tokens"),
        ("in_band_error", "the engine is dead"),
        ("silent", "no answer within 1.5 s"),
        ("http_error", "prompt is too long"),
        ("fewer", "3 output tokens by usage, 4 asked"),
    ],
)
def test_a_spoiled_run_is_repeated(bench, script, problem):
    bench.measure({"script": {str(FIRST): script}})
    bench.check_complete()
    assert any("invalid, repeating it: request 0: " in t and problem in t for t in bench.said)


def test_a_run_that_stays_bad_is_named_and_nothing_is_published(bench):
    number = len(bench.runs[0].trace)
    faults = {"script": {str(FIRST): "early_end", str(FIRST + number): "early_end"}}
    with pytest.raises(MeasuringFailed) as caught:
        bench.measure(faults)
    text = str(caught.value)
    assert "ppas_cpu burst 20 seed 0 64/4 tokens: invalid: request 0: stream ended" in text
    assert "3 of 4 runs are kept" in text
    assert bench.runs[0].run_id not in bench.kept()
    with pytest.raises(FileNotFoundError, match=r"results.*make it with"):
        Study(bench.results, measured={"cpu_demo": "cpu/cpu_demo"}).records("cpu_demo")


@pytest.fixture
def one_run(tmp_path):
    return Bench(tmp_path, "seeds=[0]", "workload.burst_rates=[20]")


def test_a_warm_prefix_cache_spoils_a_run(one_run):
    with pytest.raises(MeasuringFailed, match=r"prompt tokens were found in the prefix cache"):
        one_run.measure({"hits": 16})
    assert not one_run.kept()


def test_requests_that_stay_in_the_engine_spoil_a_run(one_run):
    with pytest.raises(MeasuringFailed, match=r"requests stay in the engine"):
        one_run.measure({"stuck": 1})


def test_no_prompt_is_sent_twice(bench, monkeypatch):
    from ppas.serving import session

    seen = []
    make = session.make_calls
    monkeypatch.setattr(
        session, "make_calls", lambda *a: seen.extend(calls := make(*a)) or calls
    )  # fmt: skip
    bench.measure({"script": {str(FIRST): "early_end"}})  # one run is repeated
    assert len({tuple(call.prompt) for call in seen}) == len(seen) > 0


def test_a_killed_client_is_replaced(bench):
    def kill_client() -> None:
        while not bench.kept():
            time.sleep(0.01)
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_client)
    killer.start()
    bench.measure()
    killer.join()
    bench.check_complete()
    assert any("the client's process was killed" in text for text in bench.said)
    assert len(starts(bench.fake)) == 1


def test_a_full_disk_stops_the_session_with_one_line(bench):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))  # a run's records need more
    try:
        with pytest.raises(MeasuringFailed, match="File too large") as caught:
            bench.measure()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "0 of 4 runs are kept" in str(caught.value)
    bench.check_servers_gone()
    bench.measure()
    bench.check_complete()


@pytest.fixture
def stranger(tmp_path):
    """A port on which somebody else's server answers."""
    python, port = fake_python(tmp_path / "other"), free_port()
    command = [str(python), "-m", "any", "--port", str(port), "--served-model-name", "stranger"]
    with Server(command, tmp_path / "other.log", port, "stranger") as server:
        server.wait_until_ready(20)
        yield port


def test_a_stranger_on_the_port_is_told_from_ours(stranger, tmp_path):
    silent = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        Server(silent, tmp_path / "ours.log", stranger, "ours") as ours,
        pytest.raises(ServerDied, match=rf"not own port {stranger}.*serves \['stranger'\]"),
    ):
        ours.wait_until_ready(20)


def test_a_server_that_finds_its_port_taken_says_so(stranger, tmp_path):
    bind = f"import socket; socket.create_server(('127.0.0.1', {stranger}))"
    with Server([sys.executable, "-c", bind], tmp_path / "ours.log", stranger, "ours") as ours:
        while ours.alive:
            time.sleep(0.01)
        with pytest.raises(ServerDied, match=r"(?s)exit status 1.*Address already in use"):
            ours.wait_until_ready(20)


def test_one_session_at_a_time_on_a_device(bench, tmp_path):
    fake_python(bench.fake)
    other = Bench(tmp_path / "other")
    fake_python(other.fake)
    processes = [
        subprocess.Popen(b.command(), stdout=subprocess.PIPE, text=True) for b in (bench, other)
    ]
    texts = [process.communicate(timeout=60)[0] for process in processes]
    assert sum("waiting: another session has the CPU" in text for text in texts) == 1
    bench.check_complete()
    other.check_complete()


def run_until(bench: Bench, kept: int, signal_number: int) -> tuple[int, str]:
    """Start the command, send a signal once so many runs are kept; its status and words."""
    with subprocess.Popen(
        bench.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        while process.poll() is None and len(bench.kept()) < kept:
            time.sleep(0.005)
        time.sleep(random.random() * 0.2)
        process.send_signal(signal_number)
        text = process.stdout.read()
    return process.returncode, text


def test_a_session_survives_being_killed_three_times(bench):
    fake_python(bench.fake)
    for kept in (1, 2, 3):
        status, _ = run_until(bench, kept, signal.SIGKILL)
        assert status == -signal.SIGKILL
        bench.check_servers_gone()
        assert kept <= len(bench.kept())
    subprocess.run(bench.command(), check=True)
    bench.check_complete()
    assert len(starts(bench.fake)) == 4


@pytest.mark.parametrize("number, word", [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "")])
def test_an_interruption_stops_the_server(bench, number, word):
    fake_python(bench.fake)
    status, text = run_until(bench, 1, number)
    assert status == 128 + number
    assert word in text and "Traceback" not in text
    bench.check_servers_gone()
    assert bench.kept()


def test_a_lost_request_of_one_scheduler_is_refused(bench):
    for slug in bench.by_slug:
        bench.measure(slug=slug)
    study = Study(bench.results, measured={"cpu_demo": "cpu/cpu_demo"})
    assert set(study.records("cpu_demo")["source"]) == {"measured"}
    frame = pd.read_parquet(bench.store.records_path)
    frame.iloc[1:].to_parquet(bench.store.records_path)
    with pytest.raises(ValueError, match=re.compile("request", re.IGNORECASE)):
        Study(bench.results, measured={"cpu_demo": "cpu/cpu_demo"}).records("cpu_demo")
    assert bench.store.published()["runs"] == {}  # nor is it trusted to be complete


def test_a_server_does_not_inherit_thread_counts(monkeypatch, tmp_path):
    """Snakemake sets them for its jobs; vLLM's CPU build is twenty times slower with them."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    show = [sys.executable, "-c", "import os; print(os.environ.get('OMP_NUM_THREADS'))"]
    for given, seen in (({}, "None"), ({"OMP_NUM_THREADS": "7"}, "7")):
        with Server(show, tmp_path / "log", 1, "any", given) as server:
            server.process.wait()
        assert server.log.read_text().strip() == seen
