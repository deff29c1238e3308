package adaptertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/parley-project/parley/internal/bridge"
)

// Lines is how an adapter calls an agent that speaks JSON-RPC over a connection
// of its own, one message a line.
type Lines struct {
	// URL stands in for that of every dialogue.
	URL string
	// Text makes texts about broken connections comparable; nil: they are.
	Text func(string) string
	// New makes the adapter for one dialogue; dial connects to the agent.
	New func(x *bridge.Exchange, log *slog.Logger, obs bridge.TranslationObserver, dial func() io.ReadWriteCloser) bridge.Adapter
}

// RunLines plays those dialogues of the suite that are about what is said and
// not about how HTTP carries it: every answer is one whole JSON-RPC response,
// of status 200. The same must come of them, and the same must be asked, but for
// the ids of requests, which belong to the connection. It says why the others
// were not played.
func RunLines(t *testing.T, s Suite, l Lines) Played {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.Dir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	p := Played{Unsaid: map[string]*UnsayableError{}, Dialogues: len(files)}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d, err := parse(archive)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		a, why := lineAgentOf(d)
		if why != nil {
			p.Unsaid[name] = why
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { l.play(t, d, a) })
			p.Played = append(p.Played, name)
		})
	}
	p.report(t, l.URL)
	return p
}

func (l Lines) play(t *testing.T, d *dialogue, a *lineAgent) {
	place := func(text []byte) []byte {
		return bytes.ReplaceAll(text, []byte(d.agent.URL), []byte(l.URL))
	}
	d.agent.Detected, d.agent.ProtocolConfig = place(d.agent.Detected), place(d.agent.ProtocolConfig)
	want := string(place([]byte(d.section("outcome.json"))))
	d.agent.URL = l.URL

	now := func() time.Time { return time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC) }
	x := bridge.NewExchange(bridge.ExchangeConfig{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("there is no HTTP here")
		},
		Now: now, Limits: bridge.ExchangeLimits{MaxResponse: maxResponse},
	})
	t.Cleanup(x.Close)
	rec := &recorder{}
	adapter := l.New(x, slog.New(rec), rec, a.dial)
	if c, ok := adapter.(interface{ Close() }); ok {
		t.Cleanup(c.Close)
	}
	got := rec.outcome(t, d, adapter)
	if a.faulty {
		v := view{b: Binding{Text: l.Text}}
		if diff := cmp.Diff(v.of(t, want, true), v.of(t, got, false)); diff != "" {
			t.Errorf("outcome (-want +got):\n%s", diff)
		}
	} else if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	requests := a.got()
	if n := max(len(a.answers), 1); len(requests) > n || n > 1 && len(requests) < n {
		t.Errorf("the agent got %d requests, not %d:\n%s", len(requests), n, strings.Join(requests, "\n"))
	}
	for i, request := range requests {
		_, body, ok := strings.Cut(d.section(numbered("request", i+1)), "\n\n")
		if !ok {
			continue
		}
		if diff := cmp.Diff(asked(t, body), asked(t, request)); diff != "" {
			t.Errorf("request %d (-want +got):\n%s", i+1, diff)
		}
	}
}

// asked is what a request asks for, without its id.
func asked(t *testing.T, request string) string {
	t.Helper()
	var r struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal([]byte(request), &r); err != nil {
		t.Errorf("the request is not JSON: %v", err)
	}
	return r.Method + " " + string(r.Params)
}

// lineAgent answers the n-th request with the n-th answer: the members of a
// response but for its id, or one of the constants Fault….
type lineAgent struct {
	answers []string
	// faulty: there are faults among them.
	faulty bool

	mu       sync.Mutex
	requests []string
}

