#!/usr/bin/env node
// A small agent that speaks A2A 0.3 and 1.0, made of what Node.js brings along.
//
//   node agent.mjs --port 9001     over HTTP, at http://127.0.0.1:9001/
//   node agent.mjs --stdio         over stdin and stdout, one JSON text a line
//
// The first word of a message says what the agent does with it:
//
//   echo TEXT       answers TEXT at once (so does any other text)
//   long SECONDS    works in the background and reports how far it is
//   ask             asks a question; a message to the same task answers it
//   fail            fails
//
// To make an agent of your own, change Agent.begin and Agent.work.

import { createHash, randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

const MAX_BODY = 1 << 20;   // bytes of one request
const MAX_PARTS = 100;      // parts of one message
const MAX_DEPTH = 64;       // of a data part
const MAX_ID = 256;         // characters of an id that a client chooses
const MAX_TASKS = 1000;     // tasks that are remembered; the oldest ended one goes first
const MAX_CALLS = 256;      // requests at the same time over stdio
const MAX_SECONDS = 600;    // of one long task
const STEPS = 4;            // of a long task
const PING = 15_000;        // milliseconds of silence after which a stream sends a comment

const ended = (state) => ['completed', 'failed', 'canceled', 'rejected'].includes(state);
const resting = (state) => ended(state) || state === 'input-required'; // nothing happens before a client does something

// ---- Errors ------------------------------------------------------------------

const REASONS = {
  '-32001': 'TASK_NOT_FOUND',
  '-32002': 'TASK_NOT_CANCELABLE',
  '-32003': 'PUSH_NOTIFICATION_NOT_SUPPORTED',
  '-32004': 'UNSUPPORTED_OPERATION',
  '-32005': 'CONTENT_TYPE_NOT_SUPPORTED',
  '-32007': 'EXTENDED_AGENT_CARD_NOT_CONFIGURED',
  '-32009': 'VERSION_NOT_SUPPORTED',
};

// An error for the client: a code of JSON-RPC or A2A, and the HTTP status to send it with.
class Fault extends Error {
  constructor(code, message, status = 200) {
    super(message);
    Object.assign(this, { code, status });
  }

  write() {
    const reason = REASONS[this.code];
    const data = reason && [{ '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason, domain: 'a2a-protocol.org' }];
    return { code: this.code, message: this.message, ...(data && { data }) }; // 1.0 wants typed objects; 0.3 takes anything
  }
}

// ---- The agent: tasks and what is done about them ------------------------------

// Task is one task. History, artifacts and events only grow; "change" is emitted at each event.
class Task extends EventEmitter {
  constructor(contextId) {
    super({ captureRejections: false });
    this.setMaxListeners(0);
    this.id = randomUUID();
    this.contextId = contextId || randomUUID();
    this.status = undefined; // { state, message?, at }
    this.artifacts = [];
    this.history = [];
    this.events = [];
    this.stop = new AbortController();
  }

  get state() { return this.status.state; }

  remember(message) {
    this.history.push({ ...message, taskId: this.id, contextId: this.contextId });
  }

  update(state, text) {
    const message = text && {
      messageId: randomUUID(), role: 'agent', parts: [{ text }], taskId: this.id, contextId: this.contextId,
    };
    this.status = { state, message, at: new Date() };
    this.tell({ status: this.status });
  }

  // Adds parts to the task's one artifact.
  add(parts, last = true) {
    const append = this.artifacts.length > 0;
    if (append) this.artifacts[0].parts.push(...parts);
    else this.artifacts.push({ artifactId: 'result', name: 'result', parts: [...parts] });
    this.tell({ artifact: { artifactId: 'result', name: 'result', parts }, append, last });
  }

  tell(event) {
    this.events.push(event);
    this.emit('change');
  }
}

class Agent {
  tasks = new Map();     // by id, oldest first
  byMessage = new Map(); // the task that a messageId led to

  send(message) {
    // The same messageId again: the client's connection broke before it had our answer, and
    // it cannot know whether the message arrived. It must get the task that the message led
    // to, else the work would be done twice. An agent that survives restarts keeps this
    // index in its database, with the task.
    let task = this.byMessage.get(message.messageId);
    if (!task) {
      task = message.taskId ? this.answer(message) : this.begin(message);
      this.byMessage.set(message.messageId, task);
    }
    return task;
  }

  // Starts a task. This is where an agent of your own decides what to do.
  begin(message) {
    const text = textOf(message);
    const [, word, rest] = /^(\S*) ?(.*)$/s.exec(text);
    const seconds = word === 'long' ? readSeconds(rest) : 0;
    this.makeRoom();
    const task = new Task(message.contextId);
    this.tasks.set(task.id, task);
    task.remember(message);
    if (word === 'long') {
      task.update('working', `0 of ${STEPS} parts are done`);
      this.work(task, seconds).catch((e) => console.error('internal error:', e));
    } else if (word === 'ask') {
      task.update('input-required', 'Which colour?');
    } else if (word === 'fail') {
      task.update('failed', 'You asked me to fail.');
    } else {
      const said = text ? [{ text: word === 'echo' ? rest : text }] : [];
      task.add([...said, ...message.parts.filter((p) => 'data' in p)]);
      task.update('completed');
    }
    return task;
  }

  // Goes on with a task that waits for an answer.
  answer(message) {
    const task = this.get(message.taskId);
    if (message.contextId && message.contextId !== task.contextId) throw new Fault(-32602, 'the task belongs to another contextId');
    if (task.state !== 'input-required') throw new Fault(-32004, `the task is ${task.state} and takes no message`);
    task.history.push(task.status.message); // the question
    task.remember(message);
    task.add([{ text: `You chose ${textOf(message)}.` }]);
    task.update('completed');
    return task;
  }

  // A long task: a part of the result now and then, until it is done or cancelled.
  async work(task, seconds) {
    for (let step = 1; step <= STEPS; step++) {
      try {
        await sleep(seconds * 1000 / STEPS, undefined, { signal: task.stop.signal });
      } catch {
        return; // cancelled
      }
      task.add([{ text: `part ${step}` }], step === STEPS);
      if (step < STEPS) task.update('working', `${step} of ${STEPS} parts are done`);
      else task.update('completed');
    }
  }

  get(id) {
    const task = this.tasks.get(id);
    if (!task) throw new Fault(-32001, 'there is no such task');
    return task;
  }

  cancel(id) {
    const task = this.get(id);
    if (task.state === 'canceled') return task;
    if (ended(task.state)) throw new Fault(-32002, `the task is ${task.state}`);
    task.stop.abort();
    task.update('canceled');
    return task;
  }

  // The tasks that fit, the one that changed last first; of those that changed in the same
  // millisecond the one that began last.
  newest({ contextId, state, since }) {
    return [...this.tasks.values()].reverse()
      .filter((t) => (!contextId || contextId === t.contextId) && (!state || state === t.state) && t.status.at >= since)
      .sort((s, t) => t.status.at - s.status.at);
  }

  makeRoom() {
    if (this.tasks.size < MAX_TASKS) return;
    const oldest = [...this.tasks.values()].find((t) => ended(t.state));
    if (!oldest) throw new Fault(-32603, 'too many tasks are under way; try again later', 503);
    this.tasks.delete(oldest.id);
    for (const m of oldest.history) this.byMessage.delete(m.messageId);
  }
}

// Waits until the task rests.
async function wait(task) {
  while (!resting(task.state)) await once(task, 'change');
}

// Gives the events after the first seen ones, and nothing in times of silence.
async function* follow(task, seen) {
  for (;;) {
    while (seen < task.events.length) {
      const event = task.events[seen++];
      yield event;
      if (event.status && resting(event.status.state)) return;
    }
    const quiet = AbortSignal.timeout(PING);
    await once(task, 'change', { signal: quiet }).catch((e) => { if (!quiet.aborted) throw e; });
    if (seen === task.events.length) yield undefined;
  }
}

function textOf(message) {
  return message.parts.filter((p) => 'text' in p).map((p) => p.text).join('\n');
}

function readSeconds(text) {
  const seconds = text.trim() === '' ? 3 : Number(text);
  if (!(seconds >= 0 && seconds <= MAX_SECONDS)) {
    throw new Fault(-32602, `long takes a number of seconds from 0 to ${MAX_SECONDS}`);
  }
  return seconds;
}

// ---- The two dialects: "v1" is 1.0, otherwise it is 0.3 ------------------------

function writePart(part, v1) {
  if ('text' in part) return v1 ? { text: part.text } : { kind: 'text', text: part.text };
  if (v1) return { data: part.data, mediaType: 'application/json' };
  return { kind: 'data', data: isObject(part.data) ? part.data : { value: part.data } }; // 0.3 knows objects only
}

const writeParts = (owner, v1) => ({ ...owner, parts: owner.parts.map((p) => writePart(p, v1)) });

function writeMessage(message, v1) {
  const out = writeParts(message, v1);
  return v1 ? { ...out, role: 'ROLE_' + message.role.toUpperCase() } : { kind: 'message', ...out };
}

function writeStatus(status, v1) {
  const state = v1 ? 'TASK_STATE_' + status.state.toUpperCase().replaceAll('-', '_') : status.state;
  const message = status.message && writeMessage(status.message, v1);
  return { state, timestamp: status.at.toISOString(), ...(message && { message }) };
}

// The task as it is now; history is how many messages of it at most, undefined is all.
function writeTask(task, v1, history, artifacts = true) {
  const messages = history === undefined ? task.history : task.history.slice(Math.max(0, task.history.length - history));
  return {
    ...(!v1 && { kind: 'task' }),
    id: task.id, contextId: task.contextId, status: writeStatus(task.status, v1),
    ...(artifacts && task.artifacts.length > 0 && { artifacts: task.artifacts.map((a) => writeParts(a, v1)) }),
    ...(messages.length > 0 && { history: messages.map((m) => writeMessage(m, v1)) }),
  };
}

function writeEvent(task, event, v1) {
  const out = { taskId: task.id, contextId: task.contextId };
  if (event.status) {
    out.status = writeStatus(event.status, v1);
    return v1 ? { statusUpdate: out } : { kind: 'status-update', ...out, final: resting(event.status.state) };
  }
  Object.assign(out, { artifact: writeParts(event.artifact, v1), append: event.append, lastChunk: event.last });
  return v1 ? { artifactUpdate: out } : { kind: 'artifact-update', ...out };
}

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const kinds = {
  string: (v) => typeof v === 'string',
  boolean: (v) => typeof v === 'boolean',
  count: (v) => Number.isInteger(v) && v >= 0,
  object: isObject,
  array: Array.isArray,
};

// The member called name, which has to be of that kind if it is there.
function member(owner, name, kind, otherwise) {
  const value = owner[name];
  if (value === undefined || value === null) return otherwise;
  if (!kinds[kind](value)) throw new Fault(-32602, `${name} is of the wrong type`);
  return value;
}

function memberId(owner, name) {
  const value = member(owner, name, 'string', '');
  if (value.length > MAX_ID) throw new Fault(-32602, `${name} is longer than ${MAX_ID} characters`);
  return value;
}

function readTime(params) {
  const text = member(params, 'statusTimestampAfter', 'string', '');
  const at = new Date(text || 0);
  if (Number.isNaN(at.getTime())) throw new Fault(-32602, 'statusTimestampAfter must be a time such as 2026-01-31T12:00:00Z');
  return at;
}

function readMessage(params, v1) {
  const message = member(params, 'message', 'object');
  if (!message) throw new Fault(-32602, 'message is missing');
  const role = v1 ? 'ROLE_USER' : 'user';
  if (!memberId(message, 'messageId')) throw new Fault(-32602, 'message.messageId is missing');
  if (message.role !== role) throw new Fault(-32602, `message.role must be ${role}`);
  const parts = member(message, 'parts', 'array', []);
  if (parts.length < 1 || parts.length > MAX_PARTS) throw new Fault(-32602, `message.parts must have 1 to ${MAX_PARTS} parts`);
  return {
    messageId: message.messageId, role: 'user', parts: parts.map(readPart),
    taskId: memberId(message, 'taskId'), contextId: memberId(message, 'contextId'),
  };
}

function readPart(part) {
  if (!isObject(part)) throw new Fault(-32602, 'a part must be an object');
  if (typeof part.text === 'string') return { text: part.text };
  if ('data' in part) {
    if (isDeeper(part.data, MAX_DEPTH)) throw new Fault(-32602, `data is nested more than ${MAX_DEPTH} deep`);
    return { data: part.data };
  }
  throw new Fault(-32005, 'this agent takes text and data parts only');
}

function isDeeper(value, limit) {
  if (value === null || typeof value !== 'object') return false;
  return limit === 0 || Object.values(value).some((v) => isDeeper(v, limit - 1));
}

// The card has the shapes of 0.3 and 1.0 at once: neither has a member that the other uses otherwise.
function card(url) {
  const modes = ['text/plain', 'application/json'];
  return {
    name: 'example', version: '1.0.0',
    description: 'Echoes, works for long, asks, or fails, as the first word of a message says.',
    // 1.0
    supportedInterfaces: [
      { url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' },
      { url, protocolBinding: 'JSONRPC', protocolVersion: '0.3' },
    ],
    // 0.3
    protocolVersion: '0.3.0', url, preferredTransport: 'JSONRPC',
    // both
    capabilities: { streaming: true, pushNotifications: false },
    defaultInputModes: modes, defaultOutputModes: modes,
    skills: [
      { id: 'echo', name: 'Echo', description: 'echo TEXT: answers TEXT at once', tags: ['text'] },
      { id: 'long', name: 'Long', description: 'long SECONDS: works in the background', tags: ['task'] },
      { id: 'ask', name: 'Ask', description: 'ask: asks a question and waits', tags: ['task'] },
      { id: 'fail', name: 'Fail', description: 'fail: fails', tags: ['task'] },
    ],
  };
}

// ---- JSON-RPC: methods by name, so that one URL serves both dialects -----------

const METHODS = new Map([ // name: [operation, whether it is of 1.0]
  ['message/send', ['send', false]], ['SendMessage', ['send', true]],
  ['message/stream', ['stream', false]], ['SendStreamingMessage', ['stream', true]],
  ['tasks/get', ['get', false]], ['GetTask', ['get', true]],
  ['tasks/cancel', ['cancel', false]], ['CancelTask', ['cancel', true]],
  ['tasks/resubscribe', ['subscribe', false]], ['SubscribeToTask', ['subscribe', true]],
  ['ListTasks', ['list', true]],
  ['tasks/pushNotificationConfig/set', ['push', false]], ['CreateTaskPushNotificationConfig', ['push', true]],
  ['tasks/pushNotificationConfig/get', ['push', false]], ['GetTaskPushNotificationConfig', ['push', true]],
  ['tasks/pushNotificationConfig/list', ['push', false]], ['ListTaskPushNotificationConfigs', ['push', true]],
  ['tasks/pushNotificationConfig/delete', ['push', false]], ['DeleteTaskPushNotificationConfig', ['push', true]],
  ['agent/getAuthenticatedExtendedCard', ['extendedCard', false]], ['GetExtendedAgentCard', ['extendedCard', true]],
]);

// One request. Each operation gives a result, or an iterator of results for a stream.
class Call {
  constructor(agent, params, v1) {
    Object.assign(this, { agent, params, v1 });
  }

  // Takes the message of a send or a stream.
  accept() {
    const config = member(this.params, 'configuration', 'object', {});
    if (config.taskPushNotificationConfig || config.pushNotificationConfig) this.push();
    const history = member(config, 'historyLength', 'count');
    // Both dialects wait for the end unless told otherwise.
    const waits = this.v1 ? !member(config, 'returnImmediately', 'boolean', false) : member(config, 'blocking', 'boolean', true);
    return { task: this.agent.send(readMessage(this.params, this.v1)), waits, history };
  }

  async send() {
    const { task, waits, history } = this.accept();
    if (waits) await wait(task);
    const out = writeTask(task, this.v1, history);
    return this.v1 ? { task: out } : out;
  }

  stream() {
    const { task, history } = this.accept();
    return this.events(task, history, resting(task.state));
  }

  subscribe() {
    const task = this.agent.get(memberId(this.params, 'id'));
    if (ended(task.state)) throw new Fault(-32004, `the task is ${task.state}; get it instead`);
    return this.events(task, undefined, false);
  }

  // A stream: the task as it is, then what happens to it.
  events(task, history, over) {
    const { v1 } = this;
    const first = writeTask(task, v1, history);
    const seen = task.events.length; // now, before anything else can happen
    return (async function* results() {
      yield v1 ? { task: first } : first;
      if (over) return;
      for await (const event of follow(task, seen)) yield event && writeEvent(task, event, v1);
    })();
  }

  get() {
    const history = member(this.params, 'historyLength', 'count');
    return writeTask(this.agent.get(memberId(this.params, 'id')), this.v1, history);
  }

  cancel() {
    return writeTask(this.agent.cancel(memberId(this.params, 'id')), this.v1);
  }

  list() {
    const p = this.params;
    const pageSize = member(p, 'pageSize', 'count', 50);
    const token = member(p, 'pageToken', 'string', '') || '0';
    if (pageSize < 1 || pageSize > 100) throw new Fault(-32602, 'pageSize must be from 1 to 100');
    if (!/^\d{1,9}$/.test(token)) throw new Fault(-32602, 'pageToken is none of ours');
    const history = member(p, 'historyLength', 'count');
    const artifacts = member(p, 'includeArtifacts', 'boolean', false);
    const state = member(p, 'status', 'string', '').replace(/^TASK_STATE_/, '').toLowerCase().replaceAll('_', '-');
    const fit = this.agent.newest({
      contextId: memberId(p, 'contextId'), state: state.replace('unspecified', ''), since: readTime(p),
    });
    const start = Number(token);
    const end = start + pageSize;
    return {
      tasks: fit.slice(start, end).map((t) => writeTask(t, true, history, artifacts)),
      nextPageToken: end < fit.length ? String(end) : '', pageSize, totalSize: fit.length,
    };
  }

  push() {
    throw new Fault(-32003, 'this agent sends no push notifications');
  }

  extendedCard() {
    throw new Fault(this.v1 ? -32004 : -32007, 'this agent has no extended card');
  }
}

function parse(body) {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body));
  } catch {
    throw new Fault(-32700, 'the body is not JSON in UTF-8');
  }
}

const respond = (id, result) => JSON.stringify({ jsonrpc: '2.0', id, result });
const refuse = (id, fault) => JSON.stringify({ jsonrpc: '2.0', id, error: fault.write() });

// Answers one request. The response is a text, or an iterator of texts if it is a
// stream, or nothing for a notification.
async function handle(agent, body, { version = '', streams = true } = {}) {
  let id = null;
  try {
    const request = parse(body);
    if (!isObject(request)) throw new Fault(-32600, 'a request must be one object (there are no batches here)');
    if (typeof request.id === 'string' || Number.isInteger(request.id)) id = request.id;
    const { method, params = {} } = request;
    if (request.jsonrpc !== '2.0' || typeof method !== 'string') throw new Fault(-32600, 'a request needs "jsonrpc": "2.0" and a method');
    if (!('id' in request)) return { status: 204 }; // nobody waits for an answer, so nothing is begun
    if (id === null) throw new Fault(-32600, 'id must be a string or a whole number');
    if (!['', '0.3', '1.0'].includes(version)) throw new Fault(-32009, 'this agent speaks A2A 0.3 and 1.0');
    if (!METHODS.has(method)) throw new Fault(-32601, 'there is no such method');
    if (!isObject(params)) throw new Fault(-32602, 'params must be an object');
    const [operation, v1] = METHODS.get(method);
    const isStream = operation === 'stream' || operation === 'subscribe';
    if (isStream && !streams) throw new Fault(-32004, 'there are no streams over stdio');
    const result = await new Call(agent, params, v1)[operation]();
    return { status: 200, response: isStream ? responses(id, result) : respond(id, result) };
  } catch (e) {
    if (e instanceof Fault) return { status: e.status, response: refuse(id, e) };
    console.error('internal error:', e); // what is wrong with us is for our log, not for the client
    return { status: 200, response: refuse(id, new Fault(-32603, 'internal error')) };
  }
}

async function* responses(id, results) {
  for await (const result of results) yield result && respond(id, result);
}

// ---- HTTP ----------------------------------------------------------------------

function serve(agent, { host, port, url }) {
  let text, etag;
  const server = createServer(async (request, response) => {
    try {
      const { pathname, searchParams } = new URL('http://host' + request.url);
      if (['/.well-known/agent-card.json', '/.well-known/agent.json'].includes(pathname) && request.method === 'GET') {
        const headers = { 'Content-Type': 'application/json', 'Cache-Control': 'max-age=60', ETag: etag };
        if (request.headers['if-none-match'] === etag) return response.writeHead(304, headers).end();
        return response.writeHead(200, headers).end(text);
      }
      if (pathname !== '/') return response.writeHead(404).end();
      if (request.method !== 'POST') return response.writeHead(405, { Allow: 'POST' }).end();
      await post(agent, request, response, searchParams);
    } catch (e) {
      if (e.code !== 'ECONNRESET') console.error('internal error:', e); // else the client is gone
      response.destroy();
    }
  });
  server.requestTimeout = 60_000;
  server.listen(port, host, () => {
    const address = `http://${host}:${server.address().port}/`;
    text = JSON.stringify(card(url ?? address));
    etag = `"${createHash('sha256').update(text).digest('hex').slice(0, 16)}"`;
    console.log('listening on', address);
  });
}

async function post(agent, request, response, query) {
  const reply = (status, body, headers = {}) => response
    .writeHead(status, { ...(body && { 'Content-Type': 'application/json' }), ...headers }).end(body);
  const body = await readBody(request);
  if (!body) return reply(413, refuse(null, new Fault(-32600, `the body is larger than ${MAX_BODY} bytes`)), { Connection: 'close' });
  // A browser sends text/plain to other sites without asking them; JSON it does not.
  const media = (request.headers['content-type'] ?? '').split(';')[0].trim().toLowerCase();
  if (media !== 'application/json') return reply(415, refuse(null, new Fault(-32600, 'Content-Type must be application/json')));
  const version = request.headers['a2a-version'] || query.get('A2A-Version') || '';
  const { status, response: out } = await handle(agent, body, { version });
  if (out === undefined || typeof out === 'string') return reply(status, out, status === 503 ? { 'Retry-After': '1' } : {});
  response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
  for await (const event of out) {
    if (response.destroyed) return; // the client is gone; its task goes on, and can be asked about
    const more = response.write(event ? `data: ${event}\n\n` : ': ping\n\n');
    if (!more) await Promise.race([once(response, 'drain'), once(response, 'close')]);
  }
  response.end();
}

// Gives the body, or nothing if it is too large. It is read to its end all the same: a
// client that is still sending would not see our answer.
async function readBody(request) {
  let chunks = [], size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size <= MAX_BODY) chunks.push(chunk);
    else chunks = [];
  }
  return size <= MAX_BODY ? Buffer.concat(chunks) : undefined;
}

