package rpchttp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/parley-project/parley/jsonrpc"
)

// recorder notes what an eventParser finds.
type recorder struct {
	text strings.Builder
	p    *eventParser
	log  []string
}

func (r *recorder) data(p []byte) error { r.text.Write(p); return nil }

func (r *recorder) event(kind string) error {
	r.log = append(r.log, fmt.Sprintf("%q %q %q", kind, r.text.String(), r.p.lastID))
	r.text.Reset()
	return nil
}

func parseEvents(chunks ...[]byte) (log []string, lastID string) {
	r := new(recorder)
	r.p = &eventParser{sink: r}
	for _, c := range chunks {
		_ = r.p.feed(c) // the recorder has no errors
	}
	return r.log, r.p.lastID
}

// plainEvents is the parsing model of the HTML standard, section 9.2.6, word
// for word and with everything in memory.
func plainEvents(text string) (log []string, lastID string) {
	text = strings.TrimPrefix(text, byteOrderMark)
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	var data []string
	id, kind := "", ""
	for _, line := range lines[:len(lines)-1] { // the last one has no end
		if line == "" {
			lastID = id
			if data != nil {
				log = append(log, fmt.Sprintf("%q %q %q", kind, strings.Join(data, "\n"), lastID))
			}
			data, kind = nil, ""
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			if len(value) <= maxEventType {
				kind = value
			}
		case "id":
			if !strings.Contains(value, "\x00") && len(value) <= maxEventID {
				id = value
			}
		}
	}
	return log, lastID
}

// FuzzEvents: the events do not depend on how the bytes arrive, and are those
// that the standard defines.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: {}\n\n"), 3)
	f.Add([]byte("\xef\xbb\xbf: hi\r\n\r\nevent: message\rid: 7\r\ndata:{\"a\":\ndata: 1}\n\n\n"), 1)
	f.Add([]byte("id\ndata\n\nretry: 12\nidx: 3\n:\n\rdata: cut"), 2)
	f.Add([]byte("\xef\xbb\xbfdata: x\r\n\r\nid: \x00\ndata:  y\n\n"), 1)
	f.Add([]byte("data data: no\ndatax: no\n"+strings.Repeat("id", 700)+": 1\nid: "+strings.Repeat("9", 1025)+"\ndata: 1\n\n"), 5)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		log, lastID := parseEvents(text)
		wantLog, wantID := plainEvents(string(text))
		if fmt.Sprint(log, lastID) != fmt.Sprint(wantLog, wantID) {
			t.Fatalf("%q:\ngot  %s %q\nwant %s %q", text, log, lastID, wantLog, wantID)
		}
		size = 1 + (size&0x7fffffff)%16
		var chunks [][]byte
		for rest := text; len(rest) > 0; {
			n := min(size, len(rest))
			chunks, rest = append(chunks, bytes.Clone(rest[:n])), rest[n:]
		}
		if again, id := parseEvents(chunks...); fmt.Sprint(again, id) != fmt.Sprint(log, lastID) {
			t.Fatalf("%q in pieces of %d: %s %q, at once %s %q", text, size, again, id, log, lastID)
		}
	})
}

// FuzzEventRoundTrip: what the server writes is what the client reads.
func FuzzEventRoundTrip(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","method":"m","params":["é"]}`), uint64(7))
	f.Fuzz(func(t *testing.T, msg []byte, id uint64) {
		if bytes.ContainsAny(msg, "\r\n") {
			return // neither is in a message on its way
		}
		log, lastID := parseEvents(appendEvent(nil, id, msg))
		if want := fmt.Sprintf("%q %q %q", "", msg, fmt.Sprint(id)); len(log) != 1 || log[0] != want {
			t.Fatalf("%q: %s", msg, log)
		}
		if lastID != fmt.Sprint(id) {
			t.Fatalf("id %s, want %d", lastID, id)
		}
		if log, lastID = parseEvents(appendPrimer(nil, id)); len(log) != 0 || lastID != fmt.Sprint(id) {
			t.Fatalf("primer: %s %s", log, lastID)
		}
	})
}

// FuzzPeek: what peek and kindOf see in valid messages is what encoding/json
// sees, and they take everything else without harm.
func FuzzPeek(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"a","params":{"method":[{"id":"}\""}]}}`))
	f.Add([]byte(`[{"method":"a"}, {"id":null,"error":{}} ,{"id":2,"result":[1,{}]},3]`))
	f.Add([]byte(`{"a":"\\","method":"x"`))
	f.Add([]byte(`{"error":{"code":1},"jsonrpc":"2.0"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, kind := peek(text), kindOf(text)
		var members map[string]json.RawMessage
		if json.Unmarshal(text, &members) != nil || members == nil || repeated(text, members) {
			return
		}
		_, method := members["method"]
		_, id := members["id"]
		_, result := members["result"]
		_, fault := members["error"]
		_, version := members["jsonrpc"]
		var want envelope
		switch {
		case method && id:
			want.calls = 1
		case method:
			want.notifications = 1
		case (result || fault) && (id || version):
			want.responses = 1
		}
		if e.calls != want.calls || e.notifications != want.notifications || e.responses != want.responses {
			t.Fatalf("%s: %+v, want %+v", text, e, want)
		}
		if kind == isAnswer && !result && !fault || kind == isNotification && !method {
			t.Fatalf("%s: kind %d", text, kind)
		}
	})
}

// repeated says that text may have members twice, names with escapes, or what
// else makes encoding/json see another object.
func repeated(text []byte, members map[string]json.RawMessage) bool {
	n := 0
	for _, name := range []string{"method", "id", "result", "error", "jsonrpc"} {
		if _, ok := members[name]; ok {
			n++
		}
		n -= bytes.Count(text, []byte(`"`+name+`"`))
	}
	return n != 0 || bytes.ContainsRune(text, '\\') || !utf8.Valid(text)
}

// FuzzPost: whatever the body, the answer is 202 without a body, or valid JSON
// with a status that says so, and never 500.
func FuzzPost(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"echo","params":[1]}`), true)
	f.Add([]byte(`[{"jsonrpc":"2.0","method":"echo"},1]`), false)
	f.Add([]byte("{\"jsonrpc\": \"2.0\", \xff"), true)
	h := Handler(ServerConfig{
		Config: jsonrpc.Config{MaxMessage: 4096, Handler: jsonrpc.HandlerFunc(func(_ context.Context, req *jsonrpc.Request) (any, error) {
			return req.Params(), nil
		})},
		Sessions: &SessionConfig{OpenOn: []string{"open"}, Max: 1 << 30},
	})
	f.Cleanup(func() { h.Close() })
	f.Fuzz(func(t *testing.T, body []byte, known bool) {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if !known {
			r.ContentLength = -1
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusAccepted:
			if w.Body.Len() > 0 {
				t.Fatalf("202 with %q", w.Body)
			}
		case http.StatusOK, http.StatusRequestEntityTooLarge:
			if !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%q answered %q", body, w.Body)
			}
			if tooLong := len(body) > 4096; tooLong != (w.Code == http.StatusRequestEntityTooLarge) {
				t.Fatalf("%d bytes answered %d", len(body), w.Code)
			}
		default:
			t.Fatalf("%q answered %d %s", body, w.Code, w.Body)
		}
	})
}
