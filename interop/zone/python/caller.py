"""Calls a runtime by boto3: caller.py ENDPOINT ARN BODY.

Prints the answer's HTTP status and content type, then its body.
"""

import sys

import boto3
from botocore.config import Config

client = boto3.client(
    "bedrock-agentcore",
    region_name="us-east-1",
    endpoint_url=sys.argv[1],
    config=Config(retries={"total_max_attempts": 1}),
)
response = client.invoke_agent_runtime(
    agentRuntimeArn=sys.argv[2],
    runtimeSessionId="session-of-the-caller-0123456789abcdef",
    contentType="application/json",
    accept="application/json",
    payload=sys.argv[3].encode(),
)
print(response["statusCode"], response["contentType"])
sys.stdout.write(response["response"].read().decode())
