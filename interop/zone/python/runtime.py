"""An Execution Zone on the AgentCore runtime SDK: runtime.py PORT [CERT KEY CLIENT_CA].

With the three files it speaks TLS, and wants certificates of its callers.
"""

import ssl
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


options = {}
if len(sys.argv) > 2:
    cert, key, client_ca = sys.argv[2:]
    options = {"ssl_certfile": cert, "ssl_keyfile": key, "ssl_ca_certs": client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
answers.end_with_caller()
app.run(port=int(sys.argv[1]), host="127.0.0.1", **options)
