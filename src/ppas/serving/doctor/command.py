"""A `vllm serve` command line, as far as the plugin depends on it."""

import argparse
import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn


class UsageError(ValueError):
    """The command line to check cannot be read; one line that says why."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"command line: {message}")


def parse_command(words: Sequence[str]) -> argparse.Namespace:
    """What matters of a `vllm serve` command line, in all of vLLM's spellings.

    Raises:
        UsageError: no such command line, or a value that vLLM would refuse as well.
    """
    words = list(words[1:] if words[:1] == ["--"] else words)
    if not any("vllm" in word for word in words):
        raise UsageError("command line: give the one to check, as in: -- vllm serve MODEL ...")
    serve, _ = _parser().parse_known_args(_plain_flags(words))
    if serve.model is None and "serve" in words[:-1]:
        model = words[words.index("serve") + 1]
        serve.model = None if model.startswith("-") else model
    if serve.spec_tokens is None:
        serve.spec_tokens = _draft_tokens(serve.speculative_config)
    return serve


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    for text in ("model", "config", "scheduler-cls", "additional-config", "mamba-cache-mode",
                 "kv-cache-memory-bytes", "num-gpu-blocks-override"):  # fmt: skip
        parser.add_argument(f"--{text}")
    for name in ("max-num-batched-tokens", "max-num-scheduled-tokens", "max-num-seqs"):
        parser.add_argument(f"--{name}", type=whole_number)
    for name in ("dtype", "kv-cache-dtype", "mamba-ssm-cache-dtype"):
        parser.add_argument(f"--{name}", default="auto")
    for name in ("async-scheduling", "enable-chunked-prefill", "enable-prefix-caching"):
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
        if name.startswith("enable-"):
            parser.add_argument(f"--disable-{name[7:]}", action="store_false",
                                dest=name.replace("-", "_"), default=None)  # fmt: skip
    parser.add_argument("--max-model-len", type=_model_length)
    parser.add_argument("--block-size", type=whole_number, default=16)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.92)
    parser.add_argument("--tensor-parallel-size", "-tp", type=whole_number, default=1)
    parser.add_argument("--pipeline-parallel-size", "-pp", type=whole_number, default=1)
    parser.add_argument("--speculative-config", "-sc")
    parser.add_argument("--spec-tokens", type=whole_number)
    return parser


def whole_number(text: str) -> int:
    """Read a number as vLLM does: 16384, 16K (binary) or 16k (decimal)."""
    match = re.fullmatch(r"(\d+)([kKmM]?)", text.strip())
    if match is None or int(match[1]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(match[1]) * {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20}[match[2]]


def _model_length(text: str) -> int | None:
    return None if text in ("auto", "-1") else whole_number(text)


def _draft_tokens(speculative_config: str | None) -> int:
    """Draft tokens per decode and step."""
    try:
        return int(json.loads(speculative_config or "{}").get("num_speculative_tokens") or 0)
    except (ValueError, TypeError, AttributeError):
        return 0  # vLLM refuses it better than we could


def _plain_flags(words: Sequence[str]) -> list[str]:
    """vLLM takes `--a_b` for `--a-b`, and `--a.key value` for a part of a's JSON."""
    plain, parts, rest = [], {}, iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        flag, dot, path = name.partition(".")
        flag = flag.replace("_", "-") if flag.startswith("--") else flag
        if flag.startswith("--") and dot:
            keys = path.split(".")
            _put(parts.setdefault(flag, {}), keys, value if equals else next(rest, ""))
        else:
            plain.append(f"{flag}{dot}{path}{equals}{value}")
    for flag, content in parts.items():
        plain += [flag, json.dumps(content)]
    return plain


def _put(content: dict[str, Any], keys: Sequence[str], text: str) -> None:
    for key in keys[:-1]:
        content = content.setdefault(key, {})
    try:
        content[keys[-1]] = json.loads(text)
    except json.JSONDecodeError:
        try:
            content[keys[-1]] = whole_number(text)
        except argparse.ArgumentTypeError:
            content[keys[-1]] = text
