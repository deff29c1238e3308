package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// swell is how much a sweller adds to a request, in bytes: more than the 10 MB
// that some servers take.
const swell = 11_000_000

// newSweller passes requests on to url, each with so many spaces at its end that
// it is larger than Parley would send one. It is JSON all the same.
func newSweller(t *testing.T, url string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if bytes.Contains(body, []byte(`"messageId"`)) {
			body = append(body, bytes.Repeat([]byte(" "), swell)...)
		}
		req, err := http.NewRequestWithContext(r.Context(), r.Method, url, bytes.NewReader(body))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		req.Header = r.Header.Clone()
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			panic(http.ErrAbortHandler) // the agent's connection broke, and so does Parley's
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/"
}

// TestQuirkPayloadTooLarge gives agents requests of 11 MB, with the help of a
// proxy that makes them larger: Parley's own limit of 8 MiB would come first, and
// such a run fails with code limit before anything is sent (internal/bridge,
// TestExchangeRequestLimit). Here the run has the agent's word.
func TestQuirkPayloadTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, k := range kinds() {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			r, a := k.routes()[0], sharedAgent(t, k)
			name := w.register(t, registration{url: newSweller(t, r.url(a)), config: r.pins(nil), policy: parley.OutcomeLookup})
			run := w.call(t, name, "echo large")
			executions, _ := a.entries(t, run.ID)
			want := 0
			switch r.kind {
			case python03: // status 200, and an error
				if e := failed(t, run); e.Code != parley.CodeAgentRejected || !strings.Contains(e.Message, "-32600: Payload too large") || e.Retryable {
					t.Errorf("error %s", show(run))
				}
			case java03: // status 413 and then a reset, which may overtake it
				if e := failed(t, run); e.Code != parley.CodeOutcomeUnknown && !tooLarge(e) {
					t.Errorf("error %s", show(run))
				}
			case js10, js03: // status 413, and a page of HTML
				if e := failed(t, run); !tooLarge(e) {
					t.Errorf("error %s", show(run))
				}
			case go10, go03, python10:
				want = 1
				if o := done(t, run); o.Text != "large" {
					t.Errorf("output %s", o.raw)
				}
			}
			if len(executions) != want {
				t.Errorf("executed %d times, want %d", len(executions), want)
			}
		})
	}
}

// tooLarge tells whether e is what becomes of a task that was answered with
// status 413.
func tooLarge(e *parley.Error) bool {
	return e.Code == parley.CodeAgentRejected && strings.Contains(string(e.Details), "413") && !e.Retryable
}

// TestQuirkCancelWithoutEnd cancels a task whose executor takes note of it and
// goes on: JavaScript then does not answer the cancel at all. The run is over
// when the grace of its cancel is, and the agent goes on.
func TestQuirkCancelWithoutEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range slices.Concat(js10.routes(), js03.routes()) {
		t.Run(r.name(), func(t *testing.T) {
			parallel(t)
			a := sharedAgent(t, r.kind)
			name := w.register(t, registration{url: r.url(a), config: r.pins(nil)})
			run := w.start(t, name, "mute-cancel "+name)
			w.accepted(t, run)
			began := time.Now()
			if _, err := w.Cancel(t.Context(), run, "enough"); err != nil {
				t.Fatal(err)
			}
			if end := w.end(t, run); end.Status != parley.RunCancelled {
				t.Errorf("not cancelled: %s", show(end))
			}
			if took := time.Since(began); took > patience/2 {
				t.Errorf("it took %v", took)
			}
			if _, cancels := a.entries(t, run); len(cancels) == 0 {
				t.Error("the agent was not told")
			}
			if r.binding == "JSONRPC" {
				other := r.leave(t, a, "mute-cancel "+name+"2").ID
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				resp, err := r.post(ctx, a, ask{method: r.says("cancel"), params: map[string]any{"id": other}})
				if err == nil {
					_ = resp.Body.Close()
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the cancel was answered (%v)", err)
				}
				a.release(t, name+"2")
			}
			a.release(t, name)
			if executions, _ := a.entries(t, run); len(executions) != 1 {
				t.Errorf("executed %d times", len(executions))
			}
		})
	}
}

// TestQuirkSameMessageAtOnce sends one message twice while the first is worked
// on, past Parley: two tasks.
func TestQuirkSameMessageAtOnce(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{"": "two tasks"}, func(t *testing.T, r route, a *agent) string {
		run := unique("at-once")
		answers := make(chan *http.Response, 2)
		for range 2 {
			go func() {
				resp, err := r.post(t.Context(), a, ask{method: r.says("send"), params: r.letter(run, "hold "+run, true, nil)}) //nolint:bodyclose // readAll does
				// Once its context has ended, so has the test.
				if err != nil && t.Context().Err() == nil {
					t.Error(err)
				}
				answers <- resp
			}()
		}
		eventually(t, "both to be executed", func() bool {
			executions, _ := a.entries(t, run)
			return len(executions) == 2
		})
		a.release(t, run)
		var ids []string
		for range 2 {
			if resp := <-answers; resp != nil {
				ids = append(ids, readAll(t, resp).task(t).ID)
			}
		}
		if len(ids) != 2 || ids[0] == ids[1] || ids[0] == "" {
			t.Errorf("tasks %q", ids)
		}
		return "two tasks"
	})
}

// TestQuirkCommonJSCodes asks JavaScript 0.3 that was loaded as CommonJS for all
// errors that it has: the code is that of an internal error, the words are right.
// TestQuirkCommonJS shows what the run sees.
func TestQuirkCommonJSCodes(t *testing.T) {
	t.Parallel()
	r, a := js03.routes()[0], ownAgent(t, js03, setup{flags: []string{"--cjs"}})
	ended := r.mail(t, a, "echo one", nil).task(t).ID
	for what, answer := range map[string]reply{
		"Task not found":      r.about(t, a, "get", "nobody"),
		"Task not cancelable": r.about(t, a, "cancel", ended),
		"terminal state":      r.mail(t, a, "again", map[string]any{"taskId": ended}),
	} {
		if f := answer.failure(); f.Code != -32603 || !strings.Contains(f.Message, what) {
			t.Errorf("%s: %s", what, answer.body)
		}
	}
	var raw json.RawMessage
	if answer := r.mail(t, a, "echo one", nil); json.Unmarshal([]byte(answer.result()), &raw) != nil {
		t.Errorf("a task: %s", answer.body)
	}
}
