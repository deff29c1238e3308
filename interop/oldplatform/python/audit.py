"""Reads topics from their beginning to their present end and holds every record
and every batch to the rules of shared topics, as strictly as the old programs.
It tells each record. The argument is JSON: brokers, topics {topic: [members]}."""

import json
import sys

import wire
from wire import kafka

NAMES = {0: "none", 1: "gzip"}


def compressions(seen):
    """Has every batch that the client decodes noted with its compression."""
    from kafka.consumer import fetcher
    original = fetcher.MemoryRecords.next_batch

    def next_batch(self, *args, **more):
        batch = original(self, *args, **more)
        if batch is not None:
            seen.add(batch.compression_type)
        return batch
    fetcher.MemoryRecords.next_batch = next_batch


def main():
    args = json.loads(sys.argv[1])
    seen = set()
    compressions(seen)
    for topic, members in args["topics"].items():
        c = kafka.KafkaConsumer(bootstrap_servers=args["brokers"], auto_offset_reset="earliest", enable_auto_commit=False)
        parts = [kafka.TopicPartition(topic, p) for p in c.partitions_for_topic(topic)]
        c.assign(parts)
        c.seek_to_beginning()
        ends = c.end_offsets(parts)
        while any(c.position(p) < ends[p] for p in parts):
            for records in c.poll(timeout_ms=200).values():
                for record in records:
                    value = wire.read(record)
                    wire.form(record, members)
                    wire.say(event="record", topic=topic, headers=len(record.headers), **{"value": value})
        c.close()
    assert seen <= set(NAMES), "batches with compression %s" % seen
    wire.say(event="end", compressions=sorted(NAMES[s] for s in seen))


main()
