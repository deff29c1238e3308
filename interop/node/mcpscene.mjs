// What an MCP client does with the practice tools; the test knows what has to
// come of it. MANY says how many calls it makes at once. cmd/mcppeer has the same
// in Go.
import { writeFileSync } from 'node:fs'

const text = (result) => result.content?.map((c) => c.text).join('')

// attempt turns an error into {code, message}.
async function attempt(f) {
	try {
		return { result: await f() }
	} catch (e) {
		return { code: e.code, message: e.message }
	}
}

// play runs the scene. client has callTool(params, options), listTools() and
// maybe ping(); about tells the version and the server's name.
export async function play(client, about) {
	const call = (name, args, options) => client.callTool({ name, arguments: args }, options)
	const report = { ...about }
	report.tools = (await client.listTools()).tools.map((t) => t.name).sort()
	report.echo = text(await call('echo', { text: 'a"\\/\b\f\n\r\t\u0000\u2028é😀' }))
	report.sum = (await call('add', { a: 2, b: 40 })).structuredContent?.sum
	const refused = await call('refuse', {})
	report.refused = refused.isError === true && text(refused)
	report.unknown = await attempt(() => call('no such tool', {}))
	const many = await Promise.all(Array.from({ length: Number(process.env.MANY) }, (_, i) => call('add', { a: i, b: 1 })))
	report.many = many.filter((r, i) => r.structuredContent?.sum === i + 1).length
	const big = 'é'.repeat(450_000)
	report.big = text(await call('echo', { text: big })) === big ? big.length * 2 : 0
	report.progress = []
	report.counted = text(await call('count', { to: 3 }, { onprogress: (p) => report.progress.push(p.progress) }))
	report.asked = text(await call('ask', { question: 'colour' }))
	if (client.ping) {
		report.ping = (await attempt(() => client.ping())).result !== undefined
	}
	report.cancelled = await cancelled(call)
	return report
}

// cancelled ends a call that the server is known to run, and waits until the
// server says that it heard of it.
async function cancelled(call) {
	const stop = new AbortController()
	const ended = attempt(() => call('wait', {}, { signal: stop.signal }))
	const seen = async (want) => {
		for (let i = 0; i < 500; i++) {
			if (text(await call('waits', {})) === want) {
				return true
			}
			await new Promise((resolve) => setTimeout(resolve, 10))
		}
		return false
	}
	const ran = await seen('waiting 1, cancelled 0')
	stop.abort('enough')
	const failed = (await ended).result === undefined
	return ran && failed && await seen('waiting 0, cancelled 1')
}

export const save = (file, report) => writeFileSync(file, JSON.stringify(report))

// waits counts what the wait tool of a server does.
export const counter = () => ({ waiting: 0, cancelled: 0, text() { return `waiting ${this.waiting}, cancelled ${this.cancelled}` } })

// wait is the wait tool: it ends with its request.
export const wait = (count, signal) => new Promise((_, reject) => {
	count.waiting++
	signal.addEventListener('abort', () => {
		count.waiting--
		count.cancelled++
		reject(new Error('cancelled'))
	})
})

export const said = (words) => ({ content: [{ type: 'text', text: words }] })

export const colour = { type: 'object', properties: { colour: { type: 'string' } }, required: ['colour'] }
