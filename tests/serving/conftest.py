"""Tests of serving. Those that need vLLM are collected only where it is installed."""

from importlib.util import find_spec

NEEDS_VLLM = [
    "test_counts.py",
    "test_hazards.py",
    "test_live_golden.py",
    "test_lockstep.py",
    "test_real_engine.py",
    "test_step_log.py",
]

# Those of this package, which a server does without.
NEEDS_PACKAGES = [
    "test_client.py",
    "test_host.py",
    "test_launch.py",
    "test_probing.py",
    "test_provenance.py",
    "test_real_session.py",
    "test_session.py",
    "test_stream.py",
]

collect_ignore = [] if find_spec("vllm") else [*NEEDS_VLLM]
collect_ignore += [] if find_spec("hydra") else NEEDS_PACKAGES
compared = {"steps": 0, "different": 0}


def pytest_terminal_summary(terminalreporter):
    """Say how many real scheduler steps were compared with the simulator's."""
    if compared["steps"]:
        terminalreporter.write_line(
            f"lockstep: {compared['steps']:,} real scheduler steps compared, "
            f"{compared['different']} different"
        )
