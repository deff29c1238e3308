"""How the test agents are started: agentNN.py --listen ADDR --grpc ADDR --log
FILE [--public URL] [--db FILE]. The first line on standard output says where
they are, as JSON. They end when standard input does.
"""

import argparse
import asyncio
import json
import os
import socket
import sys
import threading

import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


def options():
    p = argparse.ArgumentParser()
    p.add_argument("--listen", default="127.0.0.1:0")
    p.add_argument("--grpc", default="127.0.0.1:0")
    p.add_argument("--log", required=True)
    p.add_argument("--public", default="", help="what the card says instead of our own address")
    p.add_argument("--db", default="", help="keep the tasks in this SQLite file")
    p.add_argument("--dual", action="store_true", help="speak 0.3 too")
    return p.parse_args()


def bind(address):
    host, _, port = address.rpartition(":")
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((host, int(port)))
    s.listen(128)
    return s, f"http://{host}:{s.getsockname()[1]}"


def side_routes(log, gates):
    """What belongs to the tests and to no protocol."""

    async def executions(request: Request) -> Response:
        return Response(log.read(), media_type="application/x-ndjson")

    async def release(request: Request) -> Response:
        gates.open(request.query_params["key"])
        return PlainTextResponse("ok")

    return [Route("/log", executions, methods=["GET"]), Route("/release", release, methods=["POST"])]


def end_with_stdin():
    """A test that dies without killing us closes the pipe."""

    def watch():
        while sys.stdin.buffer.read(4096):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


async def serve(app, sock, where):
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    print(json.dumps(where), flush=True)
    await uvicorn.Server(config).serve(sockets=[sock])


def main(run):
    end_with_stdin()
    asyncio.run(run(options()))
