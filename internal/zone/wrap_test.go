package zone_test

import (
	"strings"
	"testing"

	"github.com/parley-project/parley/internal/zone"
)

// TestZN6_WrappedRequests puts one request into a message of each dialect.
func TestZN6_WrappedRequests(t *testing.T) {
	const body = `{"jsonrpc":"2.0","id":"t-1"}`
	for d, want := range map[zone.Dialect]string{
		{Version: zone.Version03, Binding: zone.BindingJSONRPC}: `{"id":"t-1","jsonrpc":"2.0","method":"message/send","params":{"configuration":{"blocking":true},` +
			`"message":{"kind":"message","messageId":"t-1","role":"user","parts":[{"kind":"data","data":` + body + `}]}}}`,
		{Version: zone.Version10, Binding: zone.BindingJSONRPC}: `{"id":"t-1","jsonrpc":"2.0","method":"SendMessage","params":{"configuration":{"returnImmediately":false},` +
			`"message":{"messageId":"t-1","role":"ROLE_USER","parts":[{"data":` + body + `,"mediaType":"application/json"}]}}}`,
		{Version: zone.Version03, Binding: zone.BindingREST}: `{"request":{"messageId":"t-1","role":"ROLE_USER","content":[{"data":{"data":` + body + `}}]}}`,
		{Version: zone.Version10, Binding: zone.BindingREST}: `{"message":{"messageId":"t-1","role":"ROLE_USER","parts":[{"data":` + body + `,"mediaType":"application/json"}]}}`,
	} {
		s := &scripted{body: `{}`}
		zone.Wrapped(s, zone.WrapConfig{Dialect: d, NewID: func() string { return fetchID }}).Call(t.Context(), []byte(body), zone.Meta{})
		if s.sent[0] != want {
			t.Errorf("%v\n got %s\nwant %s", d, s.sent[0], want)
		}
	}
}

// TestZN6_WrappedResponses takes responses out of whatever an agent of A2A answers.
func TestZN6_WrappedResponses(t *testing.T) {
	const inner = `{"jsonrpc":"2.0","result":{"poll_after_ms":2000},"id":"t-1"}`
	const part = `[{"kind":"text","text":"here it is"},{"kind":"data","data":` + inner + `}]`
	outer := func(result string) string { return `{"jsonrpc":"2.0","result":` + result + `,"id":"t-1"}` }
	fails := func(text string) string { return `{"jsonrpc":"2.0","error":` + text + `,"id":"t-1"}` }
	const nothing = "bad-response: bad response: the answer of A2A has no part with data"
	for body, want := range map[string]string{
		outer(`{"kind":"message","parts":` + part + `}`):                                                                inner,
		outer(`{"message":{"parts":[{"data":` + inner + `}]}}`):                                                         inner,
		outer(`{"msg":{"content":[{"data":{"data":` + inner + `}}]}}`):                                                  inner,
		outer(`{"kind":"task","status":{"state":"completed"},"artifacts":[{"parts":` + part + `}]}`):                    inner,
		outer(`{"task":{"status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"parts":[]},{"parts":` + part + `}]}}`): inner,
		outer(`{"kind":"task","status":{"state":"completed","message":{"parts":` + part + `}}}`):                        inner,
		outer(`{"message":{"parts":[{"raw":"bnVsbA=="}]}}`):                                                             "null",
		outer(`{"kind":"message","parts":[{"kind":"file","file":{"bytes":"bnVsbA=="}}]}`):                               "null",
		outer(`{"message":{"parts":[{"data":{"jsonrpc":"2.0","result":{"poll_after_ms":2000.0},"id":"t-1"}}]}}`):        inner,
		outer(`{"kind":"message","parts":[{"kind":"text","text":"sorry"}]}`):                                            nothing,
		outer(`{"kind":"message","parts":[]}`):                                                                          nothing,
		outer(`{}`):                                                                                                     nothing,
		outer(`null`):                                                                                                   nothing,
		outer(`[]`):                                                                                                     "bad-response: bad response: what came is no message and no task of A2A",
		outer(`{"message":{"parts":[{"raw":5}]}}`):                                                                      "bad-response: bad response: what came is no message and no task of A2A",
		outer(`{"kind":"task","status":{"state":"working"}}`):                                                           `unknown-outcome: bad response: a task of A2A in the state "working" without an answer`,
		outer(`{"task":{"status":{"state":"TASK_STATE_FAILED"}}}`):                                                      `unknown-outcome: bad response: a task of A2A in the state "TASK_STATE_FAILED" without an answer`,
		fails(`{"code":-32601,"message":"Method not found"}`):                                                           "bad-response: the message of A2A was refused with code -32601",
		fails(`{"code":-32603,"message":"boom"}`):                                                                       "unknown-outcome: the message of A2A was refused with code -32603",
		fails(`{"code":-32600,"message":"m","data":{"reason":"too_large"}}`):                                            `{"jsonrpc":"2.0","error":{"code":-32600,"message":"m","data":{"reason":"too_large"}},"id":null}`,
		outer(`{"kind":"message","parts":` + part)[:60]:                                                                 "unknown-outcome: bad response: it ends in the middle",
		"": "bad-response: bad response: it is empty",
	} {
		s := &scripted{body: body, info: zone.Info{Status: 200}}
		got, info, err := zone.Wrapped(s, zone.WrapConfig{Dialect: zone.Dialect{Version: zone.Version10, Binding: zone.BindingJSONRPC}, NewID: func() string { return fetchID }}).
			Call(t.Context(), []byte(`{"jsonrpc":"2.0","id":"t-1"}`), zone.Meta{})
		text := string(got)
		if err != nil {
			text = told(nil, err)
		}
		if text != want || info.Status != 200 {
			t.Errorf("%s\n got %s\nwant %s", body, text, want)
		}
	}
}

