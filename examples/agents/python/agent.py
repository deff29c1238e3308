#!/usr/bin/env python3
"""A small agent that speaks A2A 0.3 and 1.0, made of the standard library alone.

    python3 agent.py --port 9001     over HTTP, at http://127.0.0.1:9001/
    python3 agent.py --stdio         over stdin and stdout, one JSON text a line

The first word of a message says what the agent does with it:

    echo TEXT       answers TEXT at once (so does any other text)
    long SECONDS    works in the background and reports how far it is
    ask             asks a question; a message to the same task answers it
    fail            fails

To make an agent of your own, change Agent.begin and Agent.work.
"""

import argparse
import hashlib
import json
import socket
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

MAX_BODY = 1 << 20    # bytes of one request
MAX_PARTS = 100       # parts of one message
MAX_DEPTH = 64        # of a data part
MAX_ID = 256          # characters of an id that a client chooses
MAX_TASKS = 1000      # tasks that are remembered; the oldest ended one goes first
MAX_CALLS = 256       # requests at the same time over stdio
MAX_SECONDS = 600.0   # of one long task
STEPS = 4             # of a long task
PING = 15.0           # seconds of silence after which a stream sends a comment

ENDED = ("completed", "failed", "canceled", "rejected")
RESTING = ENDED + ("input-required",)  # nothing happens before a client does something


# ---- Errors -----------------------------------------------------------------

REASONS = {
    -32001: "TASK_NOT_FOUND",
    -32002: "TASK_NOT_CANCELABLE",
    -32003: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    -32004: "UNSUPPORTED_OPERATION",
    -32005: "CONTENT_TYPE_NOT_SUPPORTED",
    -32007: "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    -32009: "VERSION_NOT_SUPPORTED",
}


class Fault(Exception):
    """An error for the client: a code of JSON-RPC or A2A, and the HTTP status to send it with."""

    def __init__(self, code, message, status=200):
        super().__init__(message)
        self.code, self.message, self.status = code, message, status

    def write(self):
        error = {"code": self.code, "message": self.message}
        if self.code in REASONS:  # A2A 1.0 wants typed objects; 0.3 takes anything
            error["data"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo",
                              "reason": REASONS[self.code], "domain": "a2a-protocol.org"}]
        return error


# ---- The agent: tasks and what is done about them ---------------------------

class Task:
    """One task. History, artifacts and events only grow; Agent.changed guards them all."""

    def __init__(self, context_id):
        self.id = str(uuid.uuid4())
        self.context_id = context_id or str(uuid.uuid4())
        self.status = None      # {"state", "message" or None, "at"}
        self.artifacts = []
        self.history = []
        self.events = []        # every status and piece of an artifact, in order

    @property
    def state(self):
        return self.status["state"]


