"""What a measurement says of where it ran: enough to repeat it, nothing of the machine's paths."""

import subprocess
import sys
from pathlib import Path

from ppas.config import ROOT
from ppas.serving import provenance as made

METRICS = """\
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",num_gpu_blocks="1234",enable_prefix_caching="True"} 1.0
"""


def test_facts_of_a_session():
    command = [sys.executable, "-m", "server", "--model", f"{ROOT}/results/model"]
    facts = made.provenance(
        Path(sys.executable), command, {"PYTHONPATH": "/x", "HF_HUB_OFFLINE": "1"}, METRICS
    )
    assert facts["flags"] == ["-m", "server", "--model", "results/model"]
    assert facts["environment"] == {"HF_HUB_OFFLINE": "1"}
    assert facts["kv_cache"]["num_gpu_blocks"] == "1234"
    assert facts["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["gpu"] is None and facts["host"]["cores"] > 0


def test_a_commit_is_marked_when_what_decides_differs(tmp_path):
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, "-C", tmp_path, *words], check=True)

    assert made.commit(tmp_path) is None
    (tmp_path / "src").mkdir()
    (tmp_path / "conf").mkdir()
    for name in ("src/a.py", "conf/b.yaml", "notes.md"):
        (tmp_path / name).write_text("1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    clean = made.commit(tmp_path)
    (tmp_path / "notes.md").write_text("2\n")
    assert made.commit(tmp_path) == clean and len(clean) == 40
    (tmp_path / "conf/b.yaml").write_text("2\n")
    assert made.commit(tmp_path) == f"{clean}-dirty"
