// A test agent built with @a2a-js/sdk 1.3.0: JSON-RPC, REST and gRPC of A2A 1.0,
// and 0.3 beside it when asked.

import { randomUUID } from 'node:crypto';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { Role, TaskState } from 'a2a-js-10';
import { duplicateInterfacesForLegacy } from 'a2a-js-10/compat/v0_3';
import { TaskNotCancelableError } from 'a2a-js-10/errors';
import {
  AgentEvent,
  DefaultExecutionEventBusManager,
  DefaultPushNotificationSender,
  DefaultRequestHandler,
  InMemoryPushNotificationStore,
  InMemoryTaskStore,
} from 'a2a-js-10/server';
import { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } from 'a2a-js-10/server/express';
import { A2AService, grpcService } from 'a2a-js-10/server/grpc';
import { answer, described, Gates, Log, obey } from './script.mjs';
import { listen, options, side } from './serve.mjs';

const states = {
  submitted: TaskState.TASK_STATE_SUBMITTED,
  working: TaskState.TASK_STATE_WORKING,
  completed: TaskState.TASK_STATE_COMPLETED,
  failed: TaskState.TASK_STATE_FAILED,
  rejected: TaskState.TASK_STATE_REJECTED,
  canceled: TaskState.TASK_STATE_CANCELED,
  'input-required': TaskState.TASK_STATE_INPUT_REQUIRED,
  'auth-required': TaskState.TASK_STATE_AUTH_REQUIRED,
};

function toPart(p) {
  const part = { metadata: undefined, filename: p.name ?? '', mediaType: p.type ?? '' };
  if ('text' in p) part.content = { $case: 'text', value: p.text };
  else if ('data' in p) part.content = { $case: 'data', value: p.data };
  else if ('raw' in p) part.content = { $case: 'raw', value: Buffer.from(p.raw, 'base64') };
  else part.content = { $case: 'url', value: p.url };
  return part;
}

// One execution.
class Out {
  constructor(task, context, bus, request) {
    Object.assign(this, { task, context, bus, request });
  }

  #message(text) {
    return {
      messageId: randomUUID(), contextId: this.context, taskId: this.task, role: Role.ROLE_AGENT,
      parts: [toPart({ text })], metadata: undefined, extensions: [], referenceTaskIds: [],
    };
  }

  #status(state, text) {
    return { state: states[state], message: text ? this.#message(text) : undefined, timestamp: new Date().toISOString() };
  }

  // begin publishes the task, which has to be the first event of every turn.
  begin() {
    const task = this.request?.task;
    this.bus.publish(AgentEvent.task(task ?? {
      id: this.task, contextId: this.context, status: this.#status('submitted'),
      artifacts: [], history: [this.request.userMessage], metadata: undefined,
    }));
  }

  got() {
    return this.request.userMessage.parts.map((p) => {
      const { $case, value } = p.content;
      return $case === 'raw' || $case === 'url' ? described(p.filename, p.mediaType, value) : $case;
    }).join(', ');
  }

  message(text) {
    this.bus.publish(AgentEvent.message({ ...this.#message(text), taskId: '' }));
  }

  status(state, text) {
    this.bus.publish(AgentEvent.statusUpdate({
      taskId: this.task, contextId: this.context, status: this.#status(state, text), metadata: undefined,
    }));
  }

  artifact(name, parts, append, lastChunk) {
    this.bus.publish(AgentEvent.artifactUpdate({
      taskId: this.task, contextId: this.context, append, lastChunk, metadata: undefined,
      artifact: { artifactId: name, name, description: '', parts: parts.map(toPart), metadata: undefined, extensions: [] },
    }));
  }
}

class Executor {
  refuses = new Set();
  mutes = new Set();
  contexts = new Map();

  constructor(log, gates) {
    Object.assign(this, { log, gates });
  }

  async execute(request, bus) {
    const { taskId, contextId, userMessage } = request;
    const texts = userMessage.parts.filter((p) => p.content?.$case === 'text').map((p) => p.content.value);
    const text = texts.join('\n');
    const data = userMessage.parts.find((p) => p.content?.$case === 'data')?.content.value;
    this.log.write('execute', userMessage.messageId, taskId, contextId, text);
    this.contexts.set(taskId, contextId);
    if (text.startsWith('refuse-cancel')) this.refuses.add(taskId);
    if (text.startsWith('mute-cancel')) this.mutes.add(taskId);
    const out = new Out(taskId, contextId, bus, request);
    await (request.task ? answer(text, data, out) : obey(text, data, out, this.gates));
    bus.finished();
  }

  async cancelTask(taskId, bus) {
    this.log.write('cancel', '', taskId, '', '');
    if (this.refuses.has(taskId)) throw new TaskNotCancelableError('asked to refuse');
    if (this.mutes.has(taskId)) return; // nobody is told
    this.gates.cancel(taskId);
    new Out(taskId, this.contexts.get(taskId) ?? '', bus).status('canceled');
  }
}

function makeCard(base, grpc, dual) {
  const one = (url, protocolBinding) => ({ url, protocolBinding, tenant: '', protocolVersion: '1.0' });
  let interfaces = [one(base + '/rpc', 'JSONRPC'), one(base + '/rest', 'HTTP+JSON'), one(grpc, 'GRPC')];
  if (dual) interfaces = duplicateInterfacesForLegacy(interfaces, ['JSONRPC', 'HTTP+JSON']);
  return {
    name: 'javascript 1.0', description: 'a scripted agent', version: '1', provider: undefined,
    supportedInterfaces: interfaces,
    capabilities: { streaming: true, pushNotifications: true, extensions: [] },
    securitySchemes: {}, securityRequirements: [], signatures: [],
    defaultInputModes: ['text/plain', 'application/json'], defaultOutputModes: ['text/plain', 'application/json'],
    skills: [{
      id: 'script', name: 'script', description: 'obeys the text', tags: ['test'],
      examples: [], inputModes: [], outputModes: [], securityRequirements: [],
    }],
  };
}

const o = options();
await listen(o.listen, async (app, own) => {
  const grpc = new Server();
  const port = await new Promise((resolve, reject) => {
    grpc.bindAsync(o.grpc, ServerCredentials.createInsecure(), (err, p) => (err ? reject(err) : resolve(p)));
  });
  const log = new Log(o.log);
  const gates = new Gates();
  const card = makeCard(o.public || own, `127.0.0.1:${port}`, o.dual);
  const hooks = new InMemoryPushNotificationStore();
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Executor(log, gates),
    new DefaultExecutionEventBusManager(), hooks, new DefaultPushNotificationSender(hooks));
  const mount = { requestHandler, userBuilder: UserBuilder.noAuthentication };
  if (o.dual) mount.legacyCompat = { enabled: true };
  side(app, log, gates);
  app.use('/.well-known/agent-card.json', agentCardHandler({
    agentCardProvider: requestHandler, ...(o.dual ? { legacyCompat: { enabled: true } } : {}),
  }));
  app.use('/rpc', jsonRpcHandler(mount));
  app.use('/rest', restHandler(mount));
  grpc.addService(A2AService, grpcService({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  return {
    jsonrpc: own + '/rpc', rest: own + '/rest', grpc: `127.0.0.1:${port}`,
    jsonrpc03: o.dual ? own + '/rpc' : '',
  };
});