class Agent:
    """All tasks. Every method may be called from any thread."""

    def __init__(self):
        self.changed = threading.Condition()  # guards what follows, notified at every change
        self.tasks = {}                       # by id, oldest first
        self.by_message = {}                  # the task that a messageId led to

    def send(self, message):
        with self.changed:
            # The same messageId again: the client's connection broke before it had our
            # answer, and it cannot know whether the message arrived. It must get the task
            # that the message led to, else the work would be done twice. An agent that
            # survives restarts keeps this index in its database, with the task.
            task = self.by_message.get(message["messageId"])
            if task is None:
                task = self.answer(message) if message["taskId"] else self.begin(message)
                self.by_message[message["messageId"]] = task
            return task

    def begin(self, message):
        """Starts a task. This is where an agent of your own decides what to do."""
        self.make_room()
        task = Task(message["contextId"])
        text = "\n".join(p["text"] for p in message["parts"] if "text" in p)
        word, _, rest = text.partition(" ")
        seconds = read_seconds(rest) if word == "long" else 0.0
        self.tasks[task.id] = task
        self.remember(task, message)
        if word == "long":
            self.update(task, "working", f"0 of {STEPS} parts are done")
            threading.Thread(target=self.work, args=(task, seconds), daemon=True).start()
        elif word == "ask":
            self.update(task, "input-required", "Which colour?")
        elif word == "fail":
            self.update(task, "failed", "You asked me to fail.")
        else:
            said = [{"text": rest if word == "echo" else text}] if text else []
            self.add(task, said + [p for p in message["parts"] if "data" in p])
            self.update(task, "completed")
        return task

    def answer(self, message):
        """Goes on with a task that waits for an answer."""
        task = self.get(message["taskId"])
        if message["contextId"] not in ("", task.context_id):
            raise Fault(-32602, "the task belongs to another contextId")
        if task.state != "input-required":
            raise Fault(-32004, f"the task is {task.state} and takes no message")
        task.history.append(task.status["message"])  # the question
        self.remember(task, message)
        colour = " ".join(p["text"] for p in message["parts"] if "text" in p)
        self.add(task, [{"text": f"You chose {colour}."}])
        self.update(task, "completed")
        return task

    def work(self, task, seconds):
        """A long task: a part of the result now and then, until it is done or cancelled."""
        for step in range(1, STEPS + 1):
            with self.changed:
                if self.changed.wait_for(lambda: task.state != "working", seconds / STEPS):
                    return  # cancelled
                self.add(task, [{"text": f"part {step}"}], last=step == STEPS)
                if step < STEPS:
                    self.update(task, "working", f"{step} of {STEPS} parts are done")
                else:
                    self.update(task, "completed")

    def get(self, task_id):
        with self.changed:
            task = self.tasks.get(task_id)
            if task is None:
                raise Fault(-32001, "there is no such task")
            return task

    def cancel(self, task_id):
        with self.changed:
            task = self.get(task_id)
            if task.state in ENDED and task.state != "canceled":
                raise Fault(-32002, f"the task is {task.state}")
            if task.state != "canceled":
                self.update(task, "canceled")
            return task

    def newest(self, context_id, state, since):
        """The tasks that fit, the one that changed last first."""
        with self.changed:
            fit = [t for t in self.tasks.values()
                   if context_id in ("", t.context_id) and state in ("", t.state) and t.status["at"] >= since]
            return sorted(fit, key=lambda t: t.status["at"], reverse=True)

    def wait(self, task):
        with self.changed:
            self.changed.wait_for(lambda: task.state in RESTING)

    def follow(self, task, seen):
        """Yields the events after the first seen ones, and None in times of silence."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: len(task.events) > seen, PING)
                new = task.events[seen:]
            for event in new or [None]:
                yield event
                if event and event.get("status", {}).get("state") in RESTING:
                    return
            seen += len(new)

    def make_room(self):
        if len(self.tasks) < MAX_TASKS:
            return
        oldest = next((t for t in self.tasks.values() if t.state in ENDED), None)
        if oldest is None:
            raise Fault(-32603, "too many tasks are under way; try again later", 503)
        del self.tasks[oldest.id]
        for message in oldest.history:
            self.by_message.pop(message["messageId"], None)

    # What follows is called with the lock held.

    def remember(self, task, message):
        task.history.append({**message, "taskId": task.id, "contextId": task.context_id})

    def update(self, task, state, text=None):
        message = text and {"messageId": str(uuid.uuid4()), "role": "agent", "parts": [{"text": text}],
                            "taskId": task.id, "contextId": task.context_id}
        task.status = {"state": state, "message": message, "at": datetime.now(timezone.utc)}
        task.events.append({"status": task.status})
        self.changed.notify_all()

    def add(self, task, parts, last=True):
        """Adds parts to the task's one artifact."""
        append = bool(task.artifacts)
        if append:
            task.artifacts[0]["parts"].extend(parts)
        else:
            task.artifacts.append({"artifactId": "result", "name": "result", "parts": list(parts)})
        piece = {"artifactId": "result", "name": "result", "parts": parts}
        task.events.append({"artifact": piece, "append": append, "last": last})
        self.changed.notify_all()


def read_seconds(text):
    try:
        seconds = float(text or 3)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_SECONDS:
        raise Fault(-32602, f"long takes a number of seconds from 0 to {MAX_SECONDS:g}")
    return seconds


# ---- The two dialects: "v1" is 1.0, otherwise it is 0.3 ---------------------

