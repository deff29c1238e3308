// Package adaptertest is the contract suite for adapters over HTTP: dialogues
// with a scripted agent, one txtar file each, named by the rule that they prove.
//
// A file begins with a sentence about itself. Its sections, all optional but the
// last:
//
//	task.json     id, input, correlation_id, context_id of the task
//	agent.json    url, timeout, auth, header, credential, config of the agent
//	operation     call (default), poll ID or cancel ID
//	request       what the agent must get, byte for byte
//	response      what it answers: status line, headers, empty line, body;
//	              Content-Length is added unless the fault or a header says otherwise
//	fault         how the answer goes wrong, see the constants Fault…
//	outcome.json  what must come of it: disposition, result, progress, log events,
//	              observations
//
// Besides what the sections say each dialogue proves that the agent got at most
// one request, that every log line names task, agent and correlation id, that no
// credential is in the outcome or in the log, and that the call took a bounded
// amount of memory.
package adaptertest
