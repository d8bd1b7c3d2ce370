"""A real vLLM server on the CPU build for tests: its life cycle, and a streaming client.

`Server` runs `python -m vllm.entrypoints.openai.api_server` (the `vllm` command of the CPU build
looks for a distribution of another name) on a tiny model from `write_model`. Prompts and answers
are token ids, so no tokenizer is needed.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from safetensors.numpy import save_file

SOURCE = Path(__file__).parents[2] / "src"
READY_S = 300  # a server imports vLLM in three processes, one after another
STOP_S = 60
REPLY_S = 180  # longest silence of a server that has a request
TAIL_LINES = 25  # of a log, besides as many of its errors

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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ServerDied(RuntimeError):
    """The server ended, or is not ready in time; the message has the end of its log."""


def _guard(group: int) -> subprocess.Popen[bytes]:
    """A process that kills the process group should this one be killed before it can.

    It waits for the end of a pipe that closes with this process, however that ends.
    """
    return subprocess.Popen(
        ["sh", "-c", 'read _; kill -s KILL -- "-$0"', str(group)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


class Server:
    """A vLLM server on 127.0.0.1, started on construction; a context manager that ends it.

    Its log is ``<folder>/<name>.log``. `environment` adds variables to those of this process.
    """

    def __init__(
        self, folder: Path, name: str, model: Path, budget: int, *options: str, **environment: str
    ) -> None:
        self.log = folder / f"{name}.log"
        self.port = _free_port()
        self.ready = False
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(model), "--served-model-name", "tiny", "--skip-tokenizer-init"]
        command += ["--dtype", "float32", "--enforce-eager", "--no-enable-prefix-caching"]
        command += ["--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", "16", "--seed", "0"]
        command += ["--max-num-batched-tokens", str(budget), *options]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                env=_environment() | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.guard = _guard(self.process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def wait_until_ready(self) -> None:
        """Wait for /health; fail at once if the server ends first."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ServerDied(f"exit status {self.process.returncode} at start\n{self.tail()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/health")[0] == http.HTTPStatus.OK:
                    self.ready = True
                    return
            time.sleep(0.25)
        raise ServerDied(f"not ready after {READY_S} s\n{self.tail()}")

    def stop(self) -> None:
        """Stop as an operator would, wait, then end what is left of the process group.

        A server that is not up yet does not heed the signal, and is not asked to.
        """
        if self.guard.returncode is not None:
            return  # stopped before
        try:
            if self.ready:
                self.process.terminate()
                self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.guard.kill()
            self.guard.communicate()

    def tail(self) -> str:
        """The log's last errors and last lines, without what libraries say of their leaks."""
        lines = self.log.read_text(errors="replace").splitlines()
        lines = [line for line in lines if not line.startswith(("nanobind", " - "))]
        errors = [line for line in lines[:-TAIL_LINES] if " ERROR " in line][-TAIL_LINES:]
        return "\n".join([f"--- end of {self.log} ---", *errors, "...", *lines[-TAIL_LINES:]])

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a GET."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()


def _environment() -> dict[str, str]:
    """This process's variables and those that a server on the CPU needs."""
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    return os.environ | {
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
        "model": "tiny",
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
