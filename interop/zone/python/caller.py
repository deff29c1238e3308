"""Calls a runtime by boto3, once for each line of its input.

A line is an object with the members endpoint, arn, secret, mode and body, whose
text is base64. The answer is a line with status, type, body and attempts, or with
error. The modes: once never repeats; default is what boto3 does when nobody says
anything; impatient is that with a second in place of a minute for an answer.
"""

import base64
import json
import sys

import boto3
from botocore.config import Config

modes = {"once": {"retries": {"total_max_attempts": 1}}, "default": {}, "impatient": {"read_timeout": 1}}
clients = {}


def client(call):
    """Gives the client of a call, the same for the same endpoint."""
    key = (call["endpoint"], call["secret"], call["mode"])
    if key not in clients:
        clients[key] = boto3.client(
            "bedrock-agentcore",
            region_name="us-east-1",
            endpoint_url=call["endpoint"],
            aws_access_key_id="AKIDEXAMPLE",
            aws_secret_access_key=call["secret"],
            config=Config(**modes[call["mode"]]),
        )
    return clients[key]


def answer(call):
    """Makes a call."""
    try:
        response = client(call).invoke_agent_runtime(
            agentRuntimeArn=call["arn"],
            runtimeSessionId="session-of-the-caller-0123456789abcdef",
            contentType="application/json",
            accept="application/json",
            payload=base64.b64decode(call["body"]),
        )
        return {
            "status": response["statusCode"],
            "type": response["contentType"],
            "body": base64.b64encode(response["response"].read()).decode(),
            "attempts": response["ResponseMetadata"]["RetryAttempts"] + 1,
        }
    except Exception as fault:  # whatever it is, the test wants to see it
        return {"error": type(fault).__name__ + ": " + str(fault)}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
