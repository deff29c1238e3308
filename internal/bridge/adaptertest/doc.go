// Package adaptertest is the contract suite for adapters over HTTP: dialogues
// with a scripted agent, one txtar file each, named by the rule that they prove.
//
// A file begins with a sentence about itself. Its sections, all optional but the
// last:
//
//	task.json     id, input, correlation_id, context_id, traceparent, tracestate of
//	              the task
//	agent.json    url, timeout, auth, header, credential, config, detected of the
//	              agent
//	operation     call (default), poll ID, cancel ID, subscribe ID, answer ID, find;
//	              a stream that comes of it is listened to
//	at.json       id, context_id, endpoint, version of the agent's task, instead of ID
//	reply.json    number, text, data of an answer
//	request       what the agent must get, byte for byte
//	response      what it answers: status line, headers, empty line, body;
//	              Content-Length is added unless the fault or a header says otherwise
//	fault         how the answer goes wrong, see the constants Fault…
//	request.2, response.2, fault.2 and so on are the further exchanges
//	outcome.json  what must come of it: disposition, result, progress, log events,
//	              observations, and the same of the stream
//
// A response of text/event-stream is sent in chunks. Lines of its body that begin
// with "~ " are no part of it: "~ pause 20s" waits, "~ cut" closes the connection,
// "~ reset" resets it, "~ hang" says nothing more.
//
// Besides what the sections say each dialogue proves that the agent got no more
// requests than there are responses, that every log line names task, agent,
// correlation id and trace if there is one, that no credential is in the outcome or in the log, that the
// call took a bounded amount of memory, and that nothing goes on when it is over
// (it is played in a bubble of package synctest, over connections in memory).
//
// [Run] plays the dialogues as they stand, over HTTP. [RunLines] plays them over
// connections of one JSON-RPC message a line, and [RunBinding] over another
// binding of A2A 1.0: requests and answers are translated, and the same must come
// of them. A dialogue that has no counterpart there is left out by a rule, which
// says why ([UnsayableError]).
package adaptertest