def write_part(part, v1):
    if "text" in part:
        return {"text": part["text"]} if v1 else {"kind": "text", "text": part["text"]}
    if v1:
        return {"data": part["data"], "mediaType": "application/json"}
    data = part["data"] if isinstance(part["data"], dict) else {"value": part["data"]}
    return {"kind": "data", "data": data}  # 0.3 knows objects only


def write_parts(owner, v1):
    return {**owner, "parts": [write_part(p, v1) for p in owner["parts"]]}


def write_message(message, v1):
    out = write_parts(message, v1)
    if v1:
        return {**out, "role": "ROLE_" + message["role"].upper()}
    return {"kind": "message", **out}


def write_state(state, v1):
    return "TASK_STATE_" + state.upper().replace("-", "_") if v1 else state


def write_status(status, v1):
    at = status["at"].isoformat(timespec="milliseconds").replace("+00:00", "Z")
    out = {"state": write_state(status["state"], v1), "timestamp": at}
    if status["message"]:
        out["message"] = write_message(status["message"], v1)
    return out


def write_task(task, v1, history=None, artifacts=True):
    """The task as it is now; history is how many messages of it at most, None is all."""
    out = {} if v1 else {"kind": "task"}
    out |= {"id": task.id, "contextId": task.context_id, "status": write_status(task.status, v1)}
    if artifacts and task.artifacts:
        out["artifacts"] = [write_parts(a, v1) for a in task.artifacts]
    messages = task.history if history is None else task.history[len(task.history) - min(history, len(task.history)):]
    if messages:
        out["history"] = [write_message(m, v1) for m in messages]
    return out


def write_event(task, event, v1):
    out = {"taskId": task.id, "contextId": task.context_id}
    if "status" in event:
        out["status"] = write_status(event["status"], v1)
        final = event["status"]["state"] in RESTING
        return {"statusUpdate": out} if v1 else {"kind": "status-update", **out, "final": final}
    out |= {"artifact": write_parts(event["artifact"], v1), "append": event["append"], "lastChunk": event["last"]}
    return {"artifactUpdate": out} if v1 else {"kind": "artifact-update", **out}


def member(owner, name, kind, default=None):
    """The member called name, which has to be of the type kind if it is there."""
    value = owner.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise Fault(-32602, f"{name} is of the wrong type")
    return value


def member_id(owner, name):
    value = member(owner, name, str, "")
    if len(value) > MAX_ID:
        raise Fault(-32602, f"{name} is longer than {MAX_ID} characters")
    return value


def member_count(owner, name):
    value = member(owner, name, int)
    if value is not None and value < 0:
        raise Fault(-32602, f"{name} must not be negative")
    return value


def read_time(params):
    text = member(params, "statusTimestampAfter", str, "")
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00") or "0001-01-01T00:00:00+00:00")
    except ValueError as e:
        raise Fault(-32602, "statusTimestampAfter must be a time such as 2026-01-31T12:00:00Z") from e
    return at if at.tzinfo else at.replace(tzinfo=timezone.utc)


def read_message(params, v1):
    message = member(params, "message", dict)
    if message is None:
        raise Fault(-32602, "message is missing")
    if not member_id(message, "messageId"):
        raise Fault(-32602, "message.messageId is missing")
    if message.get("role") != ("ROLE_USER" if v1 else "user"):
        raise Fault(-32602, "message.role must be " + ("ROLE_USER" if v1 else "user"))
    parts = member(message, "parts", list, [])
    if not 1 <= len(parts) <= MAX_PARTS:
        raise Fault(-32602, f"message.parts must have 1 to {MAX_PARTS} parts")
    return {"messageId": message["messageId"], "role": "user", "parts": [read_part(p) for p in parts],
            "taskId": member_id(message, "taskId"), "contextId": member_id(message, "contextId")}


def read_part(part):
    if not isinstance(part, dict):
        raise Fault(-32602, "a part must be an object")
    if isinstance(part.get("text"), str):
        return {"text": part["text"]}
    if "data" in part:
        if is_deeper(part["data"], MAX_DEPTH):
            raise Fault(-32602, f"data is nested more than {MAX_DEPTH} deep")
        return {"data": part["data"]}
    raise Fault(-32005, "this agent takes text and data parts only")


