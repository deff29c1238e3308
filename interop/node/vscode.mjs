// A server and a client made with vscode-jsonrpc, which frames with headers:
//
//	vscode.mjs serve headers NETWORK ADDR
//	vscode.mjs drive headers NETWORK ADDR STEPS REPORT
//	vscode.mjs exchange headers NETWORK ADDR STEPS REPORT
import { connect, createServer } from 'node:net'
import { once } from 'node:events'
import rpc from 'vscode-jsonrpc/node'

import { Fault, practice } from './practice.mjs'
import { read, run, write } from './steps.mjs'

const [role, , network, addr, steps, report] = process.argv.slice(2)

// where makes listen's and connect's argument of an address.
function where() {
	if (network === 'unix') {
		return { path: addr }
	}
	const colon = addr.lastIndexOf(':')
	return { host: addr.slice(0, colon), port: Number(addr.slice(colon + 1)) }
}

const framed = (input, output) => [new rpc.StreamMessageReader(input), new rpc.StreamMessageWriter(output)]

async function dial() {
	if (network === 'stdio') {
		return framed(process.stdin, process.stdout)
	}
	const socket = connect(where())
	await once(socket, 'connect')
	return framed(socket, socket)
}

const fault = (e) => e instanceof rpc.ResponseError ? { code: e.code, message: e.message, data: e.data } : undefined

// start serves and calls over one connection: the library knows no difference.
function start([reader, writer]) {
	const connection = rpc.createMessageConnection(reader, writer, { error() {}, warn() {}, info() {}, log() {} })
	const { echo, ...methods } = practice()
	const call = (method, params, signal) => send(connection, method, params, signal)
	const handle = async (method, params, token) => {
		const stop = new AbortController()
		token?.onCancellationRequested(() => stop.abort())
		try {
			return await method(params, { signal: stop.signal, back: call })
		} catch (e) {
			throw e instanceof Fault ? new rpc.ResponseError(e.code, e.message, e.data) : e
		}
	}
	for (const [name, method] of Object.entries(methods)) {
		// The handler of a name gets positional params one by one, and its token last.
		connection.onRequest(name, (...args) => {
			const token = args.pop()
			return handle(method, args.length > 1 ? args : args[0], token)
		})
	}
	// Only the handler of all names sees params as they came.
	connection.onRequest((name, params) => {
		if (name !== 'echo') {
			throw new rpc.ResponseError(rpc.ErrorCodes.MethodNotFound, `Unhandled method ${name}`)
		}
		return echo(params)
	})
	connection.onNotification((name, params) => methods[name]?.(params, {}))
	connection.onError(() => {})
	connection.listen()
	return { call, connection, fault, notify: (method, params) => connection.sendNotification(method, ...placed(params)) }
}

// placed gives params the way the library wants them: an array would be taken
// for the first of one.
function placed(params) {
	if (params === undefined) {
		return []
	}
	return Array.isArray(params) ? [rpc.ParameterStructures.byPosition, ...params] : [params]
}

function send(connection, method, params, signal) {
	const source = new rpc.CancellationTokenSource()
	signal?.addEventListener('abort', () => source.cancel())
	return connection.sendRequest(method, ...placed(params), source.token)
}

// exchange sends and takes messages below the connection, so that ids are free
// to choose.
async function exchange([reader, writer], steps) {
	const came = [], waiting = []
	reader.listen((message) => waiting.length ? waiting.shift()(message) : came.push(message))
	const next = () => came.length ? came.shift() : new Promise((resolve) => waiting.push(resolve))
	const outcomes = []
	for (const step of steps) {
		await writer.write(JSON.parse(step.text))
		const texts = []
		for (let i = 0; i < step.answers; i++) {
			texts.push(JSON.stringify(await next()))
		}
		outcomes.push({ texts })
	}
	writer.end()
	return outcomes
}

async function main() {
	switch (role) {
		case 'serve': {
			if (network === 'stdio') {
				start(framed(process.stdin, process.stdout)).connection.onClose(() => process.exit(0))
				return
			}
			const server = createServer((socket) => start(framed(socket, socket)))
			server.listen(where(), () => {
				const at = server.address()
				console.log(network === 'unix' ? at : `${at.address}:${at.port}`)
			})
			return
		}
		case 'drive': {
			const client = start(await dial())
			write(report, await run(client, read(steps)))
			client.connection.end()
			process.exit(0)
		}
		case 'exchange':
			write(report, await exchange(await dial(), read(steps)))
			process.exit(0)
	}
}

await main()
