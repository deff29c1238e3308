"""A bridge as the existing platform runs one: one task at a time in the order
of the poll, no memory of what it has done, the offsets committed after the whole
batch. The argument is JSON: brokers, tasks, results, group, agents {name: url},
compression, and what goes wrong: lose (tasks of these agents are dropped without
a result), crash_after (that many calls, then it dies without a commit)."""

import json
import os
import sys
import urllib.error
import urllib.request

import wire


def call(url, task):
    given = task.get("input_data", {})
    text = given.get("text") or given.get("query") or json.dumps(given)
    body = {
        "jsonrpc": "2.0", "id": task["task_id"], "method": "message/send",
        "params": {"message": {
            "role": "user", "messageId": "msg-" + task["task_id"],
            "parts": [{"kind": "text", "text": str(text)}],
        }},
    }
    request = urllib.request.Request(url, json.dumps(body).encode(), {
        "Content-Type": "application/json", "Accept": "application/json", "X-Correlation-ID": task["correlation_id"],
    })
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = json.loads(response.read())
    except urllib.error.HTTPError as e:
        return None, "HTTP %d: Client error '%d %s' for url '%s'" % (e.code, e.code, e.reason, url)
    except urllib.error.URLError:
        return None, "All connection attempts failed"
    if "error" in answer:
        return None, "JSON-RPC Error %s: %s" % (answer["error"]["code"], answer["error"]["message"])
    result = answer["result"]
    state = result.get("status", {}).get("state", "unknown")
    if state != "completed":
        return None, "Task state: " + state
    texts = [p["text"] for a in result.get("artifacts", []) for p in a["parts"] if p.get("kind") == "text"]
    return dict(result, text="\n".join(texts), response="", context_id=result.get("contextId"), task_id=result.get("id")), None


def fits(task):
    strings = ("run_id", "task_id", "agent_name", "correlation_id")
    return all(isinstance(task.get(n), str) for n in strings) and isinstance(task.get("input_data", {}), dict)


def main():
    args = json.loads(sys.argv[1])
    out = wire.producer(args)
    inbox = wire.consumer(args, args["tasks"], args["group"])
    calls = 0
    for records in wire.batches(inbox):
        for record in records:
            task = wire.read(record)
            wire.form(record, wire.TASK)
            assert fits(task), "a task that gets no answer: %s" % task
            assert record.key.decode() == task["run_id"], record.key
            wire.say(event="task", **task)
            if task["agent_name"] in args.get("lose", []):
                continue
            output, error = call(args["agents"][task["agent_name"]], task)
            calls += 1
            if calls == args.get("crash_after"):
                wire.say(event="crash")
                os._exit(9)
            wire.send(out, args["results"], task["correlation_id"], {
                "run_id": task["run_id"], "task_id": task["task_id"], "status": "FAILURE" if error else "SUCCESS",
                "output_data": output, "correlation_id": task["correlation_id"], "error_message": error,
                "timestamp": wire.now(),
            })
        if records:
            inbox.commit()


main()
