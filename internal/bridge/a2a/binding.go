package a2a

import (
	"context"
	"encoding/json"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// binding carries operations to agents over one kind of transport. All methods
// may be called concurrently. It never sends an operation twice.
type binding interface {
	// encode gives the bytes that carry sends for op: a JSON-RPC request, or
	// just the params.
	encode(op operation) ([]byte, error)

	// carry makes one exchange. Its error is a [*bridge.ExchangeError], which
	// says what became of the exchange, or a [*parley.Error] if nothing could
	// be sent. A reply may come beside an ExchangeError that has a status: its
	// body may hold the agent's own error.
	carry(ctx context.Context, op operation, body []byte) (bridge.Reply, error)

	// open takes an answer apart, also that of a status outside 2xx: the JSON
	// of the result in the dialect's form, or the agent's failure. Its error is
	// a [*bridge.DefectError]. What it gives may alias body.
	open(op operation, body []byte) (result []byte, f *failure, err error)

	// stream is carry for verbStream and verbSubscribe. ctx bounds the opening
	// alone: a stream that is open goes on until it is closed. Without an error
	// exactly one of events and reply is of use: an agent may answer with one
	// ordinary response, which the Content-Type of the answer says and not the
	// request. Whoever gets events closes it.
	stream(ctx context.Context, op operation, body []byte) (events eventSource, reply bridge.Reply, err error)
}

// eventSource gives the events of one stream.
type eventSource interface {
	// next gives the bytes of the next event, which open understands, and which
	// are the caller's. io.EOF is the agent's end; any other error is a
	// [*bridge.ExchangeError].
	next(ctx context.Context) ([]byte, error)

	// close ends the stream. It may be called at any time, from any goroutine,
	// and again.
	close()
}

// operation is one request to an agent.
type operation struct {
	verb verb
	to   Endpoint
	// task gives the ids that travel with the request, agent the credential,
	// the timeout and the limits.
	task  parley.Task
	agent parley.Agent
	// id is the JSON-RPC id: the task's id for sends, and for everything else
	// that with a suffix. It is unique among the requests in flight.
	id string
	// method replaces the dialect's name of the send method, if it is not empty
	// (AD-3).
	method string
	// params is a JSON object in the dialect's form.
	params []byte
}

// failure is an error that the agent answered, over any binding.
type failure struct {
	// code is the JSON-RPC or A2A code. Errors of HTTP+JSON and gRPC have the
	// code of their google.rpc.ErrorInfo reason, or else of their status.
	code    int64
	hasCode bool
	// named says that the code is that of such a reason: it says more than the
	// status does.
	named bool
	// odd is the code as it stands, if there is one that is no whole number.
	odd     json.RawMessage
	message string
	// data is what the agent gave beside it, or nil.
	data json.RawMessage
	// status is the HTTP status, or 0 if it was 2xx or there was none.
	status int
	// retryAfter is the agent's wish, or 0.
	retryAfter time.Duration
}
