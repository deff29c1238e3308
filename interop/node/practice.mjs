// The methods that every peer program serves, apart from the library that
// serves them; internal/practice has the same in Go and says what each does.

// Fault is an error answer.
export class Fault extends Error {
	constructor(code, message, data) {
		super(message)
		this.code = code
		this.data = data
	}
}

const invalid = (why) => new Fault(-32602, why)

// practice returns an object of handlers (params, {signal, back}).
export function practice() {
	let notes = 0, last = null, waiting = 0, cancelled = 0
	return {
		echo: (params) => params ?? null,
		subtract(params) {
			const { minuend, subtrahend } = Array.isArray(params) ? { minuend: params[0], subtrahend: params[1] } : params ?? {}
			if (!Number.isInteger(minuend) || !Number.isInteger(subtrahend)) {
				throw invalid('minuend and subtrahend are needed')
			}
			return minuend - subtrahend
		},
		fail({ code, message, data }) {
			throw new Fault(code, message, data)
		},
		note(params) {
			notes++
			last = params
			return null
		},
		notes: () => ({ count: notes, last }),
		back: ({ method, params }, { back }) => back(method, params),
		wait: (_, { signal }) => new Promise((_, reject) => {
			waiting++
			signal.addEventListener('abort', () => {
				waiting--
				cancelled++
				reject(new Fault(-32800, 'cancelled'))
			})
		}),
		waits: () => ({ waiting, cancelled }),
		print({ text }) {
			process.stdout.write(text)
			return true
		},
		exit: () => process.exit(3),
	}
}
