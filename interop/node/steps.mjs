// Drives a client of somebody else's library as a file of steps says, and
// writes what came of it; internal/steps has the same in Go and says what the
// steps are.
import { readFileSync, writeFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'

export const read = (file) => JSON.parse(readFileSync(file, 'utf8'))
export const write = (file, outcomes) => writeFileSync(file, JSON.stringify(outcomes))

// run takes the steps one after the other. client has call(method, params,
// signal) and notify(method, params); fault(error) makes an error answer of
// what a call threw, or undefined of anything else.
export async function run(client, steps) {
	const outcomes = []
	for (const step of steps) {
		outcomes.push(await one(client, step))
	}
	return outcomes
}

async function one(client, step) {
	try {
		switch (step.op) {
			case 'call':
				return await call(client, step)
			case 'many':
				return await many(client, step)
			case 'notify':
				await client.notify(step.method, step.params)
				return {}
			case 'cancel':
				return await cancel(client, step)
			case 'print':
				process.stdout.write(step.text)
				return {}
		}
		return { failure: `no step ${step.op}` }
	} catch (error) {
		return { failure: String(error) }
	}
}

async function call(client, { method, params }, signal) {
	try {
		return { result: await client.call(method, params, signal) }
	} catch (error) {
		const fault = client.fault(error)
		return fault ? { error: fault } : { failure: String(error) }
	}
}

async function many(client, { method, params, times }) {
	const text = JSON.stringify(params)
	const all = await Promise.all(Array.from({ length: times }, (_, i) =>
		call(client, { method, params: JSON.parse(text.replaceAll('"$n"', i)) })))
	const bad = all.findIndex((o) => o.result === undefined)
	return bad < 0 ? { results: all.map((o) => o.result) } : { failure: `call ${bad}: ${JSON.stringify(all[bad])}` }
}

async function cancel(client, step) {
	const stop = new AbortController()
	const ended = call(client, step, stop.signal)
	await until(client, ({ waiting }) => waiting > 0)
	stop.abort()
	const outcome = await ended
	await until(client, ({ waiting, cancelled }) => waiting === 0 && cancelled > 0)
	return outcome
}

async function until(client, ok) {
	for (let i = 0; i < 500; i++) {
		if (ok(await client.call('waits'))) {
			return
		}
		await pause(10)
	}
	throw new Error('waited for 5 s')
}
