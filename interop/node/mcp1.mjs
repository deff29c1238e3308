// An MCP server and client made with @modelcontextprotocol/sdk, which speaks
// the protocol up to 2025-11-25:
//
//	mcp1.mjs server stdio
//	mcp1.mjs server http sse|json ADDR
//	mcp1.mjs client stdio REPORT COMMAND ARGS…
//	mcp1.mjs client http REPORT URL
import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { z } from 'zod'

import { colour, counter, play, said, save, wait } from './mcpscene.mjs'

const [role, network, ...rest] = process.argv.slice(2)

// practice makes a server. Where POSTs are answered with JSON, what the server
// asks cannot be part of the answer: it goes the way back that GET opens.
function practice(json) {
	const server = new McpServer({ name: 'mcp1', version: '1' })
	const count = counter()
	const tool = (name, inputSchema, run, outputSchema) => server.registerTool(name, { inputSchema, outputSchema }, run)
	tool('echo', { text: z.string() }, ({ text }) => said(text))
	tool('add', { a: z.number(), b: z.number() }, ({ a, b }) => ({ ...said(String(a + b)), structuredContent: { sum: a + b } }), { sum: z.number() })
	tool('refuse', {}, () => ({ ...said('refused'), isError: true }))
	tool('count', { to: z.number() }, async ({ to }, { _meta, sendNotification }) => {
		for (let progress = 1; progress <= to && _meta?.progressToken !== undefined; progress++) {
			await sendNotification({ method: 'notifications/progress', params: { progressToken: _meta.progressToken, progress } })
		}
		return said(`counted to ${to}`)
	})
	tool('ask', { question: z.string() }, async ({ question }, { requestId }) => {
		const answer = await server.server.elicitInput({ message: question, requestedSchema: colour }, json ? {} : { relatedRequestId: requestId })
		return said(`${answer.action} ${answer.content?.colour}`)
	})
	tool('wait', {}, (_, { signal }) => wait(count, signal))
	tool('waits', {}, () => said(count.text()))
	tool('print', { text: z.string() }, ({ text }) => (process.stdout.write(text), said('printed')))
	tool('exit', {}, () => process.exit(3))
	return server
}

async function serveHTTP(mode, addr) {
	const sessions = new Map()
	const [host, port] = addr.split(':')
	const http = createServer(async (req, res) => {
		let transport = sessions.get(req.headers['mcp-session-id'])
		if (!transport) {
			transport = new StreamableHTTPServerTransport({
				sessionIdGenerator: randomUUID,
				enableJsonResponse: mode === 'json',
				onsessioninitialized: (id) => sessions.set(id, transport),
				onsessionclosed: (id) => sessions.delete(id),
			})
			await practice(mode === 'json').connect(transport)
		}
		await transport.handleRequest(req, res)
	})
	http.listen(Number(port), host, () => console.log(`${host}:${http.address().port}`))
}

async function drive(report, transport) {
	const client = new Client({ name: 'mcp1', version: '1' }, { capabilities: { elicitation: {} } })
	client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { colour: 'red' } }))
	await client.connect(transport)
	const about = { version: transport.protocolVersion ?? 'unknown', server: client.getServerVersion()?.name }
	const tools = {
		listTools: () => client.listTools(),
		callTool: (params, options) => client.callTool(params, undefined, options),
		ping: () => client.ping(),
	}
	save(report, await play(tools, about))
	await transport.terminateSession?.()
	await client.close()
}

switch (`${role} ${network}`) {
	case 'server stdio':
		await practice().connect(new StdioServerTransport())
		process.stdin.on('close', () => process.exit(0))
		break
	case 'server http':
		await serveHTTP(...rest)
		break
	case 'client stdio':
		await drive(rest[0], new StdioClientTransport({ command: rest[1], args: rest.slice(2), env: { ...process.env } }))
		break
	case 'client http':
		await drive(rest[0], new StreamableHTTPClientTransport(new URL(rest[1])))
}
