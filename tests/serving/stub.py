"""A stand-in for vLLM's completions API, in a process of its own, that behaves as told.

The first token id of a prompt picks what happens: see `prompt` and the scripts below. Run as a
program it serves on a free port of 127.0.0.1, prints the port, and ends with its standard input.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

FIRST_S, NEXT_S = 0.8, 0.4  # a paced stream's time to the first event, and between events
HANG_S = 3600


@contextlib.contextmanager
def stub() -> Iterator[str]:
    """A stub server's URL; it is gone after the block."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe) as process:
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def prompt(script: str, tokens: int = 8) -> list[int]:
    """A prompt of so many token ids that makes the stub follow a script."""
    return [list(SCRIPTS).index(script)] + [0] * (tokens - 1)


class Response:
    """The stub's side of one completion."""

    more_headers = ""  # that end with a line break

    def __init__(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.prompt = request["prompt"]
        self.wanted = request["max_tokens"]
        self.sent = 0
        self.writer = writer

    def start(self, status: int = 200, headers: str = "Transfer-Encoding: chunked") -> None:
        head = f"HTTP/1.1 {status} As told\r\n{self.more_headers}{headers}\r\n\r\n"
        self.writer.write(head.encode())

    def event(self, data: str) -> None:
        """One server-sent event, in a chunk of its own as uvicorn does."""
        content = f"data: {data}\n\n".encode()
        self.writer.write(b"%x\r\n%b\r\n" % (len(content), content))

    def tokens(self, count: int = 1, text: str = "", **more: Any) -> None:
        """An event of so many tokens."""
        choice = {"index": 0, "text": text, "token_ids": [7] * count, "finish_reason": None} | more
        self.event(json.dumps({"id": "stub", "choices": [choice]}))
        self.sent += count

    def half(self) -> None:
        for _ in range(self.wanted // 2):
            self.tokens()

    def rest(self) -> None:
        while self.sent < self.wanted:
            self.tokens()

    async def pace(self) -> None:
        """The rest of the tokens, one by one."""
        while self.sent < self.wanted:
            await asyncio.sleep(NEXT_S)
            self.tokens()

    def usage(self, prompt: int = 0, output: int = 0) -> None:
        """The last event, as it is or so many tokens off."""
        counts = {
            "prompt_tokens": len(self.prompt) + prompt,
            "completion_tokens": self.sent + output,
        }
        self.event(json.dumps({"id": "stub", "choices": [], "usage": counts}))

    def done(self) -> None:
        self.event("[DONE]")

    def end(self) -> None:
        """The end of the HTTP body."""
        self.writer.write(b"0\r\n\r\n")

    def finish(self) -> None:
        self.usage()
        self.done()
        self.end()


async def at_once(response: Response) -> None:
    response.start()
    response.tokens(prompt_token_ids=response.prompt)
    response.rest()
    response.finish()


async def paced(response: Response) -> None:
    response.start()
    await asyncio.sleep(FIRST_S)
    response.tokens(prompt_token_ids=response.prompt)
    await response.pace()
    response.finish()


async def empty_first(response: Response) -> None:
    response.start()
    response.tokens(0, prompt_token_ids=response.prompt)
    await asyncio.sleep(FIRST_S)
    response.tokens()
    await response.pace()
    response.finish()


async def three_first(response: Response) -> None:
    response.start()
    await asyncio.sleep(FIRST_S)
    response.tokens(3, prompt_token_ids=response.prompt)
    await response.pace()
    response.finish()


async def text_later(response: Response) -> None:
    """Tokens that become text only with the next one, as a part of a character does."""
    response.start()
    await asyncio.sleep(FIRST_S)
    response.tokens()
    await asyncio.sleep(NEXT_S)
    while response.sent < response.wanted:
        response.tokens(text="word")
    response.finish()


async def silent(response: Response) -> None:
    await asyncio.sleep(HANG_S)


async def stall(response: Response) -> None:
    response.start()
    response.half()
    await asyncio.sleep(HANG_S)


async def early_end(response: Response) -> None:
    response.start()
    response.half()
    response.end()


async def reset(response: Response) -> None:
    response.start()
    response.half()
    await asyncio.sleep(NEXT_S)  # for the client to read that first
    response.writer.transport.abort()


async def die(response: Response) -> None:
    response.start()
    response.half()
    await asyncio.sleep(NEXT_S)
    os.kill(os.getpid(), signal.SIGKILL)


async def in_band_error(response: Response) -> None:
    response.start()
    response.half()
    response.event('{"error": {"message": "the engine\\nis dead", "code": 500}}')
    response.done()
    response.end()


async def http_error(response: Response) -> None:
    body = '{"error": {"message": "prompt is too long", "code": 400}}'
    response.start(400, f"Content-Length: {len(body)}")
    response.writer.write(body.encode())


async def http_failure(response: Response) -> None:
    body = "Internal Server Error"
    response.start(500, f"Content-Length: {len(body)}")
    response.writer.write(body.encode())


async def unreadable(response: Response) -> None:
    response.start()
    response.half()
    response.event('{"choices": [{"token_ids": [7')
    response.rest()
    response.finish()


async def fewer(response: Response) -> None:
    response.wanted -= 1
    await at_once(response)


async def more(response: Response) -> None:
    response.wanted += 1
    await at_once(response)


async def lost_event(response: Response) -> None:
    response.start()
    response.wanted -= 1
    response.rest()
    response.usage(output=1)
    response.done()
    response.end()


async def other_prompt(response: Response) -> None:
    response.start()
    response.rest()
    response.usage(prompt=1)
    response.done()
    response.end()


async def no_usage(response: Response) -> None:
    response.start()
    response.rest()
    response.done()
    response.end()


async def no_ids(response: Response) -> None:
    response.start()
    while response.sent < response.wanted:
        response.tokens(text="word", token_ids=None)
    response.finish()


SCRIPTS = {
    script.__name__: script
    for script in (
        at_once, paced, empty_first, three_first, text_later, silent, stall, early_end, reset, die,
        in_band_error, http_error, http_failure, unreadable, fewer, more, lost_event, other_prompt,
        no_usage, no_ids,
    )
}  # fmt: skip


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection, request by request."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].split(maxsplit=1)[0])
            request = json.loads(await reader.readexactly(length))
            script = list(SCRIPTS.values())[request["prompt"][0]]
            await script(Response(request, writer))
    writer.close()


async def serve() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    asyncio.get_running_loop().add_reader(sys.stdin, os._exit, 0)  # its parent is gone
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
