"""An executor as the existing platform runs one for each run: it writes a task,
reads all results from their beginning in a group of its own, takes the one with
its correlation id, waits for 300 seconds, and tries a failed step again under
new ids. The argument is JSON: brokers, tasks, results, run, steps, tries, wait."""

import json
import sys
import time
import uuid

import wire


def judge(value, wanted):
    """What comes of a result: the checks of its model, then its status."""
    for name in ("run_id", "task_id", "status", "correlation_id"):
        if not isinstance(value.get(name), str):
            return None, "validation error for AgentResult: %s" % name
    if value.get("output_data") is not None and not isinstance(value["output_data"], dict):
        return None, "validation error for AgentResult: output_data"
    for name in ("error_message", "timestamp"):
        if value.get(name) is not None and not isinstance(value[name], str):
            return None, "validation error for AgentResult: %s" % name
    if value["status"] != "SUCCESS":
        return None, value.get("error_message") or "Agent execution failed"
    return value["output_data"], None


def attempt(args, out, inbox, step):
    short = uuid.uuid4().hex[:8]
    task = {
        "run_id": args["run"], "task_id": "task-%s-%s" % (step["id"], short), "agent_name": step["agent"],
        "input_data": step["input"], "correlation_id": "corr-%s-%s-%s" % (args["run"], step["id"], short),
        "timestamp": wire.now(),
    }
    wire.send(out, args["tasks"], args["run"], task)
    if step.get("twice"):
        wire.send(out, args["tasks"], args["run"], task)
    wire.say(event="task", **task)
    end = time.monotonic() + args.get("wait", 300)
    for records in wire.batches(inbox):
        for record in records:
            value = wire.read(record)
            if value.get("correlation_id") != task["correlation_id"]:
                continue
            wire.form(record, wire.RESULT)
            assert record.key.decode() == task["correlation_id"], record.key
            assert value["task_id"] == task["task_id"] and value["run_id"] == args["run"], value
            return judge(value, task)
        if time.monotonic() > end:
            return None, "Timeout waiting for agent result (correlation_id: %s)" % task["correlation_id"]


def main():
    args = json.loads(sys.argv[1])
    out = wire.producer(args)
    inbox = wire.consumer(args, args["results"], "executor-group-" + args["run"])
    for step in args["steps"]:
        for n in range(args.get("tries", 1)):
            output, error = attempt(args, out, inbox, step)
            if error is None:
                break
        wire.say(event="step", step=step["id"], output=output, error=error, tries=n + 1)
        if error is not None:
            break
    wire.say(event="end")


main()
