"""A test agent built with a2a-sdk 0.3.26: JSON-RPC, REST and gRPC of A2A 0.3."""

import base64

import grpc
import httpx
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.routing import Route

from a2a.grpc import a2a_pb2_grpc
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.apps.rest.rest_adapter import RESTAdapter
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import (
    BasePushNotificationSender,
    DatabaseTaskStore,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    Part,
    Task,
    TaskNotCancelableError,
    TaskState,
    TaskStatus,
    TextPart,
)
from a2a.utils.errors import ServerError

import script
import serve


def to_part(p):
    if "text" in p:
        return Part(root=TextPart(text=p["text"]))
    if "data" in p:
        return Part(root=DataPart(data=p["data"]))
    if "raw" in p:
        return Part(root=FilePart(file=FileWithBytes(bytes=p["raw"], name=p["name"], mime_type=p["type"])))
    return Part(root=FilePart(file=FileWithUri(uri=p["url"], name=p["name"], mime_type=p["type"])))


def describe(p):
    if not isinstance(p, FilePart):
        return p.kind
    content = base64.b64decode(p.file.bytes) if isinstance(p.file, FileWithBytes) else p.file.uri
    return script.described(p.file.name or "", p.file.mime_type or "", content)


class Out:
    """One execution."""

    def __init__(self, context, queue):
        self.context, self.queue = context, queue
        self.updater = TaskUpdater(queue, context.task_id, context.context_id)
        self.asked = context.current_task is not None

    async def begin(self):
        if not self.asked:
            await self.queue.enqueue_event(Task(
                id=self.context.task_id, context_id=self.context.context_id,
                status=TaskStatus(state=TaskState.submitted), history=[self.context.message],
            ))

    def got(self):
        return ", ".join(describe(p.root) for p in self.context.message.parts)

    async def message(self, text):
        await self.queue.enqueue_event(self.updater.new_agent_message([Part(root=TextPart(text=text))]))

    async def status(self, state, text=None):
        message = self.updater.new_agent_message([Part(root=TextPart(text=text))]) if text else None
        await self.updater.update_status(TaskState(state), message, final=state == "input-required")

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
        data = next((p.root.data for p in context.message.parts if isinstance(p.root, DataPart)), None)
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
            raise ServerError(error=TaskNotCancelableError(message="asked to refuse"))
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def make_card(base, grpc_address):
    return AgentCard(
        name="python 0.3", description="a scripted agent", version="1", protocol_version="0.3.0",
        url=base + "/rpc", preferred_transport="JSONRPC",
        additional_interfaces=[
            AgentInterface(url=base + "/rpc", transport="JSONRPC"),
            AgentInterface(url=base + "/rest", transport="HTTP+JSON"),
            AgentInterface(url=grpc_address, transport="GRPC"),
        ],
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
    card = make_card(o.public or own, grpc_address)
    store = InMemoryTaskStore()
    if o.db:
        store = DatabaseTaskStore(create_async_engine("sqlite+aiosqlite:///" + o.db))
    hooks = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        Executor(log, gates), store, push_config_store=hooks,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), hooks),
    )
    app = A2AStarletteApplication(card, handler).build(rpc_url="/rpc")
    for (path, method), endpoint in RESTAdapter(card, handler).routes().items():
        app.routes.append(Route("/rest" + path, endpoint, methods=[method]))
    app.routes.extend(serve.side_routes(log, gates))
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(card, handler), server)
    await server.start()
    await serve.serve(app, sock, {
        "url": own, "jsonrpc03": own + "/rpc", "rest03": own + "/rest", "grpc03": grpc_address,
    })


serve.main(run)
