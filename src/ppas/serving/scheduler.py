"""What `vllm serve --scheduler-cls` names: vLLM's schedulers with a token-budget policy.

    vllm serve MODEL --max-num-batched-tokens 16384 \\
        --scheduler-cls ppas.serving.scheduler.PPASScheduler \\
        --additional-config '{"ppas": {"policy": "ppas", "b_cap": 2048}}'
"""

import logging
from typing import Any

from ppas.serving.budget import TokenBudgetMixin
from ppas.serving.options import version_warning

try:
    from vllm import __version__ as vllm_version
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
except ImportError as error:
    raise ImportError(
        f"ppas.serving.scheduler needs vLLM in this environment: pip install vllm ({error})"
    ) from None

if warning := version_warning(vllm_version):
    logging.getLogger("vllm.ppas").warning(warning)


class PPASScheduler(TokenBudgetMixin, AsyncScheduler):
    """vLLM's scheduler with a token-budget policy.

    It serves synchronous engines too: vLLM's asynchronous scheduler falls back to the synchronous
    schedule where async scheduling is off.
    """


class PPASSyncScheduler(TokenBudgetMixin, Scheduler):
    """The same on vLLM's synchronous base class, for engines with async scheduling off."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.scheduler_config.async_scheduling:
            raise ValueError(
                "--scheduler-cls: PPASSyncScheduler is synchronous but async scheduling is on, "
                "which would leave the GPU idle between steps; "
                "name ppas.serving.scheduler.PPASScheduler"
            )
