"""What the test agents do, whatever SDK they are built with: the text of the
message says it. The same script is in ../node/script.mjs and ../internal/script.
"""

import asyncio
import base64
import json
import os
import time

HELLO = base64.b64encode(b"hello, file\n").decode()


class Log:
    """Every execution, one JSON object a line, in a file that outlives us."""

    def __init__(self, path):
        self.path = path
        with open(path, "a", encoding="utf-8"):
            pass

    def write(self, what, message, task, context, text):
        line = json.dumps({
            "at": time.time_ns() // 1_000_000, "pid": os.getpid(), "what": what,
            "message": message or "", "task": task or "", "context": context or "",
            "text": text[:200],
        })
        with open(self.path, "a", encoding="utf-8") as f:
            f.write(line + "\n")

    def read(self):
        with open(self.path, "rb") as f:
            return f.read()


class Gates:
    """What an execution waits at until somebody opens it by its key."""

    def __init__(self):
        self.open_keys = set()
        self.changed = asyncio.Event()

    def open(self, key):
        self.open_keys.add(key)
        self.changed.set()
        self.changed = asyncio.Event()

    async def wait(self, key):
        while key not in self.open_keys:
            await self.changed.wait()


async def obey(text, data, out, gates):
    """Obeys one message. out is one execution as the SDK has it."""
    if not text and isinstance(data, dict):
        text = data.get("do", "")
    verb, _, rest = text.partition(" ")
    if verb == "message":
        await out.message(rest)
        return
    if verb == "crash":
        raise RuntimeError("asked to crash")
    await out.begin()
    if verb == "late-crash":
        await out.status("working", "about to crash")
        raise RuntimeError("asked to crash")
    act = ACTS.get(verb)
    if act is None:
        await out.status("failed", f"no such command: {verb}")
        return
    await act(rest, data, out, gates)


async def echo(rest, data, out, gates):
    await out.status("working")
    await out.artifact("out", [{"text": rest}], last=True)
    await out.status("completed")


async def slow(rest, data, out, gates):
    total = int(rest) / 1000
    await out.status("working")
    for quarter in range(1, 5):
        await asyncio.sleep(total / 4)
        if quarter < 4:
            await out.status("working", f"{quarter}/4")
    await out.artifact("out", [{"text": "slow " + rest}], last=True)
    await out.status("completed")


async def hold(rest, data, out, gates):
    await out.status("working", "waiting for " + rest)
    await gates.wait(rest)
    await out.artifact("out", [{"text": "held " + rest}], last=True)
    await out.status("completed")


async def chunks(rest, data, out, gates):
    await out.status("working")
    count = int(rest)
    for i in range(count):
        await out.artifact("out", [{"text": f"{i} "}], append=i > 0, last=i == count - 1)
        await asyncio.sleep(0.02)
    await out.status("completed")


async def drip(rest, data, out, gates):
    count, _, key = rest.partition(" ")
    await out.status("working")
    for i in range(int(count)):
        await out.artifact("out", [{"text": f"{i} "}], append=i > 0)
    await gates.wait(key)
    await out.artifact("out", [{"text": "end"}], append=True, last=True)
    await out.status("completed")


async def ask(rest, data, out, gates):
    await out.status("input-required", rest or "how many?")


async def answer(text, data, out, gates):
    await out.status("working", "got it")
    parts = [{"text": "answer: " + text}]
    if data is not None:
        parts.append({"data": data})
    await out.artifact("out", parts, last=True)
    await out.status("completed")


async def auth(rest, data, out, gates):
    await out.status("auth-required", "sign in elsewhere")
    await gates.wait(rest)
    await out.status("working")
    await out.artifact("out", [{"text": "signed in"}], last=True)
    await out.status("completed")


async def fail(rest, data, out, gates):
    await out.status("working")
    await out.status("failed", rest or "asked to fail")


async def reject(rest, data, out, gates):
    await out.status("rejected", rest or "asked to reject")


async def echo_data(rest, data, out, gates):
    await out.status("working")
    await out.artifact("out", [{"data": data}], last=True)
    await out.status("completed")


async def got(rest, data, out, gates):
    await out.status("working")
    await out.artifact("out", [{"text": out.got()}], last=True)
    await out.status("completed")


async def give_file(rest, data, out, gates):
    await out.status("working")
    if rest == "url":
        part = {"url": "https://files.example/a.txt", "name": "a.txt", "type": "text/plain"}
    else:
        part = {"raw": HELLO, "name": "hello.txt", "type": "text/plain"}
    await out.artifact("out", [{"text": "one file"}, part], last=True)
    await out.status("completed")


def described(name, media_type, content):
    """What "got" says of a file: content is its bytes or its URL."""
    what = f"raw {len(content)}" if isinstance(content, bytes) else f"url {content}"
    return f"{what} {name} {media_type}"


async def stuck(rest, data, out, gates):
    await out.status("working", "for ever")
    await asyncio.Event().wait()


async def big(rest, data, out, gates):
    await out.status("working")
    await out.artifact("out", [{"text": "x" * int(rest)}], last=True)
    await out.status("completed")


ACTS = {
    "echo": echo, "slow": slow, "hold": hold, "chunks": chunks, "drip": drip, "ask": ask, "auth": auth,
    "fail": fail, "reject": reject, "data": echo_data, "got": got, "file": give_file, "stuck": stuck,
    "refuse-cancel": hold, "big": big,
}