// lineAgentOf gives the agent of a dialogue, or why there is none: the dialogue
// is about streams, places, or authentication, or its answers are not all whole
// JSON-RPC responses.
func lineAgentOf(d *dialogue) (*lineAgent, *UnsayableError) {
	switch {
	case d.operation == "subscribe":
		return nil, &UnsayableError{Rule: "there are no streams"}
	case d.agent.Auth.Type != "":
		return nil, &UnsayableError{Rule: "there are no headers, and no credentials in them"}
	case d.agent.URL != agentURL:
		return nil, &UnsayableError{Rule: "it is about a place on the network"}
	}
	a := &lineAgent{}
	for i, s := range d.scripts {
		request := d.section(numbered("request", i+1))
		switch head, _, _ := bytes.Cut(s.response, []byte("\r\n\r\n")); {
		case strings.Contains(request, "text/event-stream") || s.stream != nil:
			return nil, &UnsayableError{Rule: "there are no streams"}
		case request != "" && !strings.HasPrefix(request, "POST /run "):
			return nil, &UnsayableError{Rule: "it is about a place on the network"}
		case (s.fault == FaultHang || s.fault == FaultCut || s.fault == FaultReset) && s.count == 0:
			a.answers, a.faulty = append(a.answers, s.fault), true
			continue
		case s.fault != "":
			return nil, &UnsayableError{Rule: "the fault is one of HTTP", Detail: s.fault}
		case !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")):
			return nil, &UnsayableError{Rule: "there is no status but that of JSON-RPC"}
		}
		_, body, _ := bytes.Cut(s.response, []byte("\r\n\r\n"))
		answer, ok := lineAnswer(body)
		if !ok {
			return nil, &UnsayableError{Rule: "a line that is no whole response is for the connection to judge"}
		}
		a.answers = append(a.answers, answer)
	}
	return a, nil
}

// lineAnswer gives the result or the error of a response, as a member. What a
// connection cannot match to its request, or refuses as no response at all, is
// for its own tests.
func lineAnswer(body []byte) (string, bool) {
	body, err := bridge.CheckJSON("Response", body)
	if err != nil || body[0] != '{' {
		return "", false
	}
	members := map[string]string{}
	for name, value := range bridge.Members(body) {
		if _, twice := members[string(name)]; twice {
			return "", false
		}
		members[string(name)] = string(value)
	}
	var failure struct {
		Code    *int64  `json:"code"`
		Message *string `json:"message"`
	}
	result, isResult := members["result"]
	text, isError := members["error"]
	if id := members["id"]; members["jsonrpc"] != `"2.0"` || !strings.HasPrefix(id, `"run-1.`) || isResult == isError {
		return "", false
	}
	if isResult {
		return `"result":` + strings.ReplaceAll(result, "\n", " "), true
	}
	err = json.Unmarshal([]byte(text), &failure)
	ok := err == nil && failure.Code != nil && failure.Message != nil && *failure.Message != ""
	return `"error":` + strings.ReplaceAll(text, "\n", " "), ok
}

// dial connects to the agent, which serves until the connection is closed.
func (a *lineAgent) dial() io.ReadWriteCloser {
	requests, ours := io.Pipe()
	theirs, answers := io.Pipe()
	go func() { // ends with the bubble of the test, which waits for it
		defer func() { _ = answers.Close() }()
		in := bufio.NewScanner(requests)
		in.Buffer(nil, maxResponse)
		for in.Scan() {
			switch answer := a.answer(in.Text()); answer {
			case FaultHang:
			case FaultCut, FaultReset:
				return
			default:
				if _, err := io.WriteString(answers, answer); err != nil {
					return
				}
			}
		}
	}()
	return lineConn{theirs, ours}
}

func (a *lineAgent) answer(request string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.requests)
	a.requests = append(a.requests, request)
	var r struct {
		ID json.RawMessage `json:"id"`
	}
	if err := json.Unmarshal([]byte(request), &r); err != nil || n >= len(a.answers) {
		return "\n"
	}
	if a.answers[n][0] != '"' {
		return a.answers[n]
	}
	return `{"jsonrpc":"2.0","id":` + string(r.ID) + "," + a.answers[n] + "}\n"
}

func (a *lineAgent) got() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests
}

// lineConn is the caller's end.
type lineConn struct {
	*io.PipeReader
	w *io.PipeWriter
}

// Write sends to the agent.
func (c lineConn) Write(p []byte) (int, error) { return c.w.Write(p) }

// Close ends both directions.
func (c lineConn) Close() error {
	_ = c.w.Close()
	return c.PipeReader.Close()
}
