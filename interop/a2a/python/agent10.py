"""A test agent built with a2a-sdk 1.3.0: JSON-RPC, REST and gRPC of A2A 1.0,
and 0.3 beside it when asked.
"""

import base64

import grpc
import httpx
from google.protobuf.json_format import MessageToDict
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.helpers import new_data_part, new_task
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers.default_request_handler_v2 import DefaultRequestHandlerV2
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    DatabaseTaskStore,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import a2a_pb2, a2a_pb2_grpc
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Part,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError

import script
import serve

STATES = {
    "working": TaskState.TASK_STATE_WORKING,
    "completed": TaskState.TASK_STATE_COMPLETED,
    "failed": TaskState.TASK_STATE_FAILED,
    "rejected": TaskState.TASK_STATE_REJECTED,
    "input-required": TaskState.TASK_STATE_INPUT_REQUIRED,
    "auth-required": TaskState.TASK_STATE_AUTH_REQUIRED,
}


def to_part(p):
    if "text" in p:
        return Part(text=p["text"])
    if "data" in p:
        return new_data_part(p["data"], media_type="application/json")
    if "raw" in p:
        return Part(raw=base64.b64decode(p["raw"]), filename=p["name"], media_type=p["type"])
    return Part(url=p["url"], filename=p["name"], media_type=p["type"])


def describe(p):
    if p.HasField("text"):
        return "text"
    if p.HasField("data"):
        return "data"
    return script.described(p.filename, p.media_type, p.raw if p.HasField("raw") else p.url)


class Out:
    """One execution."""

    def __init__(self, context, queue):
        self.context, self.queue = context, queue
        self.updater = TaskUpdater(queue, context.task_id, context.context_id)
        self.asked = context.current_task is not None

    async def begin(self):
        if not self.asked:
            task = new_task(self.context.task_id, self.context.context_id, TaskState.TASK_STATE_SUBMITTED,
                            history=[self.context.message])
            await self.queue.enqueue_event(task)

    def got(self):
        return ", ".join(describe(p) for p in self.context.message.parts)

    async def message(self, text):
        await self.queue.enqueue_event(self.updater.new_agent_message([Part(text=text)]))

    async def status(self, state, text=None):
        message = self.updater.new_agent_message([Part(text=text)]) if text else None
        await self.updater.update_status(STATES[state], message)

    async def artifact(self, name, parts, append=None, last=None):
        await self.updater.add_artifact([to_part(p) for p in parts], artifact_id=name, name=name, append=append,
                                        last_chunk=last)


class Executor(AgentExecutor):
    def __init__(self, log, gates):
        self.log, self.gates = log, gates
        self.refuses = set()

    async def execute(self, context, event_queue):
        text = context.get_user_input()
        self.log.write("execute", context.message.message_id, context.task_id, context.context_id, text)
        data = next((MessageToDict(p.data) for p in context.message.parts if p.HasField("data")), None)
        if text.startswith("refuse-cancel"):
            self.refuses.add(context.task_id)
        out = Out(context, event_queue)
        if out.asked:
            await script.answer(text, data, out, self.gates)
        else:
            await script.obey(text, data, out, self.gates)

    async def cancel(self, context, event_queue):
        self.log.write("cancel", "", context.task_id, context.context_id, "")
        if context.task_id in self.refuses:
            raise TaskNotCancelableError(message="asked to refuse")
        await TaskUpdater(event_queue, context.task_id, context.context_id).update_status(
            TaskState.TASK_STATE_CANCELED)


def make_card(base, grpc_address, dual):
    interfaces = [
        AgentInterface(url=base + "/rpc", protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url=base + "/rest", protocol_binding="HTTP+JSON", protocol_version="1.0"),
        AgentInterface(url=grpc_address, protocol_binding="GRPC", protocol_version="1.0"),
    ]
    if dual:
        interfaces.append(AgentInterface(url=base + "/rpc", protocol_binding="JSONRPC", protocol_version="0.3"))
    return AgentCard(
        name="python 1.0", description="a scripted agent", version="1",
        supported_interfaces=interfaces,
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[AgentSkill(id="script", name="script", description="obeys the text", tags=["test"])],
    )


async def run(o):
    sock, own = serve.bind(o.listen)
    server = grpc.aio.server()
    port = server.add_insecure_port(o.grpc)
    grpc_address = f"127.0.0.1:{port}"
    log, gates = script.Log(o.log), script.Gates()
    card = make_card(o.public or own, grpc_address, o.dual)
    store = InMemoryTaskStore()
    if o.db:
        store = DatabaseTaskStore(create_async_engine("sqlite+aiosqlite:///" + o.db))
    hooks = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandlerV2(
        Executor(log, gates), store, card, push_config_store=hooks,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), hooks),
    )
    routes = serve.side_routes(log, gates)
    routes += create_agent_card_routes(card)
    routes += create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=o.dual)
    routes += create_rest_routes(handler, path_prefix="/rest", enable_v0_3_compat=o.dual)
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    if o.dual:
        a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler), server)
    await server.start()
    await serve.serve(Starlette(routes=routes), sock, {
        "url": own, "jsonrpc": own + "/rpc", "rest": own + "/rest", "grpc": grpc_address,
        "jsonrpc03": own + "/rpc" if o.dual else "",
    })


serve.main(run)
