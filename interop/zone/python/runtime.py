"""An Execution Zone on the AgentCore runtime SDK: runtime.py PORT."""

import sys

from bedrock_agentcore import BedrockAgentCoreApp

import answers

app = BedrockAgentCoreApp()


@app.entrypoint
def invoke(request):
    """Answers one JSON-RPC request, as the contract has it."""
    method = answers.methods.get(request.get("method"))
    if method is None:
        return {"jsonrpc": "2.0", "id": request.get("id"), "error": {"code": -32601, "message": "Method not found"}}
    return {"jsonrpc": "2.0", "id": request.get("id"), "result": method(request["params"])}


app.run(port=int(sys.argv[1]), host="127.0.0.1")
