package zone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/parley-project/parley/jsonrpc"
)

// WrapConfig is what a wrapping is made of.
type WrapConfig struct {
	Dialect Dialect
	// NewID makes ids of messages: UUIDs.
	NewID func() string
}

// Wrapped returns a Transport for platforms that carry nothing but A2A: it puts each
// request into the one part of a message, sends that by inner, and takes the
// response out of the message or of the task that comes back. Neither zone knows of
// it. It is a Releaser whose Release is that of inner, if inner has one.
func Wrapped(inner Transport, cfg WrapConfig) Transport {
	return &wrapped{inner: inner, cfg: cfg, codec: NewCodec(ProfileRelaxed)}
}

type wrapped struct {
	inner Transport
	cfg   WrapConfig
	codec *Codec
}

// Call implements Transport.
func (t *wrapped) Call(ctx context.Context, body []byte, meta Meta) ([]byte, Info, error) {
	id := t.messageID(body)
	response, info, err := t.inner.Call(ctx, t.wrap(body, id), meta)
	if err != nil {
		return nil, info, err
	}
	inner, err := t.open(response, id)
	if err != nil {
		return nil, info, inExchange(err, info)
	}
	return inner, info, nil
}

// Release implements Releaser.
func (t *wrapped) Release(ctx context.Context, affinity string) error {
	if r, ok := t.inner.(Releaser); ok {
		return r.Release(ctx, affinity)
	}
	return nil
}

// messageID gives the id of the message for a request: the request's own, so that a
// repetition is one for A2A as well.
func (t *wrapped) messageID(body []byte) string {
	var w struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(body, &w) == nil && w.ID != "" && len(w.ID) <= 128 {
		return w.ID
	}
	return t.cfg.NewID()
}

func (t *wrapped) wrap(body []byte, id string) []byte {
	m := t.cfg.Dialect.message(t.codec, body, "user")
	m.MessageID = id
	switch t.cfg.Dialect {
	case Dialect{Version03, BindingREST}:
		return Document(map[string]any{"request": m})
	case Dialect{Version10, BindingREST}:
		return Document(map[string]any{"message": m})
	}
	params := map[string]any{"message": m}
	method := methodSend10
	params["configuration"] = map[string]any{"returnImmediately": false}
	if t.cfg.Dialect.Version == Version03 {
		method = methodSend03
		params["configuration"] = map[string]any{"blocking": true}
	}
	return Document(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

// sentWire is what comes back for a message: a message or a task, bare or named.
type sentWire struct {
	Kind    string       `json:"kind"`
	Message *messageWire `json:"message"`
	Msg     *messageWire `json:"msg"`
	Task    *taskOfA2A   `json:"task"`

	messageWire
	taskOfA2A
}

// taskOfA2A is a task in any dialect.
type taskOfA2A struct {
	Status struct {
		State   string       `json:"state"`
		Message *messageWire `json:"message"`
	} `json:"status"`
	Artifacts []struct {
		Parts []partWire `json:"parts"`
	} `json:"artifacts"`
}

// open takes the response of the contract out of what came back for message id.
func (t *wrapped) open(response []byte, id string) ([]byte, error) {
	raw := json.RawMessage(response)
	reply, err := t.codec.readReply(response)
	if err != nil {
		return nil, err
	}
	// A zone of ours refuses with JSON-RPC what it did not read, whatever the binding.
	if t.cfg.Dialect.Binding == BindingJSONRPC || reply.JSONRPC != nil {
		if raw, err = t.codec.readResponse(response, id); err != nil {
			return t.refused(err)
		}
	}
	var w sentWire
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, badResponse("what came is no message and no task of A2A")
	}
	for _, m := range []*messageWire{w.Message, w.Msg, &w.messageWire} {
		if m == nil {
			continue
		}
		if inner, ok := payload(append(m.Parts, m.Content...)); ok {
			return inner, nil
		}
	}
	task := w.Task
	if task == nil {
		task = &w.taskOfA2A
	}
	return task.payload()
}

// payload takes the response out of a task.
func (t *taskOfA2A) payload() ([]byte, error) {
	for _, a := range t.Artifacts {
		if inner, ok := payload(a.Parts); ok {
			return inner, nil
		}
	}
	if m := t.Status.Message; m != nil {
		if inner, ok := payload(append(m.Parts, m.Content...)); ok {
			return inner, nil
		}
	}
	if t.Status.State == "" {
		return nil, badResponse("the answer of A2A has no part with data")
	}
	// The platform has a task of its own, which nobody follows here.
	return nil, &TransportError{Class: ClassUnknownOutcome, Err: fmt.Errorf("bad response: a task of A2A in the state %q without an answer", plainName(t.Status.State))}
}

// refused tells errors of A2A itself, where the other zone has not answered, from
// that of a zone of ours to a message that it did not read.
func (t *wrapped) refused(err error) ([]byte, error) {
	fault, ok := errors.AsType[*Error](err)
	if !ok {
		return nil, err
	}
	if fault.Reason == ReasonTooLarge && fault.Code == jsonrpc.CodeInvalidRequest {
		return t.codec.EncodeError(jsonrpc.NullID(), fault), nil
	}
	class := ClassUnknownOutcome
	switch fault.Code {
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams:
		class = ClassBadResponse // it does not take what we send
	}
	return nil, &TransportError{Class: class, Err: fmt.Errorf("the message of A2A was refused with code %d", fault.Code)}
}
