"""What the Execution Zones of these tests answer, by the first word of the question."""

import os
import sys
import threading
import time

# Results that get_async_task_result knows, by the id of the task: when it is done.
tasks = {}


def execute_task(params):
    """Gives the result of execute_task, or raises."""
    word, _, rest = params["text"].partition(" ")
    if word == "raise":
        # A careless agent: what it raises holds a secret.
        raise RuntimeError("cannot reach the model with key xoxb-secret-of-the-model")
    if word == "error":
        return {"status": "error", "error_code": "bedrock_timeout", "error_message": "raw text " + rest}
    if word == "later":
        task = "task-%d" % (len(tasks) + 1)
        tasks[task] = time.monotonic() + 1
        return {"status": "accepted", "task_id": task, "poll_after_ms": 200}
    return {"status": "success", "response_text": "echo: " + rest, "bot_token": params.get("bot_token"), "model": "m1"}


def get_async_task_result(params):
    """Gives the result of a task that was accepted."""
    due = tasks.get(params["task_id"])
    if due is None:
        return {"status": "expired"}
    if time.monotonic() < due:
        return {"status": "running"}
    return {"status": "completed", "result": {"status": "success", "response_text": "late"}}


methods = {"execute_task": execute_task, "get_async_task_result": get_async_task_result}


def end_with_caller():
    """Ends this process when whoever started it has ended."""

    def wait():
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