def is_deeper(value, limit):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (limit == 0 or any(is_deeper(v, limit - 1) for v in inner))


def card(url):
    """The card, in the shapes of 0.3 and 1.0 at once: neither has a member that the other uses otherwise."""
    modes = ["text/plain", "application/json"]
    return {
        "name": "example", "version": "1.0.0",
        "description": "Echoes, works for long, asks, or fails, as the first word of a message says.",
        # 1.0
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ],
        # 0.3
        "protocolVersion": "0.3.0", "url": url, "preferredTransport": "JSONRPC",
        # both
        "capabilities": {"streaming": True, "pushNotifications": False},
        "defaultInputModes": modes, "defaultOutputModes": modes,
        "skills": [
            {"id": "echo", "name": "Echo", "description": "echo TEXT: answers TEXT at once", "tags": ["text"]},
            {"id": "long", "name": "Long", "description": "long SECONDS: works in the background", "tags": ["task"]},
            {"id": "ask", "name": "Ask", "description": "ask: asks a question and waits", "tags": ["task"]},
            {"id": "fail", "name": "Fail", "description": "fail: fails", "tags": ["task"]},
        ],
    }


# ---- JSON-RPC: methods by name, so that one URL serves both dialects --------

METHODS = {  # name: (operation, whether it is of 1.0)
    "message/send": ("send", False), "SendMessage": ("send", True),
    "message/stream": ("stream", False), "SendStreamingMessage": ("stream", True),
    "tasks/get": ("get", False), "GetTask": ("get", True),
    "tasks/cancel": ("cancel", False), "CancelTask": ("cancel", True),
    "tasks/resubscribe": ("subscribe", False), "SubscribeToTask": ("subscribe", True),
    "ListTasks": ("list", True),
    "tasks/pushNotificationConfig/set": ("push", False), "CreateTaskPushNotificationConfig": ("push", True),
    "tasks/pushNotificationConfig/get": ("push", False), "GetTaskPushNotificationConfig": ("push", True),
    "tasks/pushNotificationConfig/list": ("push", False), "ListTaskPushNotificationConfigs": ("push", True),
    "tasks/pushNotificationConfig/delete": ("push", False), "DeleteTaskPushNotificationConfig": ("push", True),
    "agent/getAuthenticatedExtendedCard": ("extended_card", False), "GetExtendedAgentCard": ("extended_card", True),
}


