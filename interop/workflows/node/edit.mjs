// Drives yaml-language-server as an editor does. Its argument is the schema's file;
// it reads documents as JSON from standard input and writes what the server says:
// findings, and completions and explanations at the places that are asked for.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";

const program = new URL("./node_modules/yaml-language-server/bin/yaml-language-server", import.meta.url).pathname;
const server = spawn(process.execPath, [program, "--stdio"], { stdio: ["pipe", "pipe", "inherit"] });
const answers = new Map();
const findings = new Map();
let waiting = null;
let received = Buffer.alloc(0);
let lastID = 0;

server.stdout.on("data", (data) => {
  received = Buffer.concat([received, data]);
  for (;;) {
    const end = received.indexOf("\r\n\r\n");
    if (end < 0) return;
    const length = Number(/Content-Length: (\d+)/i.exec(received.subarray(0, end))[1]);
    if (received.length < end + 4 + length) return;
    take(JSON.parse(received.subarray(end + 4, end + 4 + length)));
    received = received.subarray(end + 4 + length);
  }
});

function send(message) {
  const body = JSON.stringify({ jsonrpc: "2.0", ...message });
  server.stdin.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
}

function call(method, params) {
  return new Promise((resolve, reject) => {
    const id = ++lastID;
    answers.set(id, { resolve, reject });
    send({ id, method, params });
  });
}

function take(m) {
  if (m.method && m.id !== undefined) {
    send({ id: m.id, result: m.method === "workspace/configuration" ? m.params.items.map(() => ({})) : null });
  } else if (m.method === "textDocument/publishDiagnostics") {
    findings.set(m.params.uri, m.params.diagnostics);
    if (waiting?.uri === m.params.uri) waiting.resolve();
  } else if (!m.method) {
    const { resolve, reject } = answers.get(m.id);
    answers.delete(m.id);
    if (m.error) reject(new Error(m.error.message));
    else resolve(m.result);
  }
}

await call("initialize", {
  processId: process.pid, rootUri: null, workspaceFolders: null,
  capabilities: { textDocument: { completion: { completionItem: { snippetSupport: false } }, hover: { contentFormat: ["markdown"] }, publishDiagnostics: {} } },
});
send({ method: "initialized", params: {} });
send({ method: "workspace/didChangeConfiguration", params: { settings: { yaml: { validate: true, hover: true, completion: true, schemaStore: { enable: false } } } } });

const out = [];
for (const [i, d] of JSON.parse(readFileSync(0, "utf8")).entries()) {
  const uri = `file:///documents/${i}.yaml`;
  const text = `# yaml-language-server: $schema=${process.argv[2]}\n${d.text}`;
  await new Promise((resolve) => {
    waiting = { uri, resolve };
    send({ method: "textDocument/didOpen", params: { textDocument: { uri, languageId: "yaml", version: 1, text } } });
  });
  const said = { findings: findings.get(uri).map((f) => f.message) };
  const position = { line: d.line, character: d.col };
  if (d.ask === "completion") {
    const list = await call("textDocument/completion", { textDocument: { uri }, position });
    said.completions = list.items.map((x) => x.label);
  } else if (d.ask === "hover") {
    said.hover = (await call("textDocument/hover", { textDocument: { uri }, position }))?.contents.value ?? "";
  }
  out.push(said);
}
process.stdout.write(JSON.stringify(out));
server.kill();
