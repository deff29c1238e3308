package zone

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/parley-project/parley/jsonrpc"
)

// A Dialect says how a message of the contract stands in one of A2A.
type Dialect struct {
	// Version is that of A2A: "0.3" or "1.0".
	Version string
	// Binding is BindingJSONRPC or BindingREST.
	Binding string
}

// The bindings of A2A that carry messages of the contract, and its versions.
const (
	BindingJSONRPC = "JSONRPC"
	BindingREST    = "HTTP+JSON"

	Version03 = "0.3"
	Version10 = "1.0"
)

// The methods of A2A that send a message.
const (
	methodSend03 = "message/send"
	methodSend10 = "SendMessage"
)

// messageWire is a message of A2A in any dialect. HTTP+JSON of 0.3 calls the parts
// content.
type messageWire struct {
	Kind      string     `json:"kind,omitempty"`
	MessageID string     `json:"messageId"`
	ContextID string     `json:"contextId,omitempty"`
	Role      string     `json:"role"`
	Parts     []partWire `json:"parts,omitempty"`
	Content   []partWire `json:"content,omitempty"`
}

// partWire is a part of a message in any dialect.
type partWire struct {
	Kind string          `json:"kind,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	File *partFile       `json:"file,omitempty"`
	Raw  []byte          `json:"raw,omitzero"`

	MediaType string `json:"mediaType,omitempty"`
}

type partFile struct {
	Bytes         []byte `json:"bytes,omitzero"`
	FileWithBytes []byte `json:"fileWithBytes,omitzero"`
	MIMEType      string `json:"mimeType,omitempty"`
}

// message puts payload into the one part of a message: as data, or as bytes if it
// is no JSON object that every reader understands alike.
func (d Dialect) message(c *Codec, payload []byte, role string) messageWire {
	var part partWire
	var plain json.RawMessage
	asData := c.json.Decode(payload, &plain) == nil && plain[0] == '{' && !tooDeep(payload)
	if _, err := c.json.Append(nil, json.RawMessage(payload)); err != nil {
		asData = false
	}
	const media = "application/json"
	switch {
	case d == Dialect{Version03, BindingREST}:
		if part.File = (&partFile{FileWithBytes: payload, MIMEType: media}); asData {
			part.File, part.Data = nil, Document(struct {
				Data json.RawMessage `json:"data"`
			}{payload})
		}
	case d.Version == Version03:
		if part.Kind, part.File = "file", (&partFile{Bytes: payload, MIMEType: media}); asData {
			part.Kind, part.File, part.Data = "data", nil, payload
		}
	default:
		if part.MediaType, part.Raw = media, payload; asData {
			part.Raw, part.Data = nil, payload
		}
	}
	m := messageWire{Role: role}
	if d == (Dialect{Version03, BindingJSONRPC}) {
		m.Kind = "message"
	} else {
		m.Role = map[string]string{"user": "ROLE_USER", "agent": "ROLE_AGENT"}[role]
	}
	if d == (Dialect{Version03, BindingREST}) {
		m.Content = []partWire{part}
	} else {
		m.Parts = []partWire{part}
	}
	return m
}

// payload takes out of parts what message has put in.
func payload(parts []partWire) ([]byte, bool) {
	for _, p := range parts {
		switch {
		case len(p.Data) > 0 && p.Data[0] == '{':
			var inner struct {
				JSONRPC json.RawMessage `json:"jsonrpc"`
				Data    json.RawMessage `json:"data"`
			}
			if json.Unmarshal(p.Data, &inner) == nil && inner.JSONRPC == nil && len(inner.Data) > 0 && inner.Data[0] == '{' && p.Kind == "" {
				return wholeNumbers(inner.Data), true // HTTP+JSON of 0.3
			}
			return wholeNumbers(p.Data), true
		case p.Raw != nil:
			return p.Raw, true
		case p.File != nil && p.File.Bytes != nil:
			return p.File.Bytes, true
		case p.File != nil && p.File.FileWithBytes != nil:
			return p.File.FileWithBytes, true
		}
	}
	return nil, false
}

// wholeNumbers makes 5.0 in a JSON text 5: what reads data parts as protobuf, as
// the SDK for Python does, writes every number as a double (a2a.md). The members of
// the message itself stay as they are.
func wholeNumbers(text []byte) []byte {
	if !bytes.Contains(text, []byte(".0")) {
		return text
	}
	out := make([]byte, 0, len(text))
	depth, quoted, escaped := 0, false, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quoted:
			quoted, escaped = escaped || c != '"', !escaped && c == '\\'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == '.' && depth > 1:
			end := i + 1
			for end < len(text) && text[end] == '0' {
				end++
			}
			if end > i+1 && (end == len(text) || !strings.ContainsRune("0123456789eE", rune(text[end]))) {
				i = end - 1
				continue
			}
		}
		out = append(out, c)
	}
	return out
}

// An Envelope is the message of A2A in which a request of the contract came, and
// in a message like which its response goes back.
type Envelope struct {
	codec   *Codec
	dialect Dialect
	id      jsonrpc.ID // of the request of A2A, with BindingJSONRPC
	context string
}

// errNoPayload: a message of A2A without a request of the contract.
var errNoPayload = errors.New("the message must have one part with data, a request of the zone contract")

// Unwrap takes a request of the contract out of the message of A2A in body, which
// came over JSON-RPC. The Envelope is nil if body is no such message, and the bytes
// are nil if the message holds no request; it is then answered by Fault.
func (c *Codec) Unwrap(body []byte) ([]byte, *Envelope) {
	var w struct {
		Method string          `json:"method"`
		ID     json.RawMessage `json:"id"`
		Params struct {
			Message messageWire `json:"message"`
		} `json:"params"`
	}
	method, id := peek(body)
	e := &Envelope{codec: c, id: id}
	switch method {
	case methodSend03:
		e.dialect = Dialect{Version03, BindingJSONRPC}
	case methodSend10:
		e.dialect = Dialect{Version10, BindingJSONRPC}
	default:
		return nil, nil
	}
	if _, err := c.json.Append(nil, json.RawMessage(body)); err != nil || json.Unmarshal(body, &w) != nil {
		return nil, e
	}
	e.context = w.Params.Message.ContextID
	inner, _ := payload(w.Params.Message.Parts)
	return inner, e
}

// peek gives method and id of what may be a request of A2A.
func peek(body []byte) (string, jsonrpc.ID) {
	var w struct {
		Method string          `json:"method"`
		ID     json.RawMessage `json:"id"`
	}
	if json.Unmarshal(body, &w) != nil {
		return "", jsonrpc.ID{}
	}
	id, err := jsonrpc.ParseID(w.ID)
	if err != nil {
		id = jsonrpc.NullID()
	}
	return w.Method, id
}

// UnwrapREST is Unwrap for what came to the path message:send of HTTP+JSON, in a
// version of A2A.
func (c *Codec) UnwrapREST(body []byte, version string) ([]byte, *Envelope) {
	var w struct {
		Message messageWire `json:"message"`
		Request messageWire `json:"request"`
	}
	e := &Envelope{codec: c, dialect: Dialect{version, BindingREST}}
	if _, err := c.json.Append(nil, json.RawMessage(body)); err != nil || json.Unmarshal(body, &w) != nil {
		return nil, e
	}
	m := w.Message
	if m.MessageID == "" && m.Parts == nil && m.Content == nil {
		m = w.Request
	}
	e.context = m.ContextID
	inner, _ := payload(append(m.Parts, m.Content...))
	return inner, e
}

// Wrap gives the answer of A2A that holds a response of the contract; id is that of
// its message.
func (e *Envelope) Wrap(response []byte, id string) []byte {
	m := e.dialect.message(e.codec, response, "agent")
	m.MessageID, m.ContextID = id, e.context
	type wrapped struct {
		Message messageWire `json:"message"`
	}
	switch e.dialect {
	case Dialect{Version03, BindingJSONRPC}:
		return e.encode(m)
	case Dialect{Version10, BindingJSONRPC}:
		return e.encode(wrapped{m})
	}
	return Document(wrapped{m})
}

func (e *Envelope) encode(result any) []byte {
	text, err := e.codec.EncodeResult(e.id, result)
	if err != nil { // the response was checked when it was encoded
		return e.codec.EncodeError(e.id, NewError(ReasonInternal))
	}
	return text
}

// Fault gives the answer of A2A to a message that holds no request, and the status
// of HTTP that goes with it.
func (e *Envelope) Fault(correlation string) (body []byte, status int) {
	fault := NewError(ReasonInvalidParams)
	fault.Message, fault.CorrelationID = "invalid params: "+errNoPayload.Error(), correlation
	if e.dialect.Binding == BindingJSONRPC {
		return e.codec.EncodeError(e.id, fault), 200
	}
	return Document(map[string]any{"error": map[string]any{"code": 400, "status": "INVALID_ARGUMENT", "message": errNoPayload.Error()}}), 400
}
