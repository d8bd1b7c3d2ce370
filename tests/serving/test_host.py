"""Devices of a host: which are the experiment's, and one session at a time on each."""

import tempfile
import threading

import pytest

from ppas.config import ConfigError
from ppas.serving import host
from ppas.serving.host import Device

GPUS = [
    Device("NVIDIA H200", "GPU-a", "0"),
    Device("NVIDIA H200", "GPU-b", "1"),
    Device("NVIDIA GeForce RTX 5090", "GPU-c", "2"),
]


@pytest.fixture(autouse=True)
def gpus(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "gpus", lambda: GPUS)
    monkeypatch.setattr(host, "WAIT_S", 0.01)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_devices_are_found_by_name():
    assert [d.index for d in host.devices_for("H200")] == ["0", "1"]
    assert [d.index for d in host.devices_for("RTX 5090")] == ["2"]
    assert [d.lock for d in host.devices_for("")] == ["cpu"]


@pytest.mark.parametrize(
    "allowed, indices",
    [(None, "012"), ("1", "1"), ("2,0", "02"), ("GPU-b", "1"), ("", "")],
)
def test_a_cluster_leaves_some_devices(allowed, indices):
    assert "".join(d.index for d in host.visible(GPUS, allowed)) == indices


def test_sessions_take_one_gpu_each_and_the_next_one_waits():
    said = []
    with host.reserved("H200") as first:
        with host.reserved("H200") as second:
            assert {first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]} == {"0", "1"}
            got = []

            def third() -> None:
                with host.reserved("H200", said.append) as device:
                    got.append(device["CUDA_VISIBLE_DEVICES"])

            waiting = threading.Thread(target=third)
            waiting.start()
            waiting.join(0.2)
            assert not got and len(said) == 1 and "waiting" in said[0]
        waiting.join(5)
        assert got == [second["CUDA_VISIBLE_DEVICES"]]
    with host.reserved("H200"), host.reserved("RTX 5090") as other:
        assert other == {"CUDA_VISIBLE_DEVICES": "2"}


def test_a_missing_gpu_is_one_line():
    with (
        pytest.raises(ConfigError, match=r"conf/hardware: device: this host has no B300"),
        host.reserved("B300"),
    ):
        pass
