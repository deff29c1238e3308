// An Execution Zone on the AgentCore runtime SDK for TypeScript: runtime.mjs PORT.
import { BedrockAgentCoreApp } from 'bedrock-agentcore/runtime';

// Results that get_async_task_result knows, by the id of the task: when it is done.
const tasks = new Map();

const methods = {
  execute_task(params) {
    const [word, ...rest] = params.text.split(' ');
    switch (word) {
      case 'raise': // a careless agent: what it throws holds a secret
        throw new Error('cannot reach the model with key xoxb-secret-of-the-model');
      case 'error':
        return { status: 'error', error_code: 'bedrock_timeout', error_message: 'raw text ' + rest.join(' ') };
      case 'later': {
        const task = 'task-' + (tasks.size + 1);
        tasks.set(task, Date.now() + 1000);
        return { status: 'accepted', task_id: task, poll_after_ms: 200 };
      }
    }
    return { status: 'success', response_text: 'echo: ' + rest.join(' '), bot_token: params.bot_token, model: 'm1' };
  },
  get_async_task_result({ task_id }) {
    const due = tasks.get(task_id);
    if (due === undefined) return { status: 'expired' };
    if (Date.now() < due) return { status: 'running' };
    return { status: 'completed', result: { status: 'success', response_text: 'late' } };
  },
};

new BedrockAgentCoreApp({
  invocationHandler: {
    process: async (request) => {
      const method = methods[request.method];
      if (!method) return { jsonrpc: '2.0', id: request.id, error: { code: -32601, message: 'Method not found' } };
      return { jsonrpc: '2.0', id: request.id, result: method(request.params) };
    },
  },
}).run({ port: Number(process.argv[2]), host: '127.0.0.1' });

// It ends with whoever started it.
process.stdin.on('end', () => process.exit()).resume();
