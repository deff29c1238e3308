package main

import (
	"slices"

	"github.com/parley-project/parley"
)

// requestErrors are those that requests are refused with.
func requestErrors() []errorEntry {
	return slices.Concat(refusalErrors(), serverErrors())
}

// refusalErrors are those about what was asked for.
func refusalErrors() []errorEntry {
	return []errorEntry{
		{
			Code: string(parley.CodeInvalid), In: []string{metRequest, metCommand}, Retry: retryNo,
			Meaning: "Something in the request or in a file is wrong; errors lists every fault with its path and a code of its own.",
			Causes:  []string{"a member that is missing, misspelt or of another type", "a file that is no JSON or YAML"},
			Next:    []string{"correct what the lines below the error name", "of a workflow: parley workflow validate FILE"},
		},
		{
			Code: string(parley.CodeForbidden), In: []string{metRequest}, Retry: retryNo,
			Meaning: "You may not do this: whoever answers is not among those whom the approval's to names, the key is a viewer's, or the Host header is a foreign one (421).",
			Causes:  []string{"another person or role has to decide", "a key of the role viewer", "a server that is addressed by a name that it does not know"},
			Next:    []string{"who may: parley approval list -o wide", "answer with --as and --role: parley run answer --help", "a key of the role admin: parley key create --help"},
		},
		{
			Code: string(parley.CodeNotFound), In: []string{metRequest, metCommand}, Retry: retryNo,
			Meaning: "There is no such run, workflow, agent or other thing.",
			Causes:  []string{"a misspelt name or id", "another server than the one that was meant", "a run that retention has removed"},
			Next:    []string{"look at the names: parley run list, parley workflow list, parley agent list", "look at the server: --url, --context, PARLEY_URL"},
		},
		{
			Code: string(parley.CodeConflict), In: []string{metRequest, metCommand}, Retry: retryNo,
			Meaning: "The state of things does not allow it. On the paths of the existing platform the status is 400, but for conflicts about versions.",
			Causes:  []string{"a name that is taken", "a run that has ended", "a version with other content, one that is deprecated, or one that an alias stands for"},
			Next:    []string{"look at how things stand: parley run show RUN, parley workflow versions NAME", "then do what fits that state"},
		},
		{
			Code: string(parley.CodeIdempotencyConflict), In: []string{metRequest}, Retry: retryNo,
			Meaning: "The same idempotency key was used for another request: a start with other input, a retry or rerun of something else, a webhook with another body.",
			Causes:  []string{"a key that is not made anew for each thing to do", "an input that holds the time"},
			Next:    []string{"repeat with the same input, or take another --idempotency-key"},
		},
		{
			Code: string(parley.CodeUnsupportedProtocol), In: []string{metRequest, metDocument}, Retry: retryNo,
			Meaning: "No adapter speaks that protocol; the text lists those that do.",
			Causes:  []string{"a misspelt protocol"},
			Next:    []string{"take simple-a2a or jsonrpc-2.0, or let it be found out: parley agent add URL"},
		},
		{
			Code: string(parley.CodeUnauthorized), In: []string{metRequest, metCommand}, Retry: retryNo,
			Meaning: "A key is needed, or the one that was given is wrong.",
			Causes:  []string{"no key, or the key of another server", "a key file that cannot be read"},
			Next:    []string{"give the server's key with --key, --context or PARLEY_KEY", "a local server keeps it in its data folder, in the file key"},
		},
	}
}

// serverErrors are those about the server, and about how HTTP was used.
func serverErrors() []errorEntry {
	return []errorEntry{
		{
			Code: string(parley.CodeUnavailable), In: []string{metRequest}, Retry: retryYes,
			Meaning: "Something that is needed does not answer now.",
			Causes:  []string{"the database or the bus is away", "a process that starts or stops", "a request that took too long"},
			Next:    []string{"try again after the pause that Retry-After says", "is the server ready: parley api GET /readyz"},
		},
		{
			Code: string(parley.CodeInternal), In: []string{metRun, metRequest, metCommand}, Retry: retryPerhaps,
			Meaning: "A fault of Parley. The log has the details under the request's id.",
			Causes:  []string{"a bug, or a failure of what Parley stands on"},
			Next:    []string{"look for the request id in the server's log", "report it with that id and the output of parley version"},
		},
		{
			Code: "method_not_allowed", In: []string{metRequest}, Retry: retryNo,
			Meaning: "The path is there, and does not take this method; the header Allow lists those that it takes.",
			Causes:  []string{"GET in place of POST, or the other way round"},
			Next:    []string{"what a path takes: parley api GET /openapi.json"},
		},
		{
			Code: "unsupported_media_type", In: []string{metRequest}, Retry: retryNo,
			Meaning: "The body's Content-Type is not one that the path reads, or the body is compressed.",
			Causes:  []string{"a header Content-Type that is missing or of another kind"},
			Next:    []string{"send JSON as application/json; the text names what else is read", "parley api METHOD PATH --header Content-Type=…"},
		},
		{
			Code: "not_implemented", In: []string{metRequest}, Retry: retryNo,
			Meaning: "The path is one of the existing platform that has nothing behind it, as there.",
			Causes:  []string{"GET /runs/{id}/logs"},
			Next:    []string{"what happened in a run: parley run events RUN"},
		},
	}
}
