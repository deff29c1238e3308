"""What the bridge of the existing platform makes of an input: reads inputs, one a line,
and writes of each the text as JSON."""
import json
import sys

for line in sys.stdin:
    data = json.loads(line)
    text = data.get("text") or data.get("query")
    print(json.dumps(str(text) if text else json.dumps(data)))
