"""A peer with the existing platform's client: peer.py BROKERS produce|consume TOPIC [N].

produce writes the records of its input, consume prints those of a topic from
its beginning; a record is a line of JSON with key and value in base64.
"""
import base64
import json
import sys

from kafka import KafkaConsumer, KafkaProducer

brokers, mode, topic = sys.argv[1].split(","), sys.argv[2], sys.argv[3]
if mode == "produce":
    producer = KafkaProducer(bootstrap_servers=brokers, compression_type="gzip", acks="all", api_version=(2, 5, 0))
    for line in sys.stdin:
        record = json.loads(line)
        sent = producer.send(topic, key=base64.b64decode(record["key"]), value=base64.b64decode(record["value"]))
        sent.get(timeout=30)
    producer.close(timeout=10)
else:
    consumer = KafkaConsumer(topic, bootstrap_servers=brokers, group_id=topic + ".peer", auto_offset_reset="earliest",
                             consumer_timeout_ms=30000, api_version=(2, 5, 0))
    left = int(sys.argv[4])
    for record in consumer:
        print(json.dumps({
            "key": base64.b64encode(record.key).decode(), "value": base64.b64encode(record.value).decode(),
            "headers": {name: value.decode() for name, value in record.headers},
        }), flush=True)
        left -= 1
        if left == 0:
            break
    consumer.close()