class Call:
    """One request. Each operation gives a result, or an iterator of results for a stream."""

    def __init__(self, agent, params, v1):
        self.agent, self.params, self.v1 = agent, params, v1

    def accept(self):
        """Takes the message: the task, how many events it has, and what configuration says."""
        config = member(self.params, "configuration", dict, {})
        if config.get("taskPushNotificationConfig") or config.get("pushNotificationConfig"):
            return self.push()
        history = member_count(config, "historyLength")
        # Both dialects wait for the end unless told otherwise.
        if self.v1:
            waits = not member(config, "returnImmediately", bool, False)
        else:
            waits = member(config, "blocking", bool, True)
        return self.agent.send(read_message(self.params, self.v1)), waits, history

    def send(self):
        task, waits, history = self.accept()
        if waits:
            self.agent.wait(task)
        with self.agent.changed:
            out = write_task(task, self.v1, history)
        return {"task": out} if self.v1 else out

    def stream(self):
        with self.agent.changed:  # nothing may happen between the task and its events
            task, _, history = self.accept()
            return self.events(task, history, task.state in RESTING)

    def subscribe(self):
        with self.agent.changed:
            task = self.agent.get(member_id(self.params, "id"))
            if task.state in ENDED:
                raise Fault(-32004, f"the task is {task.state}; get it instead")
            return self.events(task, None, False)

    def events(self, task, history, over):
        """A stream: the task as it is, then what happens to it. Called with the lock held."""
        first, seen = write_task(task, self.v1, history), len(task.events)

        def results():
            yield {"task": first} if self.v1 else first
            if not over:
                for event in self.agent.follow(task, seen):
                    yield event and write_event(task, event, self.v1)
        return results()

    def get(self):
        history = member_count(self.params, "historyLength")
        with self.agent.changed:
            return write_task(self.agent.get(member_id(self.params, "id")), self.v1, history)

    def cancel(self):
        with self.agent.changed:
            return write_task(self.agent.cancel(member_id(self.params, "id")), self.v1)

    def list(self):
        p = self.params
        size, token = member(p, "pageSize", int, 50), member(p, "pageToken", str, "") or "0"
        if not 1 <= size <= 100:
            raise Fault(-32602, "pageSize must be from 1 to 100")
        if not (token.isascii() and token.isdecimal() and len(token) < 10):
            raise Fault(-32602, "pageToken is none of ours")
        history, artifacts = member_count(p, "historyLength"), member(p, "includeArtifacts", bool, False)
        state = member(p, "status", str, "").removeprefix("TASK_STATE_").lower().replace("_", "-")
        fit = self.agent.newest(member_id(p, "contextId"), state.replace("unspecified", ""), read_time(p))
        start = int(token)
        with self.agent.changed:
            page = [write_task(t, True, history, artifacts) for t in fit[start:start + size]]
        more = str(start + size) if start + size < len(fit) else ""
        return {"tasks": page, "nextPageToken": more, "pageSize": size, "totalSize": len(fit)}

    def push(self):
        raise Fault(-32003, "this agent sends no push notifications")

    def extended_card(self):
        if self.v1:
            raise Fault(-32004, "this agent has no extended card")
        raise Fault(-32007, "this agent has no extended card")


def parse(body):
    def no_number(name):
        raise ValueError(name + " is not JSON")
    try:
        return json.loads(body.decode("utf-8"), parse_constant=no_number)
    except (ValueError, RecursionError) as e:
        raise Fault(-32700, "the body is not JSON in UTF-8") from e


def respond(request_id, result):
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def refuse(request_id, fault):
    return encode({"jsonrpc": "2.0", "id": request_id, "error": fault.write()})


def encode(value):
    return json.dumps(value, separators=(",", ":")).encode()


def handle(agent, body, version="", streams=True):
    """Answers one request: (HTTP status, response). The response is bytes, or an iterator
    of them if it is a stream, or None for a notification."""
    request_id = None
    try:
        request = parse(body)
        if not isinstance(request, dict):
            raise Fault(-32600, "a request must be one object (there are no batches here)")
        found = request.get("id")
        if isinstance(found, (str, int)) and not isinstance(found, bool):
            request_id = found
        name, params = request.get("method"), request.get("params", {})
        if request.get("jsonrpc") != "2.0" or not isinstance(name, str):
            raise Fault(-32600, 'a request needs "jsonrpc": "2.0" and a method')
        if "id" not in request:
            return 204, None  # nobody waits for an answer, so nothing is begun
        if request_id is None:
            raise Fault(-32600, "id must be a string or a whole number")
        if version not in ("", "0.3", "1.0"):
            raise Fault(-32009, "this agent speaks A2A 0.3 and 1.0")
        if name not in METHODS:
            raise Fault(-32601, "there is no such method")
        if not isinstance(params, dict):
            raise Fault(-32602, "params must be an object")
        operation, v1 = METHODS[name]
        if operation in ("stream", "subscribe") and not streams:
            raise Fault(-32004, "there are no streams over stdio")
        result = getattr(Call(agent, params, v1), operation)()
        if operation in ("stream", "subscribe"):
            return 200, (event and respond(request_id, event) for event in result)
        return 200, respond(request_id, result)
    except Fault as fault:
        return fault.status, refuse(request_id, fault)
    except Exception as e:  # what is wrong with us is for our log, not for the client
        print("internal error:", repr(e), file=sys.stderr)
        return 200, refuse(request_id, Fault(-32603, "internal error"))


