"""A server that is started and asked as vLLM's is, and misbehaves as told; no engine in it.

`fake_python` writes an executable to give as the Python that has vLLM. What is wrong with the
server stands in a JSON file beside it, read anew at each request:

    {"die": [7], "script": {"9": "early_end"}, "hits": 16, "stuck": 1}

dies with its 7th request, answers the 9th as that script of the stub (all others as `default`),
reports so many prefix-cache hits per request, and keeps so many requests in its engine. Requests
are counted over all starts.
"""

import json
import os
import signal
import stat
import sys
from argparse import ArgumentParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aiohttp import web

FAULTS, COUNT, STARTS = "faults.json", "requests.txt", "starts.txt"
TOKEN_S = 0.002
METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0"}} {stuck}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0"}} 0
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{{engine="0"}} {hits}
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{{engine="0"}} 0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{block_size="16",num_gpu_blocks="1000"}} 1
"""


def fake_python(folder: Path, faults: dict[str, Any] | None = None) -> Path:
    """An executable that runs code as Python does, and this server instead of any module."""
    folder.mkdir(parents=True, exist_ok=True)
    set_faults(folder, faults or {})
    path = folder / "python"
    path.write_text(
        f"#!/bin/sh\nulimit -f unlimited\ncase $1 in -c) exec {sys.executable} \"$@\";; esac\n"
        f"exec {sys.executable} {__file__} {folder} \"$@\"\n"
    )  # fmt: skip
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def set_faults(folder: Path, faults: dict[str, Any]) -> None:
    """Say what is to go wrong from now on."""
    (folder / FAULTS).write_text(json.dumps(faults))


def starts(folder: Path) -> list[int]:
    """Process ids of the servers that were started."""
    path = folder / STARTS
    return [int(line) for line in path.read_text().split()] if path.exists() else []


class FakeServer:
    """The endpoints that a session uses."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.hits = 0

    @property
    def faults(self) -> dict[str, Any]:
        return json.loads((self.folder / FAULTS).read_text())

    def next_number(self) -> int:
        path = self.folder / COUNT
        number = int(path.read_text()) + 1 if path.exists() else 1
        path.write_text(str(number))
        return number

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": self.name}]})

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=METRICS.format(hits=self.hits, stuck=self.faults.get("stuck", 0)))

    async def completions(self, request: web.Request) -> web.StreamResponse:
        content, number, faults = await request.json(), self.next_number(), self.faults
        if number in faults.get("die", ()):
            os.kill(os.getpid(), signal.SIGKILL)
        self.hits += faults.get("hits", 0)
        # The stub writes to the socket itself; it needs no more than this of a stream's writer.
        writer = SimpleNamespace(write=request.transport.write, transport=request.transport)
        script = SCRIPTS[
            faults.get("script", {}).get(str(number), faults.get("default", "at_once"))
        ]
        response = Response(content, writer)
        response.more_headers = "Connection: close\r\n"
        await script(response)
        request.transport.close()
        return web.Response()


def main() -> None:
    folder = Path(sys.argv[1])
    parser = ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--served-model-name")
    args, _ = parser.parse_known_args(sys.argv[2:])
    with (folder / STARTS).open("a") as file:
        file.write(f"{os.getpid()}\n")
    server = FakeServer(folder, args.served_model_name)
    app = web.Application(client_max_size=2**30)
    app.router.add_get("/health", server.health)
    app.router.add_get("/v1/models", server.models)
    app.router.add_get("/metrics", server.metrics)
    app.router.add_post("/v1/completions", server.completions)
    web.run_app(app, host="127.0.0.1", port=args.port, shutdown_timeout=0.1, print=None)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.serving.stub import SCRIPTS, Response

    main()