// TestZN6_WrappedThroughDoubles carries requests and responses over what writes
// every number as a double, as the SDK for Python does.
func TestZN6_WrappedThroughDoubles(t *testing.T) {
	const doubles = `{"jsonrpc":"2.0","method":"SendMessage","id":1.0,"params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":` +
		`{"jsonrpc":"2.0","method":"execute_task","id":"` + taskID + `","params":{"text":"of 5.0 \" and 1.00","attachments":[{"size":5.0},{"size":100.00}],"more":["\\",1.05,1.0e2,-7.0]}}}]}}}`
	codec := zone.NewCodec(zone.ProfileRelaxed)
	inner, envelope := codec.Unwrap([]byte(doubles))
	if envelope == nil || !strings.Contains(string(inner), `"more":["\\",1.05,1.0e2,-7]`) {
		t.Fatalf("%s", inner)
	}
	req, fault := codec.DecodeRequest(inner)
	if fault != nil || req.Task.Attachments[0].Size != 5 || req.Task.Attachments[1].Size != 100 || req.Task.Text != `of 5.0 " and 1.00` {
		t.Errorf("%+v, %v", req.Task, fault)
	}
}

// TestZN6_WrappedIDs gives the message the id of the request, or one of its own where
// the request has none that fits, and keeps the context of a message.
func TestZN6_WrappedIDs(t *testing.T) {
	d := zone.Dialect{Version: zone.Version10, Binding: zone.BindingREST}
	for body, want := range map[string]string{
		`{"id":"t-1"}`: "t-1", `{"id":1}`: fetchID, `{}`: fetchID, `null`: fetchID, `{"id":"` + strings.Repeat("x", 129) + `"}`: fetchID,
	} {
		s := &scripted{body: `{}`}
		zone.Wrapped(s, zone.WrapConfig{Dialect: d, NewID: func() string { return fetchID }}).Call(t.Context(), []byte(body), zone.Meta{})
		if !strings.Contains(s.sent[0], `"messageId":"`+want+`"`) {
			t.Errorf("%s: %s", body, s.sent[0])
		}
	}
	codec := zone.NewCodec(zone.ProfileRelaxed)
	_, e := codec.Unwrap([]byte(`{"method":"SendMessage","id":1,"params":{"message":{"contextId":"ctx-1","parts":[{"data":{}}]}}}`))
	_, r := codec.UnwrapREST([]byte(`{"message":{"contextId":"ctx-1","parts":[{"data":{}}]}}`), zone.Version10)
	for _, e := range []*zone.Envelope{e, r} {
		if got := string(e.Wrap([]byte(`{}`), "m-1")); !strings.Contains(got, `"messageId":"m-1","contextId":"ctx-1"`) {
			t.Errorf("%s", got)
		}
	}
}

// TestZN6_WrappedTransport passes on what the transport inside says and holds.
func TestZN6_WrappedTransport(t *testing.T) {
	cfg := zone.WrapConfig{NewID: func() string { return fetchID }}
	s := &scripted{err: &zone.TransportError{Class: zone.ClassThrottled}, info: zone.Info{Attempts: 2}}
	w := zone.Wrapped(s, cfg)
	if _, info, err := w.Call(t.Context(), []byte(`{}`), zone.Meta{Affinity: "a-1"}); class(err) != zone.ClassThrottled || info.Attempts != 2 || s.meta.Affinity != "a-1" {
		t.Errorf("%+v, %v", info, err)
	}
	if err := w.(zone.Releaser).Release(t.Context(), "a-1"); err != nil || s.released != "a-1" {
		t.Errorf("released %q, %v", s.released, err)
	}
	if err := zone.Wrapped(struct{ zone.Transport }{s}, cfg).(zone.Releaser).Release(t.Context(), "a-1"); err != nil {
		t.Error(err)
	}
}

// TestZN6_NotWrapped leaves alone what is no message of A2A, and answers messages
// that hold no request in their own dialect.
func TestZN6_NotWrapped(t *testing.T) {
	codec := zone.NewCodec(zone.ProfileRelaxed)
	for _, body := range []string{``, `null`, `[]`, `{"method":5}`, `{"method":"execute_task"}`, `{"method":"message/stream"}`} {
		if inner, e := codec.Unwrap([]byte(body)); e != nil || inner != nil {
			t.Errorf("%s was unwrapped: %s", body, inner)
		}
	}
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"message/send","id":7}`, `{"jsonrpc":"2.0","method":"message/send","id":7,"params":[]}`,
		`{"jsonrpc":"2.0","method":"message/send","id":7,"params":{"message":{"parts":[{"kind":"text","text":"hi"}]}}}`,
	} {
		inner, e := codec.Unwrap([]byte(body))
		if inner != nil || e == nil {
			t.Errorf("%s: %s", body, inner)
			continue
		}
		const want = `{"jsonrpc":"2.0","error":{"code":-32602,"message":"invalid params: the message must have one part with data, a request of the zone contract","data":{"reason":"invalid_params","correlation_id":"c-1"}},"id":7}`
		if got, status := e.Fault("c-1"); string(got) != want || status != 200 {
			t.Errorf("%s: %d %s", body, status, got)
		}
	}
	inner, e := codec.UnwrapREST([]byte(`{"message":{}}`), zone.Version10)
	if got, status := e.Fault("c-1"); inner != nil || status != 400 || !strings.Contains(string(got), "INVALID_ARGUMENT") {
		t.Errorf("%d %s", status, got)
	}
}