# ---- HTTP -------------------------------------------------------------------

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60  # seconds without a byte

    def do_GET(self):
        if urlsplit(self.path).path not in ("/.well-known/agent-card.json", "/.well-known/agent.json"):
            return self.reply(405 if urlsplit(self.path).path == "/" else 404, None)
        body = encode(card(self.server.url))
        etag = '"' + hashlib.sha256(body).hexdigest()[:16] + '"'
        headers = {"Cache-Control": "max-age=60", "ETag": etag}
        if self.headers.get("If-None-Match") == etag:
            return self.reply(304, None, headers)
        self.reply(200, body, headers)

    def do_POST(self):
        url = urlsplit(self.path)
        length = self.headers.get("Content-Length", "")
        if url.path != "/":
            return self.give_up(404, Fault(-32601, "requests go to /"))
        if not length.isdecimal():
            return self.give_up(411, Fault(-32600, "Content-Length is missing"))
        if len(length) > 12 or int(length) > MAX_BODY:
            return self.give_up(413, Fault(-32600, f"the body is larger than {MAX_BODY} bytes"))
        body = self.rfile.read(int(length))
        # A browser sends text/plain to other sites without asking them; JSON it does not.
        if self.headers.get_content_type() != "application/json":
            return self.give_up(415, Fault(-32600, "Content-Type must be application/json"))
        version = self.headers.get("A2A-Version") or parse_qs(url.query).get("A2A-Version", [""])[0]
        status, response = handle(self.server.agent, body, version)
        if response is None or isinstance(response, bytes):
            return self.reply(status, response, {"Retry-After": "1"} if status == 503 else {})
        self.stream(response)

    def stream(self, responses):
        self.close_connection = True  # the end of the connection is the end of the stream
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        for response in responses:
            self.wfile.write(b"data: " + response + b"\n\n" if response else b": ping\n\n")

    def give_up(self, status, fault):
        self.close_connection = True  # the body may not have been read
        self.reply(status, refuse(None, fault))
        self.connection.shutdown(socket.SHUT_WR)
        left = 64 * MAX_BODY  # a client that is still sending would not see our answer
        while left > 0 and (piece := self.rfile.read1(MAX_BODY)):
            left -= len(piece)

    def reply(self, status, body, headers={}):
        self.send_response(status)
        if status == 405:
            self.send_header("Allow", "POST")
        for name, value in headers.items():
            self.send_header(name, value)
        if body:
            self.send_header("Content-Type", "application/json")
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(body or b"")))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # a client went away: its task goes on, and can be asked about


def serve(host, port, url):
    server = Server((host, port), Handler)
    server.agent = Agent()
    address = f"http://{host}:{server.server_address[1]}/"
    server.url = url or address
    print("listening on", address, flush=True)
    server.serve_forever()


# ---- stdin and stdout -------------------------------------------------------

def talk(source, out):
    """One request a line in, one response a line out, until source ends."""
    agent, writing, free = Agent(), threading.Lock(), threading.BoundedSemaphore(MAX_CALLS)

    def write(response):
        if response is not None:
            with writing:
                out.write(response + b"\n")
                out.flush()

    def answer(line):
        try:
            write(handle(agent, line, streams=False)[1])
        finally:
            free.release()

    with ThreadPoolExecutor(MAX_CALLS) as pool:  # its end waits for the answers that are due
        while line := source.readline(MAX_BODY + 1):
            if len(line) > MAX_BODY and not line.endswith(b"\n"):
                while not line.endswith(b"\n") and (line := source.readline(MAX_BODY)):
                    pass
                write(refuse(None, Fault(-32600, f"the line is larger than {MAX_BODY} bytes")))
            elif line.strip():
                free.acquire()  # no more is read before one is answered
                pool.submit(answer, line)


def main():
    flags = argparse.ArgumentParser(description="A small A2A agent.")
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, default=9001, help="0 picks a free one")
    flags.add_argument("--url", help="where clients reach it, for the card; default http://HOST:PORT/")
    flags.add_argument("--stdio", action="store_true", help="speak over stdin and stdout instead")
    args = flags.parse_args()
    try:
        if args.stdio:
            talk(sys.stdin.buffer, sys.stdout.buffer)
        else:
            serve(args.host, args.port, args.url)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
