"""The client in a process of its own, so that nothing the session does delays a send."""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait

from ppas.serving.client import Call, FirstToken, Reply, replay


class ClientDied(RuntimeError):
    """The client's process was killed; nothing it measured counts."""


class ClientProcess:
    """A process that replays calls; one that was killed is replaced at the next replay."""

    def __init__(self) -> None:
        self._pool = _started()

    def replay(
        self, url: str, model: str, calls: Sequence[Call], timeout_s: float, first_token: FirstToken
    ) -> list[Reply]:
        """``client.replay`` in the other process.

        Raises:
            ClientDied: the process ended meanwhile.
        """
        try:
            return self._pool.submit(replay, url, model, calls, timeout_s, first_token).result()
        except BrokenProcessPool:
            self._pool = _started()
            raise ClientDied("the client's process was killed") from None

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown(cancel_futures=True)


def _started() -> ProcessPoolExecutor:
    """A pool of one process that has done its imports before the first replay."""
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent)
    pool.submit(_nothing)
    return pool


def _end_with_parent() -> None:
    """A pool's process would wait for work for ever once its parent is killed."""

    def watch() -> None:
        wait([parent_process().sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _nothing() -> None:
    pass
