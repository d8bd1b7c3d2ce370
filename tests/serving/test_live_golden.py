"""The recorded step logs are what this environment's vLLM still does."""

from vllm import __version__

from .cases import GOLDEN, golden_cases, read_golden
from .test_lockstep import plugin_steps


def test_recording_is_current():
    recorded = read_golden(GOLDEN / f"steps_vllm_{__version__}.json")
    assert [plugin_steps(case) for case in golden_cases()] == recorded
