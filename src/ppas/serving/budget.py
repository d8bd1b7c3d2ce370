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

# Not "ppas...": vLLM configures its own logger and its children only.
logger = logging.getLogger("vllm.ppas")

# Where requests wait: one queue everywhere, a second for those that cannot run yet (its names
# in older and newer versions).
WAITING_QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")


class TokenBudgetMixin:
    """Chooses the token budget of each step; mix in before one of vLLM's schedulers.

    It keeps no state of its own about requests, so that no abort, preemption or resumption can
    leave it wrong: each step looks once at the running requests and at the queues' lengths, which
    costs under one percent of what vLLM's own pass over them does.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limit: int = self.max_num_scheduled_tokens
        options = read_options(self.vllm_config.additional_config, self._limit)
        self._policy = options.policy
        self._log = StepLog(options.step_log) if options.step_log else None
        self._counters = budget_counters()
        self._started = time.monotonic()
        self._tokens_per_decode = 1 + getattr(self, "num_spec_tokens", 0)
        self._least_prefill = self._block_aligned_chunk()
        if self._policy.b_max > self._limit:
            logger.warning(
                "P-PAS: b_max %d is above vLLM's own limit; using %d (max_num_scheduled_tokens, "
                "else --max-num-batched-tokens)",
                self._policy.b_max,
                self._limit,
            )
        logger.info("P-PAS: policy %s", describe(self._policy))

    def _block_aligned_chunk(self) -> int:
        """Smallest prefill chunk, in tokens, that a hybrid model's block alignment lets through.

        Chunks then end on Mamba block boundaries, so that a smaller budget can schedule nothing,
        step after step.
        """
        if not getattr(self, "need_mamba_block_aligned_split", False):
            return 0
        block = int(self.cache_config.block_size)
        if self._policy.b_cap < block:
            logger.warning(
                "P-PAS: b_cap %d is below the Mamba block size; prefills are given %d tokens "
                "instead. The smallest safe b_cap is %d.",
                self._policy.b_cap,
                block,
                block,
            )
        return block

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's schedule, within the budget that the policy chooses for this step."""
        seen = self._snapshot()
        decision = decide(seen, self._policy)
        if self._least_prefill:
            decision = self._with_room_for_a_block(decision, seen)
        self.max_num_scheduled_tokens = decision.total_budget
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            self.max_num_scheduled_tokens = self._limit
        if self._log is not None:
            prefill = self._prefill_tokens(output)
            self._log.add(seen, decision, output.total_num_scheduled_tokens, prefill)
        if self._counters is not None:
            self._counters.count(seen.now, decision.reason)
        if not output.total_num_scheduled_tokens and not self.has_requests():
            self._flush()  # idle from here on, perhaps until vLLM kills this process
        return output

    def _with_room_for_a_block(self, decision: Decision, seen: Snapshot) -> Decision:
        least = min(self._least_prefill + seen.decode_tokens, self._limit)
        return decision._replace(total_budget=max(decision.total_budget, least))

    def _snapshot(self) -> Snapshot:
        """The scheduler's state before the step."""
        left = [
            request.num_prompt_tokens - request.num_computed_tokens
            for request in self.running
            if request.num_computed_tokens < request.num_prompt_tokens
        ]
        decodes = len(self.running) - len(left)
        return Snapshot(
            time.monotonic() - self._started,
            len(left),
            self._waiting_prefills(),
            decodes,
            decodes * self._tokens_per_decode,
            sum(left),
            self._limit,
        )

    def _waiting_prefills(self) -> int:
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

    def _prefill_tokens(self, output: Any) -> int:
        """Prompt tokens of the step just scheduled, whose tokens already count as computed."""
        total = 0
        for name, tokens in output.num_scheduled_tokens.items():
            request = self.requests[name]
            before = request.num_computed_tokens - tokens
            total += max(0, min(tokens, request.num_prompt_tokens - before))
        return total

    def _flush(self) -> None:
        """Write what is buffered."""
        if self._log is not None:
            self._log.flush()
        if self._counters is not None:
            self._counters.stop()

    def shutdown(self) -> None:
        """Write what is buffered, then shut vLLM's scheduler down."""
        self._flush()
        super().shutdown()
