"""A real vLLM server on the CPU build for tests, with a tiny model, and a client that keeps tokens.

`serve` runs `python -m vllm.entrypoints.openai.api_server` (the `vllm` command of the CPU build
looks for a distribution of another name) on a model from `write_model`. Prompts and answers are
token ids, so no tokenizer is needed.
"""

import contextlib
import http.client
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save_file

from ppas.serving.server import Server, free_port

SOURCE = Path(__file__).parents[2] / "src"
READY_S = 300  # a server imports vLLM in three processes, one after another
REPLY_S = 180  # longest silence of a server that has a request
MODEL = "tiny"

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, VOCAB = 64, 128, 2, 2, 1, 512
MAX_MODEL_LEN = 16384
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCAB,
    "max_position_embeddings": MAX_MODEL_LEN,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "torch_dtype": "float32",
}


def write_model(folder: Path) -> Path:
    """Make a Qwen2 of 140,000 random weights, the same every time.

    Not vLLM's own dummy weights: they are so small that attention adds nothing, and the answer
    depends on the last token of a prompt alone. Here it depends on the whole prompt.
    """
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))
    random = np.random.default_rng(0)
    weights = {
        name: random.normal(0, scale, shape).astype(np.float32) for name, scale, shape in _weights()
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def _weights() -> Iterator[tuple[str, float, tuple[int, ...]]]:
    """Name, standard deviation and shape of each weight.

    Most keep activations near 1; queries and keys are larger, so that of thousands of tokens
    attention picks a few.
    """
    width = HIDDEN // HEADS
    unit = HIDDEN**-0.5
    yield "model.embed_tokens.weight", 1.0, (VOCAB, HIDDEN)
    yield "lm_head.weight", unit, (VOCAB, HIDDEN)
    yield "model.norm.weight", 1.0, (HIDDEN,)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", 1.0, (HIDDEN,)
        yield prefix + "post_attention_layernorm.weight", 1.0, (HIDDEN,)
        for name, heads, scale in (("q", HEADS, 1.6), ("k", KV_HEADS, 1.6), ("v", KV_HEADS, 1.0)):
            yield f"{prefix}self_attn.{name}_proj.weight", scale * unit, (heads * width, HIDDEN)
            yield f"{prefix}self_attn.{name}_proj.bias", 0.1, (heads * width,)
        yield prefix + "self_attn.o_proj.weight", unit, (HIDDEN, HEADS * width)
        yield prefix + "mlp.gate_proj.weight", unit, (INTERMEDIATE, HIDDEN)
        yield prefix + "mlp.up_proj.weight", unit, (INTERMEDIATE, HIDDEN)
        yield prefix + "mlp.down_proj.weight", INTERMEDIATE**-0.5, (HIDDEN, INTERMEDIATE)


def serve(
    folder: Path, name: str, model: Path, budget: int, *options: str, **environment: str
) -> Server:
    """A server of a model from `write_model`, starting; its log is ``<folder>/<name>.log``.

    `environment` adds variables to those of this process.
    """
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(model), "--served-model-name", MODEL, "--skip-tokenizer-init"]
    command += ["--dtype", "float32", "--enforce-eager", "--no-enable-prefix-caching"]
    command += ["--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", "16", "--seed", "0"]
    command += ["--max-num-batched-tokens", str(budget), *options]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    return Server(command, folder / f"{name}.log", port, MODEL, _environment() | environment)


def _environment() -> dict[str, str]:
    """Variables that a server on the CPU needs."""
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    return {
        "PYTHONPATH": path,
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; 16 full contexts take a tenth
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


class Job(NamedTuple):
    """A completion to ask for: prompt ids, and how many tokens to make."""

    prompt: Sequence[int]
    max_tokens: int


@dataclass
class Answer:
    """What a completion's stream brought."""

    tokens: list[int] = field(default_factory=list)
    events: int = 0  # that brought tokens
    finish_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    done: bool = False  # the stream was closed by the server's [DONE]


def stream(server: Server, job: Job, first_token: threading.Event | None = None) -> Answer:
    """Ask for a completion and follow its stream.

    The event is set at the first token, or if there will be none.
    """
    first_token = first_token or threading.Event()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=REPLY_S)
    try:
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(_request(job)), headers)
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise RuntimeError(f"{response.status}: {response.read().decode()}")
            return _read_events(response, first_token)
    except Exception as error:
        error.add_note(server.tail())
        raise
    finally:
        first_token.set()


def _request(job: Job) -> dict[str, Any]:
    return {
        "model": MODEL,
        "prompt": list(job.prompt),
        "max_tokens": job.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }


def _read_events(lines: Iterator[bytes], first_token: threading.Event) -> Answer:
    """Collect the server-sent events of one completion."""
    answer = Answer()
    for line in lines:
        if not line.startswith(b"data: "):
            continue
        if line.strip() == b"data: [DONE]":
            answer.done = True
            continue
        event = json.loads(line.removeprefix(b"data: "))
        answer.usage = event.get("usage") or answer.usage
        for choice in event["choices"]:
            answer.finish_reason = choice["finish_reason"] or answer.finish_reason
            if choice.get("token_ids"):
                answer.tokens += choice["token_ids"]
                answer.events += 1
                first_token.set()
    return answer
