package zone_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
)

// FuzzDecodeRequest reads what may be a request. A fault becomes a response of
// JSON-RPC that a Client takes for one, and what was read can be written again.
func FuzzDecodeRequest(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","method":"execute_task","params":{"text":"x","channel":"C1","bot_token":"` + token + `"},"id":"` + taskID + `"}`,
		`{"jsonrpc":"2.0","method":"execute_task","params":{"text":"x","attachments":[{"id":"F1","size":5}]},"id":1}`,
		`{"jsonrpc":"2.0","method":"get_async_task_result","params":{"task_id":"x"},"id":null}`,
		`{"jsonrpc":"2.0","method":"get_agent_card","id":"\u0061"}`,
		`{"jsonrpc":"2.0","method":"nothing","id":1.5}`,
		`[{}]`, `null`, ``, "\xff", `{"jsonrpc":"2.0","id":"` + strings.Repeat("[", 100) + `"}`,
	} {
		f.Add([]byte(seed))
	}
	strict, relaxed := zone.NewCodec(zone.ProfileStrict), zone.NewCodec(zone.ProfileRelaxed)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, codec := range []*zone.Codec{strict, relaxed} {
			req, fault := codec.DecodeRequest(body)
			if fault != nil {
				response := codec.EncodeError(req.ID, fault)
				checkResponse(t, response)
				if bytes.Contains(response, []byte(token)) && !bytes.Contains([]byte(req.ID.String()), []byte(token)) {
					t.Errorf("the token is in the response: %s", response)
				}
				continue
			}
			checkResponse(t, mustEncode(t, codec, req))
			if req.Task == nil {
				continue
			}
			again, err := codec.EncodeRequest(taskID, *req.Task)
			if err != nil {
				t.Fatal(err)
			}
			back, fault := codec.DecodeRequest(again)
			if fault != nil || back.Task.Text != req.Task.Text || back.Task.UserID != req.Task.UserID || len(back.Task.Attachments) != len(req.Task.Attachments) {
				t.Errorf("%s was written as %s (%v)", body, again, fault)
			}
		}
	})
}

func mustEncode(t *testing.T, codec *zone.Codec, req zone.Request) []byte {
	response, err := codec.EncodeResult(req.ID, zone.Result{Status: zone.StatusSuccess})
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func checkResponse(t *testing.T, response []byte) {
	var w struct {
		JSONRPC string          `json:"jsonrpc"`
		Result  json.RawMessage `json:"result"`
		ID      json.RawMessage `json:"id"`
		Error   *struct {
			Code    *int    `json:"code"`
			Message *string `json:"message"`
			Data    struct {
				Reason string `json:"reason"`
			} `json:"data"`
		} `json:"error"`
	}
	if err := json.Unmarshal(response, &w); err != nil || w.JSONRPC != "2.0" || w.ID == nil || (w.Result == nil) == (w.Error == nil) {
		t.Fatalf("no response: %s (%v)", response, err)
	}
	if w.Error != nil && (w.Error.Code == nil || w.Error.Message == nil || w.Error.Data.Reason == "") {
		t.Fatalf("an error without code, message or reason: %s", response)
	}
}

// FuzzResponse reads what may be a response. Whatever it is gives a Result or one of
// the two errors, and neither has the token.
func FuzzResponse(f *testing.F) {
	const id = `,"id":"` + taskID + `"}`
	for _, seed := range []string{
		`{"jsonrpc":"2.0","result":{"status":"success","response_text":"hi","bot_token":"` + token + `"}` + id,
		`{"jsonrpc":"2.0","result":{"status":"accepted","task_id":"x","poll_after_ms":5}` + id,
		`{"jsonrpc":"2.0","result":{"status":"error","error_code":"generic"}` + id,
		`{"jsonrpc":"2.0","result":{"status":"completed","result":{"status":"success","response_text":""}}` + id,
		`{"jsonrpc":"2.0","result":{"status":"success","file_artifact":{"parts":[{"kind":"file","contentBase64":"QQ==","fileName":"a"}]}}` + id,
		`{"jsonrpc":"2.0","error":{"code":-32603,"message":"` + token + `","data":{"reason":"x","missing":["a"]}}` + id,
		`{"jsonrpc":"2.0","result":{"kind":"message","parts":[{"kind":"data","data":{"jsonrpc":"2.0"}}]}` + id,
		`{"error":"x"}`, `null`, ``, `{"jsonrpc`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		tr := &scripted{body: string(body)}
		c := zone.NewClient(zone.ClientConfig{Transport: tr, Profile: zone.ProfileStrict, NewID: func() string { return taskID }})
		res, _, err := c.Ask(t.Context(), zone.Call{ID: taskID, Task: zone.Task{Text: "x", Channel: "C1", BotToken: parley.NewSecret([]byte(token))}})
		checkTold(t, res, err)
		if err == nil && res.Status != zone.StatusSuccess && res.Status != zone.StatusAccepted {
			t.Errorf("a result %+v", res)
		}
		async, _, err := c.Fetch(t.Context(), zone.Query{TaskID: taskID}, zone.Meta{})
		if err == nil && (async.Status == zone.StatusCompleted) != (async.Result != nil) {
			t.Errorf("a result %+v", async)
		}
		checkError(t, err)
		for _, d := range []zone.Dialect{{Version: zone.Version03, Binding: zone.BindingJSONRPC}, {Version: zone.Version10, Binding: zone.BindingREST}} {
			_, _, err := zone.Wrapped(tr, zone.WrapConfig{Dialect: d, NewID: func() string { return taskID }}).Call(context.Background(), []byte(`{}`), zone.Meta{})
			checkError(t, err)
		}
		codec := zone.NewCodec(zone.ProfileStrict)
		if _, e := codec.Unwrap(body); e != nil {
			checkResponse(t, e.Wrap([]byte(`{"jsonrpc":"2.0"}`), taskID))
		}
		_, e := codec.UnwrapREST(body, zone.Version03)
		if out := e.Wrap(body, taskID); !json.Valid(out) {
			t.Errorf("wrapped as %s", out)
		}
	})
}

func checkTold(t *testing.T, res zone.Result, err error) {
	checkError(t, err)
	text, merr := json.Marshal(res)
	if merr != nil {
		t.Fatal(merr)
	}
	if err == nil && strings.Contains(string(text), token) {
		t.Errorf("the token is in %s", text)
	}
	if err != nil && strings.Contains(err.Error(), token) {
		t.Errorf("the token is in the error %v", err)
	}
}

func checkError(t *testing.T, err error) {
	var fault *zone.Error
	if err != nil && !errors.As(err, &fault) && class(err) == "" {
		t.Errorf("an error of another type: %T", err)
	}
}
