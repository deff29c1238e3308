// A test agent built with @a2a-js/sdk 0.3.14: JSON-RPC and REST of A2A 0.3.

import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { answer, described, Gates, Log, obey } from './script.mjs';
import { listen, options, side } from './serve.mjs';

const o = options();

// Loaded as CommonJS the package has its classes twice.
const load = o.cjs ? createRequire(import.meta.url) : (name) => import(name);
const {
  A2AError,
  DefaultExecutionEventBusManager,
  DefaultPushNotificationSender,
  DefaultRequestHandler,
  InMemoryPushNotificationStore,
  InMemoryTaskStore,
} = await load('a2a-js-03/server');
const { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } = await load('a2a-js-03/server/express');

function toPart(p) {
  if ('text' in p) return { kind: 'text', text: p.text };
  if ('data' in p) return { kind: 'data', data: p.data };
  if ('raw' in p) return { kind: 'file', file: { bytes: p.raw, name: p.name, mimeType: p.type } };
  return { kind: 'file', file: { uri: p.url, name: p.name, mimeType: p.type } };
}

// The states after which nothing more comes on a stream.
const final = new Set(['completed', 'failed', 'rejected', 'canceled', 'input-required']);

// One execution.
class Out {
  constructor(task, context, bus, request) {
    Object.assign(this, { task, context, bus, request });
  }

  #message(text) {
    return {
      kind: 'message', messageId: randomUUID(), contextId: this.context, taskId: this.task, role: 'agent',
      parts: [toPart({ text })],
    };
  }

  #status(state, text) {
    return { state, message: text ? this.#message(text) : undefined, timestamp: new Date().toISOString() };
  }

  begin() {
    if (this.request?.task) return;
    this.bus.publish({
      kind: 'task', id: this.task, contextId: this.context, status: this.#status('submitted'),
      history: [this.request.userMessage],
    });
  }

  got() {
    return this.request.userMessage.parts.map(({ kind, file }) => {
      if (kind !== 'file') return kind;
      return described(file.name, file.mimeType, file.uri ?? Buffer.from(file.bytes, 'base64'));
    }).join(', ');
  }

  message(text) {
    const { taskId, ...message } = this.#message(text);
    this.bus.publish(message);
  }

  status(state, text) {
    this.bus.publish({
      kind: 'status-update', taskId: this.task, contextId: this.context, status: this.#status(state, text),
      final: final.has(state),
    });
  }

  artifact(name, parts, append, lastChunk) {
    this.bus.publish({
      kind: 'artifact-update', taskId: this.task, contextId: this.context, append, lastChunk,
      artifact: { artifactId: name, name, parts: parts.map(toPart) },
    });
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
    const text = userMessage.parts.filter((p) => p.kind === 'text').map((p) => p.text).join('\n');
    const data = userMessage.parts.find((p) => p.kind === 'data')?.data;
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
    if (this.refuses.has(taskId)) throw A2AError.taskNotCancelable(taskId);
    if (this.mutes.has(taskId)) return; // nobody is told
    this.gates.cancel(taskId);
    new Out(taskId, this.contexts.get(taskId) ?? '', bus).status('canceled');
  }
}

await listen(o.listen, async (app, own) => {
  const log = new Log(o.log);
  const gates = new Gates();
  const base = o.public || own;
  const card = {
    name: 'javascript 0.3', description: 'a scripted agent', version: '1', protocolVersion: '0.3.0',
    url: base + '/rpc', preferredTransport: 'JSONRPC',
    additionalInterfaces: [{ url: base + '/rpc', transport: 'JSONRPC' }, { url: base + '/rest', transport: 'HTTP+JSON' }],
    capabilities: { streaming: true, pushNotifications: true },
    defaultInputModes: ['text/plain', 'application/json'], defaultOutputModes: ['text/plain', 'application/json'],
    skills: [{ id: 'script', name: 'script', description: 'obeys the text', tags: ['test'] }],
  };
  const hooks = new InMemoryPushNotificationStore();
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Executor(log, gates),
    new DefaultExecutionEventBusManager(), hooks, new DefaultPushNotificationSender(hooks));
  const mount = { requestHandler, userBuilder: UserBuilder.noAuthentication };
  side(app, log, gates);
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
  app.use('/rpc', jsonRpcHandler(mount));
  app.use('/rest', restHandler(mount));
  return { jsonrpc03: own + '/rpc', rest03: own + '/rest' };
});
