"""What the peers of the existing platform have in common: its Kafka client, the
records as it writes them, and what it takes of those that it reads.

Everything that is read is held to the rules of shared topics: no tombstone, no
record that is not an ASCII JSON object, no U+0000, keys in UTF-8. A batch in a
compression other than gzip ends the process, as it ends the old programs: their
client has no other codec here."""

import datetime
import json
import sys

try:
    import kafka
except ImportError:  # Python 3.12 and newer: the copy of six in this client is too old
    import six
    sys.modules["kafka.vendor.six"] = six
    sys.modules["kafka.vendor.six.moves"] = six.moves
    import kafka


def say(**event):
    """Tells the test something."""
    print(json.dumps(event), flush=True)


def now():
    return datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None).isoformat()


def producer(args, **more):
    return kafka.KafkaProducer(
        bootstrap_servers=args["brokers"], acks="all", compression_type=args.get("compression"), **more)


def send(out, topic, key, record):
    out.send(topic, key=key.encode("utf-8"), value=json.dumps(record).encode("utf-8")).get(timeout=30)


def consumer(args, topic, group, **more):
    return kafka.KafkaConsumer(
        topic, bootstrap_servers=args["brokers"], group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False, **more)


def batches(c):
    """Gives what each poll gives, for ever."""
    while True:
        yield [r for records in c.poll(timeout_ms=200).values() for r in records]


def read(record):
    """Gives the record, which has to be fit for a shared topic."""
    assert record.value is not None, "a tombstone in %s" % record.topic
    if record.key is not None:
        record.key.decode("utf-8")
    text = record.value.decode("ascii")
    value = json.loads(text, parse_constant=lambda c: sys.exit("%s in %s" % (c, record.topic)))
    assert isinstance(value, dict), "no object in %s: %s" % (record.topic, text)
    assert not nul(value), "U+0000 in %s: %s" % (record.topic, text)
    return value


def nul(value):
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(nul(k) or nul(v) for k, v in value.items())
    return isinstance(value, list) and any(nul(v) for v in value)


def form(record, members):
    """The exact form: these members in this order, in this spelling, no headers."""
    text = record.value.decode("ascii")
    value = json.loads(text)
    assert list(value) == members, "members %s" % list(value)
    assert json.dumps(value) == text, "spelled otherwise: %s" % text
    stamp = value["timestamp"]
    datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%f" if "." in stamp else "%Y-%m-%dT%H:%M:%S")
    assert "." not in stamp or len(stamp.split(".")[1]) == 6, stamp


TASK = ["run_id", "task_id", "agent_name", "input_data", "correlation_id", "timestamp"]
RESULT = ["run_id", "task_id", "status", "output_data", "correlation_id", "error_message", "timestamp"]
MONITORING = ["run_id", "step_id", "step_name", "status", "timestamp", "metadata"]
