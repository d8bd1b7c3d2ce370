"""One prompt's prefill in offline vLLM: warmed up, timed and, if asked, profiled.

Runs in the Python that has vLLM (0.22.1 to 0.33.0), which needs nothing else of this package's
dependencies::

    python -m ppas.profiling.prefill --model MODEL --budget 2048 --out FOLDER

The engine runs in this process (VLLM_ENABLE_V1_MULTIPROCESSING=0), where a profiler sees its
kernels. A prefill ends with the first output token; a clock around the engine's steps takes in
scheduling and sampling too. Results are in ``FOLDER/prefill.json``, a trace of PyTorch's profiler
beside it. Timed repeats run before anything is recorded.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROMPT_TOKENS = 16384  # Figure 5 compares chunks that add up to 16k
REPEATS = 5
WARM_UPS = 2
NOTHING, TORCH, CUDA = "nothing", "torch", "cuda"
RESULT = "prefill.json"


def main(argv: Sequence[str] | None = None) -> None:
    """Time ``--repeats`` prefills and record one more."""
    args = _parser().parse_args(argv)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    args.out.mkdir(parents=True, exist_ok=True)
    import torch
    import vllm

    llm = vllm.LLM(**engine_options(args))
    engine = llm.llm_engine
    params = vllm.SamplingParams(max_tokens=1, temperature=0, detokenize=False)
    vocabulary = engine.model_config.get_vocab_size()
    prompts = iter(make_prompts(WARM_UPS + args.repeats + 1, args.prompt_tokens, vocabulary))
    for _ in range(WARM_UPS):
        prefill_s(engine, next(prompts), params)
    seconds = [prefill_s(engine, next(prompts), params) for _ in range(args.repeats)]
    if args.record != NOTHING:
        with recording(args.record, llm):
            prefill_s(engine, next(prompts), params)
    result = {
        "seconds": seconds,
        "model": args.model,
        "budget": args.budget,
        "prompt_tokens": args.prompt_tokens,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "vllm": vllm.__version__,
        "torch": torch.__version__,
    }
    (args.out / RESULT).write_text(json.dumps(result, indent=2) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ppas.profiling.prefill")
    parser.add_argument("--model", required=True, help="a repository or a folder")
    parser.add_argument("--budget", type=int, required=True, help="max_num_batched_tokens")
    parser.add_argument("--prompt-tokens", type=int, default=PROMPT_TOKENS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--record", choices=(NOTHING, TORCH, CUDA), default=NOTHING,
                        help="torch: write a trace; cuda: call cudaProfilerStart and Stop around "
                        "one prefill, for nsys and ncu")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--engine", type=json.loads, default={}, metavar="JSON",
                        help="more arguments of vllm.LLM")  # fmt: skip
    return parser


def engine_options(args: argparse.Namespace) -> dict[str, Any]:
    """Arguments of ``vllm.LLM``: one request at a time, nothing cached between prompts."""
    options = {
        "model": args.model,
        "skip_tokenizer_init": True,
        "max_model_len": args.prompt_tokens + 1,
        "max_num_batched_tokens": args.budget,
        "max_num_seqs": 1,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": False,
    }
    if args.record == TORCH:
        options["profiler_config"] = {
            "profiler": "torch",
            "torch_profiler_dir": str(args.out.resolve()),
            "torch_profiler_record_shapes": True,  # gate-up is told by its shape
            "torch_profiler_with_stack": False,
            "torch_profiler_dump_cuda_time_total": False,  # no table in the log
        }
    return options | args.engine


def make_prompts(count: int, tokens: int, vocabulary: int) -> list[list[int]]:
    """Random token ids, the same every time."""
    draw = random.Random(0)
    return [[draw.randrange(vocabulary) for _ in range(tokens)] for _ in range(count)]


def prefill_s(engine: Any, prompt: list[int], params: Any) -> float:
    """Seconds of a vLLM ``LLMEngine``'s steps from a request's first chunk to its only token."""
    engine.add_request("prefill", {"prompt_token_ids": prompt}, params)
    start = time.perf_counter()
    while engine.has_unfinished_requests():
        engine.step()
    return time.perf_counter() - start


@contextmanager
def recording(kind: str, llm: Any) -> Iterator[None]:
    """Record what the block runs: vLLM's torch profiler, or CUDA's profiler calls."""
    if kind == TORCH:
        llm.start_profile()
        yield
        llm.stop_profile()
        return
    import torch

    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    yield
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main()
