// Package a2a speaks A2A 0.2 and 0.3 over JSON-RPC 2.0, the protocol
// "jsonrpc-2.0" (BR-1 to BR-6, AD-3). A task is one message:
//
//	{"jsonrpc":"2.0","id":TASK,"method":"message/send","params":{"message":
//	  {"role":"user","messageId":"msg-TASK","parts":[{"kind":"text","text":…}]}}}
//
// with contextId in the message if the task continues a conversation. The agent
// answers with a task or a message, or with a JSON-RPC error.
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
//   - A state that is not final is Accepted if the agent named its task, and
//     else an error like every other state but completed.
//   - A JSON-RPC error in a response outside 2xx replaces what the status says.
//     Only 429 and 503 stay what they are, with the error's text beside them:
//     nothing was executed. With a 4xx the error is never retried.
//   - A part without kind whose text is a string is read as text, with a warning.
//   - A text that is longer than one part is joined with line ends; the strings
//     are spliced as they stand, so that escapes and digits pass unchanged.
//
// # Following
//
// Poll and Cancel give Answered only if the agent named a final state (or, for
// Poll, said that it cannot be asked: then that is the end, as it was for the
// old bridge). NotSent and Lost mean that nothing was learnt. Lost with the code
// outcome_unknown means that the agent knows no such task.
package a2a
