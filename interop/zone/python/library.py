"""An Execution Zone on a JSON-RPC server library (json-rpc): library.py PORT."""

import http.server
import sys

from jsonrpc import Dispatcher, JSONRPCResponseManager

import answers

methods = Dispatcher()


@methods.add_method
def execute_task(**params):
    """Is execute_task of the contract."""
    return answers.execute_task(params)


@methods.add_method
def get_async_task_result(**params):
    """Is get_async_task_result of the contract."""
    return answers.get_async_task_result(params)


class Handler(http.server.BaseHTTPRequestHandler):
    """Takes POST /invocations."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """Answers the health check."""
        self.answer(b'{"status":"Healthy"}')

    def do_POST(self):
        """Hands the body to the library."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(JSONRPCResponseManager.handle(body, methods).json.encode())

    def answer(self, body):
        """Sends a JSON body."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Keeps quiet."""


answers.end_with_caller()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
