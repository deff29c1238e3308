// Package a2a speaks A2A 0.2, 0.3 and 1.0, the protocol "jsonrpc-2.0" (BR-1 to
// BR-6, AD-3, AD-14): over JSON-RPC by HTTP, stdio or WebSocket, over HTTP+JSON,
// and over gRPC.
//
// An [Adapter] is put together from three things that do not know each other.
// The codec, pure functions, writes params and reads results: exactly its dialect
// on the way out, either dialect's shape on the way in, wherever that is
// unambiguous. A binding carries bytes, knows what became of an exchange, and
// takes answers apart. An [Endpoint] says which dialect and binding an agent
// has: what its record pins, else what was found out about it, else 0.3 over
// JSON-RPC, as the seeds send it:
//
//	{"jsonrpc":"2.0","id":TASK,"method":"message/send","params":{"message":
//	  {"role":"user","messageId":"msg-TASK","parts":[{"kind":"text","text":…}]}}}
//
// with contextId in the message if the task continues a conversation. An agent
// whose dialect is known is asked to answer at once, and followed.
//
// # Where the rules leave a choice
//
//   - error: null beside a result, and result: null beside an error, count as
//     absent (writers of JSON-RPC 1.0 do that). Both present is a defect.
//   - An error with id: null is taken for ours: it came in the exchange of our
//     request, and JSON-RPC 2.0 demands it where the id could not be read. A
//     result must carry our id, as the same string.
//   - jsonrpc, id, result and error, and in a task kind, id, status and the
//     others that decide, may stand once. Opaque values may repeat names.
//   - An object without kind, id, status, parts, taskId and artifact whose member
//     task, message, statusUpdate or artifactUpdate is an object is the wrapper of
//     1.0. Every other object stands for itself.
//   - TASK_STATE_ names are read in both dialects and any case; without the
//     prefix a 0.3 agent is taken by its exact word, as the seeds take it.
//   - A state that is not final is Accepted if the agent named its task, and
//     else an error like every other state but completed.
//   - An agent's error in a response outside 2xx replaces what the status says.
//     Only 429 and 503 stay what they are, with the error's text beside them:
//     nothing was executed; so do 502 and 504 with an error that has no code of
//     A2A, as proxies write them over HTTP+JSON: Lost. With a 4xx the error is
//     never retried.
//   - A part without kind whose text is a string is read as text; in 0.3 with a
//     warning.
//   - A text that is longer than one part is joined with line ends; the strings
//     are spliced as they stand, so that escapes and digits pass unchanged.
//   - A message of 0.3 has its kind only if the dialect is known: BR-1 lists none.
//     With a configuration there goes an empty acceptedOutputModes, which 0.2
//     demands and which excludes nothing.
//
// # Sending never twice
//
// A message is sent in one form, and in another one only after an error that says
// that nothing was executed: -32601 and -32009 (another dialect), -32003 (without
// push), -32004 to a stream request (without a stream). In 1.0 -32603 and -32006
// leave open what became of it: the agent's tasks are looked through at once, and
// the error is the end only if none was made of the message, or the agent lists
// none; Lost if it cannot be asked at present. An answer to a question with such
// an error is Lost in both dialects: its task can be asked for.
//
// # Following
//
// Poll, Cancel and Subscribe give Answered only if the agent named a final state
// (or, for Poll, if an agent of 0.3 has no tasks/get: then that is the end, as it
// was for the old bridge). NotSent and Lost mean that nothing was learnt; Lost
// with the code not_found that the agent knows no such task. An answer to
// anything but a look that says something else than a state, or nothing in time,
// is followed by a look, for which a cancel leaves half of its time. A dialect
// that the agent refuses as well is not kept.
//
// A [bridge.Stream] puts the task together from its events. It ends as Answered
// only if they told all of the output: subscriptions of 0.3 begin in the middle.
package a2a
