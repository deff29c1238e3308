// How the test agents are started: agentNN.mjs --listen ADDR --grpc ADDR --log
// FILE [--public URL] [--dual] [--cjs]. The first line on standard output says where
// they are, as JSON. They end when standard input does.

import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import express from 'express';

export function options() {
  const { values } = parseArgs({
    options: {
      listen: { type: 'string', default: '127.0.0.1:0' },
      grpc: { type: 'string', default: '127.0.0.1:0' },
      log: { type: 'string' },
      public: { type: 'string', default: '' },
      dual: { type: 'boolean', default: false },
      cjs: { type: 'boolean', default: false },
    },
  });
  process.stdin.on('end', () => process.exit(0)).resume();
  return values;
}

// listen binds first, since the card has to say where we are; routes gives the
// routes for that address.
export async function listen(address, routes) {
  const app = express();
  const server = createServer(app);
  const [host, port] = address.split(':');
  await new Promise((resolve) => server.listen(Number(port), host, resolve));
  const own = `http://${host}:${server.address().port}`;
  const where = await routes(app, own);
  console.log(JSON.stringify({ url: own, ...where }));
}

// side adds what belongs to the tests and to no protocol.
export function side(app, log, gates) {
  app.get('/log', (_, res) => res.type('application/x-ndjson').send(log.read()));
  app.post('/release', (req, res) => {
    gates.open(req.query.key);
    res.send('ok');
  });
}
