// What the test agents do, whatever SDK they are built with: the text of the
// message says it. The same script is in ../python/script.py and ../internal/script.

import { appendFileSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const HELLO = Buffer.from('hello, file\n').toString('base64');

// Every execution, one JSON object a line, in a file that outlives us.
export class Log {
  constructor(path) {
    this.path = path;
    appendFileSync(path, '');
  }

  write(what, message, task, context, text) {
    const line = JSON.stringify({
      at: Date.now(), pid: process.pid, what,
      message: message ?? '', task: task ?? '', context: context ?? '', text: text.slice(0, 200),
    });
    appendFileSync(this.path, line + '\n');
  }

  read() {
    return readFileSync(this.path);
  }
}

// What an execution waits at until somebody opens it by its key, or until its
// task is cancelled.
export class Gates {
  #open = new Set();
  #waiting = new Map();

  open(key) {
    this.#open.add(key);
    for (const w of this.#waiting.values()) if (w.key === key) w.resolve(true);
  }

  // wait says whether to go on.
  async wait(key, task) {
    if (this.#open.has(key)) return true;
    const goesOn = await new Promise((resolve) => this.#waiting.set(task, { key, resolve }));
    this.#waiting.delete(task);
    return goesOn;
  }

  // cancel ends the wait of a task, and says whether it waited.
  cancel(task) {
    const w = this.#waiting.get(task);
    w?.resolve(false);
    return w !== undefined;
  }
}

// obey obeys one message. out is one execution as the SDK has it.
export async function obey(text, data, out, gates) {
  text ||= data?.do ?? '';
  const [verb] = text.split(' ', 1);
  const rest = text.slice(verb.length + 1);
  if (verb === 'message') return out.message(rest);
  if (verb === 'crash') throw new Error('asked to crash');
  out.begin();
  if (verb === 'late-crash') {
    out.status('working', 'about to crash');
    throw new Error('asked to crash');
  }
  const act = acts[verb];
  if (!act) return out.status('failed', `no such command: ${verb}`);
  return act(rest, data, out, gates);
}

// described is what "got" says of a file: content is its bytes or its URL.
export function described(name, type, content) {
  const what = typeof content === 'string' ? `url ${content}` : `raw ${content.length}`;
  return `${what} ${name} ${type}`;
}

export async function answer(text, data, out) {
  out.begin();
  out.status('working', 'got it');
  const parts = [{ text: 'answer: ' + text }];
  if (data !== undefined) parts.push({ data });
  out.artifact('out', parts, false, true);
  out.status('completed');
}

async function hold(rest, data, out, gates) {
  out.status('working', 'waiting for ' + rest);
  if (!(await gates.wait(rest, out.task))) return;
  out.artifact('out', [{ text: 'held ' + rest }], false, true);
  out.status('completed');
}

const acts = {
  async echo(rest, data, out) {
    out.status('working');
    out.artifact('out', [{ text: rest }], false, true);
    out.status('completed');
  },
  async slow(rest, data, out) {
    out.status('working');
    for (let quarter = 1; quarter <= 4; quarter++) {
      await sleep(Number(rest) / 4);
      if (quarter < 4) out.status('working', `${quarter}/4`);
    }
    out.artifact('out', [{ text: 'slow ' + rest }], false, true);
    out.status('completed');
  },
  hold,
  'refuse-cancel': hold,
  'mute-cancel': hold,
  async chunks(rest, data, out) {
    out.status('working');
    const count = Number(rest);
    for (let i = 0; i < count; i++) {
      out.artifact('out', [{ text: `${i} ` }], i > 0, i === count - 1);
      await sleep(20);
    }
    out.status('completed');
  },
  async drip(rest, data, out, gates) {
    const [count, key] = rest.split(' ');
    out.status('working');
    for (let i = 0; i < Number(count); i++) out.artifact('out', [{ text: `${i} ` }], i > 0, false);
    if (!(await gates.wait(key, out.task))) return;
    out.artifact('out', [{ text: 'end' }], true, true);
    out.status('completed');
  },
  async ask(rest, data, out) {
    out.status('input-required', rest || 'how many?');
  },
  async auth(rest, data, out, gates) {
    out.status('auth-required', 'sign in elsewhere');
    if (!(await gates.wait(rest, out.task))) return;
    out.status('working');
    out.artifact('out', [{ text: 'signed in' }], false, true);
    out.status('completed');
  },
  async fail(rest, data, out) {
    out.status('working');
    out.status('failed', rest || 'asked to fail');
  },
  async reject(rest, data, out) {
    out.status('rejected', rest || 'asked to reject');
  },
  async data(rest, data, out) {
    out.status('working');
    out.artifact('out', [{ data: data ?? null }], false, true);
    out.status('completed');
  },
  async got(rest, data, out) {
    out.status('working');
    out.artifact('out', [{ text: out.got() }], false, true);
    out.status('completed');
  },
  async file(rest, data, out) {
    out.status('working');
    const part = rest === 'url'
      ? { url: 'https://files.example/a.txt', name: 'a.txt', type: 'text/plain' }
      : { raw: HELLO, name: 'hello.txt', type: 'text/plain' };
    out.artifact('out', [{ text: 'one file' }, part], false, true);
    out.status('completed');
  },
  async stuck(rest, data, out, gates) {
    out.status('working', 'for ever');
    await gates.wait(Symbol('never'), out.task);
  },
  async big(rest, data, out) {
    out.status('working');
    out.artifact('out', [{ text: 'x'.repeat(Number(rest)) }], false, true);
    out.status('completed');
  },
};
