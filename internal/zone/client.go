package zone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/parley-project/parley"
)

// Limits of a [Client] that ClientConfig does not set: the size of a response, and
// that of the file in it, in bytes.
const (
	DefaultMaxResponse = 10 << 20
	DefaultMaxFile     = 10 << 20
)

// ClientConfig is what a Client is made of.
type ClientConfig struct {
	Transport Transport
	Profile   Profile
	// NewID makes the ids of requests that are no task: UUIDs.
	NewID func() string
	// MaxResponse is how large a response may be, in bytes; 0 is DefaultMaxResponse,
	// more than MaxPayload counts as that.
	MaxResponse int
	// MaxFile is how large the file in a result may be, in bytes; 0 is
	// DefaultMaxFile. A larger one is left out of the result.
	MaxFile int
}

// A Client asks the other zone. Each of its methods is one exchange: none waits,
// polls or repeats. Errors are an *[Error] that the other zone has sent, or a
// *[TransportError] for everything else, so also for what is no valid response.
// Any number of goroutines may use it at the same time.
type Client struct {
	cfg   ClientConfig
	codec *Codec
}

// A Call is one task for the other zone.
type Call struct {
	// ID is a UUID that the caller has made for this task. With the same one a zone
	// of ours never does the work twice, and gives the same answer again.
	ID   string
	Task Task
	Meta Meta
}

// NewClient returns a Client.
func NewClient(cfg ClientConfig) *Client {
	if cfg.MaxResponse <= 0 {
		cfg.MaxResponse = DefaultMaxResponse
	}
	cfg.MaxResponse = min(cfg.MaxResponse, MaxPayload)
	if cfg.MaxFile <= 0 {
		cfg.MaxFile = DefaultMaxFile
	}
	return &Client{cfg: cfg, codec: NewCodec(cfg.Profile)}
}

// Ask sends a task (ZN-2). The Result has StatusSuccess or StatusAccepted.
func (c *Client) Ask(ctx context.Context, call Call) (Result, Info, error) {
	body, err := c.codec.EncodeRequest(call.ID, call.Task)
	if err != nil {
		return Result{}, Info{}, &TransportError{Class: ClassNotSent, Err: fmt.Errorf("the request cannot be encoded: %w", err)}
	}
	if call.Meta.IdempotencyKey == "" {
		call.Meta.IdempotencyKey = call.ID
	}
	if call.Meta.CorrelationID == "" {
		call.Meta.CorrelationID = call.Task.CorrelationID
	}
	call.Meta.Task = call.ID
	raw, info, err := c.exchange(ctx, exchange{id: call.ID, body: body, meta: call.Meta, token: call.Task.BotToken})
	if err != nil {
		return Result{}, info, err
	}
	res, err := c.codec.readResult(raw, c.cfg.MaxFile)
	return res, info, inExchange(err, info)
}

// Fetch asks what became of a task that was accepted, or of a request whose
// response was lost (ZN-5): the id of a task is that of its request.
func (c *Client) Fetch(ctx context.Context, q Query, meta Meta) (AsyncResult, Info, error) {
	id := c.cfg.NewID()
	body, err := c.codec.EncodeQuery(id, q)
	if err != nil {
		return AsyncResult{}, Info{}, &TransportError{Class: ClassNotSent, Err: fmt.Errorf("the request cannot be encoded: %w", err)}
	}
	if meta.CorrelationID == "" {
		meta.CorrelationID = q.CorrelationID
	}
	meta.Task, meta.IdempotencyKey = q.TaskID, id
	raw, info, err := c.exchange(ctx, exchange{id: id, body: body, meta: meta})
	if err != nil {
		return AsyncResult{}, info, err
	}
	res, err := c.codec.readAsync(raw, c.cfg.MaxFile)
	return res, info, inExchange(err, info)
}

// Card asks for the agent card of the other zone.
func (c *Client) Card(ctx context.Context, meta Meta) (json.RawMessage, Info, error) {
	id := c.cfg.NewID()
	body, err := c.codec.encodeCall(id, MethodGetAgentCard, nil)
	if err != nil {
		return nil, Info{}, &TransportError{Class: ClassNotSent, Err: fmt.Errorf("the request cannot be encoded: %w", err)}
	}
	raw, info, err := c.exchange(ctx, exchange{id: id, body: body, meta: meta})
	if err == nil && raw[0] != '{' {
		err = inExchange(badResponse("the agent card is no object"), info)
	}
	if err != nil {
		return nil, info, err
	}
	return raw, info, nil
}

// Release gives up what the transport holds for the task that Info.Affinity was
// told of. It does nothing if the transport holds nothing.
func (c *Client) Release(ctx context.Context, affinity string) error {
	if r, ok := c.cfg.Transport.(Releaser); ok && affinity != "" {
		return r.Release(ctx, affinity)
	}
	return nil
}

// exchange is one request and what has to be known to read its response.
type exchange struct {
	id    string
	body  []byte
	meta  Meta
	token parley.Secret
}

func (c *Client) exchange(ctx context.Context, x exchange) (json.RawMessage, Info, error) {
	if len(x.body) > MaxPayload {
		return nil, Info{}, &TransportError{Class: ClassTooLarge, Err: fmt.Errorf("the request has %d bytes, the limit is %d", len(x.body), MaxPayload)}
	}
	body, info, err := c.cfg.Transport.Call(ctx, x.body, x.meta)
	if err != nil {
		if t, ok := errors.AsType[*TransportError](err); ok {
			return nil, t.Info, t
		}
		return nil, info, &TransportError{Class: ClassUnknownOutcome, Info: info, Err: err}
	}
	if len(body) > c.cfg.MaxResponse {
		err := fmt.Errorf("the response has %d bytes, the limit is %d", len(body), c.cfg.MaxResponse)
		return nil, info, &TransportError{Class: ClassTooLarge, Info: info, Err: err}
	}
	raw, err := c.codec.readResponse(withoutToken(body, x.token), x.id)
	if t, ok := errors.AsType[*TransportError](err); ok && t.Class == ClassBadResponse && info.Status >= 500 {
		t.Class = ClassUnknownOutcome // somebody failed while the request was there
	}
	return raw, info, inExchange(err, info)
}

// inExchange puts what is known of an exchange into an error of reading it.
func inExchange(err error, info Info) error {
	if t, ok := errors.AsType[*TransportError](err); ok {
		t.Info = info
	}
	return err
}
