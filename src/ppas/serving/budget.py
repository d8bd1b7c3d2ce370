"""The plugin itself: sets vLLM's token budget before each step and leaves the rest to vLLM.

A mixin, so that one piece of code serves vLLM's asynchronous and synchronous schedulers, and so
that it can be tested without vLLM. It copies and patches nothing: `schedule()` reads
`max_num_scheduled_tokens` (vllm/v1/core/sched/scheduler.py), and that is what it sets.
"""

import logging
import time
from typing import Any

from ppas.policies import Decision, Snapshot, decide, describe
from ppas.serving.metrics import budget_counters
from ppas.serving.options import read_options
from ppas.serving.step_log import StepLog
from ppas.work import NO_WORK, Work, add_chunk

# Not "ppas...": vLLM configures its own logger and its children only.
logger = logging.getLogger("vllm.ppas")

# Where requests wait: one queue everywhere, a second for those that cannot run yet (its names
# in older and newer versions).
WAITING_QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")


class TokenBudgetMixin:
    """Chooses the token budget of each step; mix in before one of vLLM's schedulers.

    It keeps no state of its own about requests, so that no abort, preemption or resumption can
    leave it wrong: each step looks once at the running requests and at the queues' lengths, which
    costs under one percent of what vLLM's own pass over them does. Its attributes begin with
    `_ppas_`, to stay clear of vLLM's.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ppas_limit: int = self.max_num_scheduled_tokens
        options = read_options(self.vllm_config.additional_config, self._ppas_limit)
        self._ppas_policy = options.policy
        self._ppas_log = StepLog(options.step_log) if options.step_log else None
        self._ppas_counters = budget_counters()
        self._ppas_started = time.monotonic()
        self._ppas_tokens_per_decode = 1 + getattr(self, "num_spec_tokens", 0)
        self._ppas_least_prefill = self._ppas_block_aligned_chunk()
        if self._ppas_policy.b_max > self._ppas_limit:
            logger.warning(
                "P-PAS: b_max %d is above vLLM's own limit; using %d (max_num_scheduled_tokens, "
                "else --max-num-batched-tokens)",
                self._ppas_policy.b_max,
                self._ppas_limit,
            )
        logger.info("P-PAS: policy %s", describe(self._ppas_policy))

    def _ppas_block_aligned_chunk(self) -> int:
        """Smallest prefill chunk, in tokens, that a hybrid model's block alignment lets through.

        Chunks then end on Mamba block boundaries, so that a smaller budget can schedule nothing,
        step after step.
        """
        if not getattr(self, "need_mamba_block_aligned_split", False):
            return 0
        block = int(self.cache_config.block_size)
        if self._ppas_policy.b_cap < block:
            logger.warning(
                "P-PAS: b_cap %d is below the Mamba block size; prefills are given %d tokens "
                "instead. The smallest safe b_cap is %d.",
                self._ppas_policy.b_cap,
                block,
                block,
            )
        return block

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's schedule, within the budget that the policy chooses for this step."""
        seen = self._ppas_snapshot()
        decision = decide(seen, self._ppas_policy)
        if self._ppas_least_prefill:
            decision = self._ppas_with_room_for_a_block(decision, seen)
        self.max_num_scheduled_tokens = decision.total_budget
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            self.max_num_scheduled_tokens = self._ppas_limit
        if self._ppas_log is not None:
            self._ppas_log.add(seen, decision, self._ppas_work(output))
        if self._ppas_counters is not None:
            self._ppas_counters.count(seen.now, decision.reason)
        if not output.total_num_scheduled_tokens and not self.has_requests():
            self._ppas_flush()  # idle from here on, perhaps until vLLM kills this process
        return output

    def _ppas_with_room_for_a_block(self, decision: Decision, seen: Snapshot) -> Decision:
        least = min(self._ppas_least_prefill + seen.decode_tokens, self._ppas_limit)
        return decision._replace(total_budget=max(decision.total_budget, least))

    def _ppas_snapshot(self) -> Snapshot:
        """The scheduler's state before the step."""
        left = [
            request.num_prompt_tokens - request.num_computed_tokens
            for request in self.running
            if request.num_computed_tokens < request.num_prompt_tokens
        ]
        decodes = len(self.running) - len(left)
        return Snapshot(
            time.monotonic() - self._ppas_started,
            len(left),
            self._ppas_waiting_prefills(),
            decodes,
            decodes * self._ppas_tokens_per_decode,
            sum(left),
            self._ppas_limit,
        )

    def _ppas_waiting_prefills(self) -> int:
        """Waiting requests with prompt left, from the queues' lengths.

        Whoever waits has nothing computed, for preemption drops what was; except streaming
        sessions that wait for input, and requests whose KV a connector has brought.
        """
        if getattr(self, "connector", None) is None:
            _, waiting = self.get_request_counts()
            return waiting - getattr(self, "num_waiting_for_streaming_input", 0)
        return sum(
            request.num_computed_tokens < request.num_prompt_tokens
            for name in WAITING_QUEUES
            for request in getattr(self, name, ())
        )

    def _ppas_work(self, output: Any) -> Work:
        """What the step just scheduled asks of the GPU; its tokens already count as computed."""
        work = NO_WORK
        for name, tokens in output.num_scheduled_tokens.items():
            request = self.requests[name]
            # A decode takes its one token (or its drafts) and then lacks nothing that is known.
            prefill = request.is_prefill_chunk or tokens > self._ppas_tokens_per_decode
            work = add_chunk(work, tokens, request.num_computed_tokens - tokens, prefill)
        return work

    def _ppas_flush(self) -> None:
        """Write what is buffered."""
        if self._ppas_log is not None:
            self._ppas_log.flush()
        if self._ppas_counters is not None:
            self._ppas_counters.stop()

    def shutdown(self) -> None:
        """Write what is buffered, then shut vLLM's scheduler down."""
        self._ppas_flush()
        super().shutdown()
