"""A caller of the existing platform: it sends what it is told on standard input,
one JSON object a line with topic, key and record, and tells what it reads on the
topic of monitoring. The argument is JSON: brokers, monitoring."""

import json
import sys
import threading

import wire


def watch(args):
    inbox = wire.consumer(args, args["monitoring"], None)
    for records in wire.batches(inbox):
        for record in records:
            value = wire.read(record)
            wire.form(record, wire.MONITORING)
            assert record.key.decode() == value["run_id"], record.key
            wire.say(event="monitoring", **value)


def main():
    args = json.loads(sys.argv[1])
    out = wire.producer(args)
    threading.Thread(target=watch, args=(args,), daemon=True).start()
    for line in sys.stdin:
        given = json.loads(line)
        record = dict(given["record"], timestamp=wire.now())
        record["message_type"] = record.pop("message_type")  # the last one
        wire.send(out, given["topic"], given["key"], record)


main()