// ---- stdin and stdout ----------------------------------------------------------

// One request a line in, one response a line out, until stdin ends and all answers
// that are due have been given.
async function talk(agent) {
  const calls = new Set();
  for await (const line of lines(process.stdin)) {
    if (calls.size >= MAX_CALLS) await Promise.race(calls); // no more is read before one is answered
    const call = answer(agent, line).finally(() => calls.delete(call));
    calls.add(call);
  }
  await Promise.all(calls);
  process.exit(0); // also with tasks at work that nobody waits for
}

async function answer(agent, line) {
  const out = line
    ? (await handle(agent, line, { streams: false })).response
    : refuse(null, new Fault(-32600, `the line is larger than ${MAX_BODY} bytes`));
  if (out !== undefined) await new Promise((done) => { process.stdout.write(out + '\n', done); });
}

// Gives the lines of a stream that are not empty, and nothing in place of one that is too long.
async function* lines(stream) {
  let pieces = [], size = 0;
  const line = () => {
    const whole = size > MAX_BODY ? undefined : Buffer.concat(pieces);
    pieces = [], size = 0;
    return whole;
  };
  const keep = (piece) => {
    size += piece.length;
    if (size <= MAX_BODY) pieces.push(piece);
    else pieces = [];
  };
  for await (let chunk of stream) {
    for (let end; (end = chunk.indexOf(10)) >= 0; chunk = chunk.subarray(end + 1)) {
      keep(chunk.subarray(0, end));
      const whole = line();
      if (!whole || whole.toString('latin1').trim()) yield whole;
    }
    keep(chunk);
  }
  const rest = line();
  if (!rest || rest.toString('latin1').trim()) yield rest;
}

const { values: flags } = parseArgs({
  options: {
    host: { type: 'string', default: '127.0.0.1' },
    port: { type: 'string', default: '9001' }, // 0 picks a free one
    url: { type: 'string' },                   // where clients reach it, for the card
    stdio: { type: 'boolean', default: false },
  },
});
if (flags.stdio) await talk(new Agent());
else serve(new Agent(), { ...flags, port: Number(flags.port) });
