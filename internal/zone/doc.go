// Package zone has the contract of a zone connection (ZN-1…ZN-7): what a
// Verification Zone, which talks with people, sends to an Execution Zone, which
// does the work, and what comes back. It is JSON-RPC 2.0 and nothing else, one
// request and one response, whatever carries them: a [Transport] takes the bytes
// of a request and gives the bytes of the response.
//
// Packages below it are the two zones and the transports; they know this package
// and not each other.
//
// # Where the documents are silent
//
//   - A request id is a string, an integer or null (ZN-3), and comes back to the byte. An id that is absent
//     would make a notification, which this route does not have: -32600.
//   - Responses with the codes -32700 and -32600 have the id null, also where the
//     request had a good one (ZN-4). A [Client] takes its own id there, too: some
//     libraries answer with it.
//   - The envelope may have further members, which are ignored; so may params.
//     Members that are there twice, at any depth, and members that differ from a
//     known one in nothing but case are refused.
//   - Params that are absent or null lack all that is required: -32602.
//   - An empty text, or one of nothing but spaces, is missing (-32602).
//   - Strings hold whatever JSON allows, U+0000 and line breaks included; a byte
//     order mark, invalid UTF-8 and lone surrogates make a parse error.
//   - Values nested deeper than [MaxDepth], and bodies beyond the limit of the zone,
//     are -32600 with the id null: they are not read. A correlation_id is at most
//     [MaxCorrelationID] bytes long.
//   - The id of a request that is a UUID is the id of its task, in upper or lower
//     case: a repetition is the same task. If its params say something else it is
//     -32602 with the reason id_reused, and not -32600, whose id would be null. Links
//     to attachments and correlation ids may differ, since they are made anew.
//   - A caller that is not authorized gets HTTP 401 and an error with the id null,
//     since its request is not read. Every other response is HTTP 200.
//   - A task that failed, was cancelled or took too long is an error of execute_task,
//     and the status failed of get_async_task_result. What was there and is no longer
//     kept is expired; what nobody knows is an error with the reason unknown_task.
//   - A result with the status error, which is how the original zone fails, is an
//     error for a [Client], with a reason for each error_code that is known.
package zone

import "github.com/parley-project/parley/jsonrpc"

// The methods of the contract. The first is that of the documents (ZN-2); the
// second fetches what was accepted and not finished (ZN-5); the third gives the
// agent card of the zone.
const (
	MethodExecuteTask  = "execute_task"
	MethodGetResult    = "get_async_task_result"
	MethodGetAgentCard = "get_agent_card"
)

// Codes of errors besides those of JSON-RPC itself (ZN-4).
const (
	// CodeServer is a failure that the reason tells apart, such as overloaded.
	CodeServer jsonrpc.Code = -32000
	// CodeTimeout says that the work took longer than it may.
	CodeTimeout jsonrpc.Code = -32001
)

// MaxPayload is the largest request or response, in bytes, that any transport
// carries: the service model of Bedrock AgentCore has 100 000 000, decimal.
const MaxPayload = 100_000_000

// MaxDepth is how deep the values of a message may be nested.
const MaxDepth = 64
