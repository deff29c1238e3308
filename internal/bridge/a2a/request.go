package a2a

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// Request makes the JSON-RPC request for task (BR-1). It fails if the input is
// not one JSON value.
func Request(task parley.Task, cfg Config) ([]byte, error) {
	parts, err := Parts(task.Input)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 2*len(task.ID)+len(parts)+len(task.ContextID)+160)
	b = begin(b, task.ID, cfg.Method)
	b = append(b, `{"message":{"role":"user","messageId":`...)
	b = quote(b, task.MessageID())
	b = append(b, `,"parts":`...)
	b = append(b, parts...)
	if task.ContextID != "" {
		b = append(b, `,"contextId":`...)
		b = quote(b, task.ContextID)
	}
	return append(b, `}}}`...), nil
}

// aboutTask makes a request whose one parameter is the id of an agent's task.
func aboutTask(task parley.Task, method, agentTaskID string) ([]byte, error) {
	if agentTaskID == "" {
		return nil, bridge.Defectf("bad_id", "%s needs the agent's task id", method)
	}
	b := begin(make([]byte, 0, len(task.ID)+len(agentTaskID)+96), task.ID, method)
	b = append(b, `{"id":`...)
	b = quote(b, agentTaskID)
	return append(b, `}}`...), nil
}

func begin(b []byte, id, method string) []byte {
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = quote(b, id)
	b = append(b, `,"method":`...)
	b = quote(b, method)
	return append(b, `,"params":`...)
}

// quote appends s as a JSON string; bytes that are not UTF-8 become U+FFFD.
func quote[T string | []byte](b []byte, s T) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// Parts makes the message parts for input, always exactly one text part (BR-6):
// the input's text if it is truthy, else its query if that is, else the whole
// input as JSON. A string is taken as it is, without being decoded and encoded
// again; any other value becomes its JSON text, byte for byte. Of a member that
// repeats the last counts.
func Parts(input json.RawMessage) ([]byte, error) {
	raw, err := bridge.CheckJSON("input", input)
	if err != nil {
		return nil, bridge.Defectf("bad_input", "the task cannot be sent: %v", err)
	}
	value := raw
	if raw[0] == '{' {
		var text, query []byte
		for name, v := range bridge.Members(raw) {
			switch string(name) {
			case "text":
				text = v
			case "query":
				query = v
			}
		}
		switch {
		case truthy(text):
			value = text
		case truthy(query):
			value = query
		}
	}
	b := append(make([]byte, 0, len(value)+len(value)/8+32), `[{"kind":"text","text":`...)
	if value[0] == '"' {
		b = append(b, value...)
	} else {
		b = quote(b, value)
	}
	return append(b, `}]`...), nil
}

// truthy reports whether raw would count as true where the old platform asks
// (formats.md): absent, null, false, zero and what is empty do not.
func truthy(raw []byte) bool {
	if len(raw) == 0 {
		return false
	}
	switch raw[0] {
	case '"':
		return len(raw) > 2
	case '{':
		for range bridge.Members(raw) {
			return true
		}
		return false
	case '[':
		for range bridge.Elements(raw) {
			return true
		}
		return false
	case 't':
		return true
	case 'f', 'n':
		return false
	}
	mantissa, _, _ := bytes.Cut(bytes.ToLower(raw), []byte("e"))
	return bytes.ContainsAny(mantissa, "123456789")
}
