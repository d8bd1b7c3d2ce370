"""Life cycle of one vLLM server: started on 127.0.0.1, watched, and ended whatever happens."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

STOP_S = 60.0  # what a server is given to end by itself
POLL_S = 0.25
REQUEST_S = 30.0
THREADS = "_NUM_THREADS"  # OMP_NUM_THREADS and its kin; conf/hardware may set them
TAIL_LINES = 12  # of a log, besides as many of its errors


def inherited() -> dict[str, str]:
    """This process's variables without those that would slow a server down unseen.

    A workflow manager tells its jobs how many threads to use; vLLM chooses for itself, and on a
    processor is twenty times slower when it is told.
    """
    return {name: value for name, value in os.environ.items() if not name.endswith(THREADS)}


class ServerDied(RuntimeError):
    """The server ended, or is not ready in time; the message has the end of its log."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now; a server must still check that it got it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
    """A server process and its descendants, started on construction; a context manager.

    Args:
        command: what to run, such as ``launch.serve_command`` gives; it must listen on ``port``.
        log: where its output goes.
        name: the model name it serves, by which it is told from a stranger on the same port.
        environment: variables besides those of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        port: int,
        name: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log, self.port, self.name = log, port, name
        self.url = f"http://127.0.0.1:{port}"
        self.ready = False
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as output:
            self.process = subprocess.Popen(
                list(command),
                env=inherited() | dict(environment or {}),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.guard = _guard(self.process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        """Whether the server's first process still runs."""
        return self.process.poll() is None

    def healthy(self) -> bool:
        """Whether the server runs and says that its engine does."""
        try:
            return self.alive and self.get("/health")[0] == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    def wait_until_ready(
        self, timeout_s: float, progress: Callable[[float], Any] = lambda seconds: None
    ) -> None:
        """Wait until the server answers and serves its model; fail at once if it ends first.

        ``progress`` is called with the seconds waited, several times a second.

        Raises:
            ServerDied: with the end of the log.
        """
        start = time.monotonic()
        while (waited := time.monotonic() - start) < timeout_s:
            progress(waited)
            if not self.alive:
                raise self.died("ended while it started")
            if self.healthy():
                self._require_own_model()
                self.ready = True
                return
            time.sleep(POLL_S)
        raise self.died(f"is not ready after {timeout_s:g} s")

    def _require_own_model(self) -> None:
        """A port can be taken between the choice and the start; another server then answers."""
        models = [model["id"] for model in json.loads(self.get("/v1/models")[1])["data"]]
        if self.name not in models:
            raise self.died(f"does not own port {self.port}: what answers there serves {models}")

    def died(self, what: str) -> ServerDied:
        """An error that says what happened and ends with the server's last lines."""
        status = self.process.poll()
        ended = "" if status is None else f" (exit status {status})"
        return ServerDied(f"vLLM server {what}{ended}\n{self.tail()}")

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
        """Status and text of a GET.

        Raises:
            OSError, http.client.HTTPException: the server does not answer.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_S)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
