"""The Slurm profile on a real Slurm: one GPU for each session, and no two sessions on one GPU.

The GPUs are stand-ins, so that sessions are stand-ins too: they record what Slurm gave them.
"""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests import slurm
from tests.test_workflow import ROOT, Checkout, wait_for

pytestmark = pytest.mark.skipif(slurm.missing() is not None, reason=str(slurm.missing()))

RULES = """

for name in ("one", "two"):

    rule:
        name:
            f"measure_second_{name}"
        output:
            f"results/measured/{name}.json",
        resources:
            gpu=1,
        shell:
            "python session.py {output}"
"""
# It ends when the other one has started too: on one GPU, that takes the end of one of them.
SESSION = """\
import json, os, sys, time
from pathlib import Path

output, start = Path(sys.argv[1]), time.time()
output.with_suffix(".started").touch()
while len(list(output.parent.glob("*.started"))) < 2:
    time.sleep(0.05)
gpus = os.environ["CUDA_VISIBLE_DEVICES"]
output.write_text(json.dumps({"gpus": gpus, "start": start, "end": time.time()}))
"""
SESSIONS = ("measure_second_one", "measure_second_two")
QUICK = ("--slurm-init-seconds-before-status-checks", "2")
COMMAND = ("--profile", "profiles/slurm", *QUICK, *SESSIONS)


class Cluster(Checkout):
    """A checkout with two sessions to run, and a cluster of one node to run them on."""

    def __init__(self, path: Path, env: dict[str, str]):
        path.mkdir()
        super().__init__(path)
        self.with_code()
        self.env = env
        with (path / "Snakefile").open("a") as snakefile:
            snakefile.write(RULES)
        (path / "session.py").write_text(SESSION)

    def sessions(self) -> list[dict]:
        """What the finished sessions recorded."""
        records = sorted((self.path / "results/measured").glob("*.json"))
        return [json.loads(record.read_text()) for record in records]

    def jobs(self) -> list[dict[str, str]]:
        """What Slurm knows of every job, the oldest first."""
        lines = slurm.ask(self.env, "scontrol", "show", "job", "--oneliner").splitlines()
        return [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines]


def test_two_gpus_take_two_sessions_at_once(tmp_path):
    with slurm.cluster(tmp_path / "slurm", gpus=2) as env:
        checkout = Cluster(tmp_path / "checkout", env)
        checkout.run(*COMMAND, "simulate_second")
        jobs = checkout.jobs()
    assert (checkout.results("second") / "manifest.json").exists()
    first, second = checkout.sessions()  # neither ends before both have started
    assert {first["gpus"], second["gpus"]} == {"0", "1"}

    asked = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())["default-resources"]
    assert len(jobs) == 2  # light work was not queued
    for job in jobs:
        assert re.search(r"gpu[:=]1$", job["TresPerJob"])
        assert int(job["NumCPUs"]) == asked["cpus_per_task"]
        assert job["TimeLimit"] == f"{int(asked['runtime'].removesuffix('h')):02}:00:00"


def test_one_gpu_takes_one_session_and_a_cancelled_one_is_finished_later(tmp_path):
    with slurm.cluster(tmp_path / "slurm", gpus=1) as env:
        checkout = Cluster(tmp_path / "checkout", env)
        process = checkout.start(*COMMAND)
        started = checkout.path / "results/measured"
        wait_for(lambda: list(started.glob("*.started")) or process.poll() is not None)
        wait_for(lambda: len(checkout.jobs()) == 2 or process.poll() is not None)
        states = {job["JobState"]: job["JobId"] for job in checkout.jobs()}
        assert set(states) == {"RUNNING", "PENDING"}

        slurm.ask(env, "scancel", states["RUNNING"])
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "SLURM status is: 'CANCELLED'" in output
        assert len(checkout.sessions()) == 1  # the other one ran nevertheless

        checkout.run(*COMMAND)
        cancelled, *finished = checkout.jobs()
    assert [session["gpus"] for session in checkout.sessions()] == ["0", "0"]
    for before, after in pairwise([cancelled, *finished]):
        assert before["EndTime"] <= after["StartTime"]
