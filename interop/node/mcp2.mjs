// An MCP server and client made with @modelcontextprotocol/server and client,
// which speak 2026-07-28 without sessions, and the older protocol too:
//
//	mcp2.mjs server stdio
//	mcp2.mjs server http sse|json ADDR
//	mcp2.mjs client ERA stdio REPORT COMMAND ARGS…
//	mcp2.mjs client ERA http REPORT URL
import { createServer } from 'node:http'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { toNodeHandler } from '@modelcontextprotocol/node'
import { McpServer, acceptedContent, createMcpHandler, inputRequired } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import { z } from 'zod'

import { colour, counter, play, said, save, wait } from './mcpscene.mjs'

const [role, ...rest] = process.argv.slice(2)
const count = counter()

function practice({ era }) {
	const server = new McpServer({ name: 'mcp2', version: '1' })
	const tool = (name, input, run, output) =>
		server.registerTool(name, { inputSchema: z.object(input), outputSchema: output && z.object(output) }, run)
	tool('echo', { text: z.string() }, ({ text }) => said(text))
	tool('add', { a: z.number(), b: z.number() }, ({ a, b }) => ({ ...said(String(a + b)), structuredContent: { sum: a + b } }), { sum: z.number() })
	tool('refuse', {}, () => ({ ...said('refused'), isError: true }))
	tool('count', { to: z.number() }, async ({ to }, { mcpReq }) => {
		const progressToken = mcpReq._meta?.progressToken
		for (let progress = 1; progress <= to && progressToken !== undefined; progress++) {
			await mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress } })
		}
		return said(`counted to ${to}`)
	})
	tool('ask', { question: z.string() }, async ({ question }, { mcpReq }) => {
		if (era === 'legacy') {
			const answer = await mcpReq.elicitInput({ message: question, requestedSchema: colour })
			return said(`${answer.action} ${answer.content?.colour}`)
		}
		const answer = acceptedContent(mcpReq.inputResponses, 'answer')
		return answer ? said(`accept ${answer.colour}`)
			: inputRequired({ inputRequests: { answer: inputRequired.elicit({ message: question, requestedSchema: colour }) } })
	})
	tool('wait', {}, (_, { mcpReq }) => wait(count, mcpReq.signal))
	tool('waits', {}, () => said(count.text()))
	tool('print', { text: z.string() }, ({ text }) => (process.stdout.write(text), said('printed')))
	tool('exit', {}, () => process.exit(3))
	return server
}

async function drive(era, transport, report) {
	const client = new Client({ name: 'mcp2', version: '1' }, {
		capabilities: { elicitation: { form: {} } },
		versionNegotiation: { mode: era === 'modern' ? { pin: '2026-07-28' } : 'legacy' },
	})
	client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { colour: 'red' } }))
	await client.connect(transport)
	const about = { version: client.getNegotiatedProtocolVersion(), server: client.getServerVersion()?.name }
	const tools = { listTools: () => client.listTools(), callTool: (params, options) => client.callTool(params, options) }
	if (era === 'legacy') { // the newer protocol has no ping
		tools.ping = () => client.ping()
	}
	save(report, await play(tools, about))
	await client.close()
}

if (role === 'server' && rest[0] === 'stdio') {
	serveStdio(practice)
	process.stdin.on('close', () => process.exit(0))
} else if (role === 'server') {
	const [host, port] = rest[2].split(':')
	const http = createServer(toNodeHandler(createMcpHandler(practice, { responseMode: rest[1] })))
	http.listen(Number(port), host, () => console.log(`${host}:${http.address().port}`))
} else if (rest[1] === 'stdio') {
	const [era, , report, command, ...args] = rest
	await drive(era, new StdioClientTransport({ command, args, env: { ...process.env } }), report)
} else {
	const [era, , report, url] = rest
	await drive(era, new StreamableHTTPClientTransport(new URL(url)), report)
}
