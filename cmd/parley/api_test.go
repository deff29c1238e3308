package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// apiApp is a program that talks to a server of a test, and thinks it writes to a
// terminal if tty.
func apiApp(t *testing.T, url string, tty bool) (a *app, out, errs *lockedBuffer) {
	out, errs = &lockedBuffer{}, &lockedBuffer{}
	return &app{
		stdin: strings.NewReader(""), stdout: out, stderr: errs, dir: t.TempDir(), now: time.Now, zone: time.UTC,
		env:      []string{"PARLEY_URL=" + url, "PARLEY_KEY=hunter2"},
		terminal: func(io.Writer) (int, bool) { return 80, tty },
	}, out, errs
}

// TestAPIPaths: each path that the server describes is asked for as it is written,
// and without its prefix as well.
func TestAPIPaths(t *testing.T) {
	t.Parallel()
	_, url := newWorld(t)
	a, out, errs := apiApp(t, url, false)
	if code := a.execute(t.Context(), []string{"api", "GET", "/openapi.json"}); code != 0 {
		t.Fatal(errs.String())
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal([]byte(out.String()), &doc); err != nil || len(doc.Paths) < 30 {
		t.Fatalf("%d paths, %v", len(doc.Paths), err)
	}
	for path, methods := range doc.Paths {
		if got, err := apiPath(path); err != nil || got != path && got != apiPrefix+path {
			t.Errorf("%s becomes %s, %v", path, got, err)
		} else if got != path && !strings.HasPrefix(path, "/hooks/") { // which are at both places
			t.Errorf("%s becomes %s", path, got)
		}
		if short, ok := strings.CutPrefix(path, apiPrefix); ok && short != "/openapi.json" {
			if got, err := apiPath(short + "?a=/api/b"); err != nil || got != path+"?a=/api/b" {
				t.Errorf("%s becomes %s, %v", short, got, err)
			}
		}
		for m := range methods {
			if m != "parameters" && !slices.Contains(apiMethods(), strings.ToUpper(m)) {
				t.Errorf("%s has %s, which parley api lacks", path, m)
			}
		}
	}
}

// TestAPIStream: events are printed as they come, until somebody interrupts.
func TestAPIStream(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: "+r.Header.Get("Accept")+"\r\ndata: \x1b[2J\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	for _, tty := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		a, out, errs := apiApp(t, s.URL, tty)
		ended := make(chan int, 1)
		go func() { ended <- a.execute(ctx, []string{"api", "GET", "/x", "--header", "Accept=text/event-stream"}) }()
		for deadline := time.Now().Add(2 * time.Minute); !strings.HasSuffix(out.String(), "\n\n") && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		cancel()
		if code := <-ended; code != exitFailed || !strings.Contains(errs.String(), "error: cancelled: interrupted") && !tty {
			t.Errorf("exit code %d, %s", code, errs.String())
		}
		want := "event: text/event-stream\r\ndata: \x1b[2J\n\n"
		if tty {
			want = "event: text/event-stream\ndata: \\x1b[2J\n\n"
		}
		if out.String() != want {
			t.Errorf("terminal %v: %q", tty, out.String())
		}
	}
}

// TestAPIAnswers: on a terminal JSON is in lines and steers nothing; elsewhere it
// comes as it is, but for -o.
func TestAPIAnswers(t *testing.T) {
	t.Parallel()
	var body, media string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		_, _ = io.WriteString(w, body)
	}))
	defer s.Close()
	for _, tt := range []struct {
		media, body, format string
		tty                 bool
		want                string
		code                int
	}{
		{"application/json", "{\"b\":1e400 ,\"a\":\"\u009b<\"}", "table", false, "{\"b\":1e400 ,\"a\":\"\u009b<\"}", 0},
		{"application/json", "{\"b\":1e400 ,\"a\":\"\u009b<\"}", "table", true, "{\n  \"b\": 1e400,\n  \"a\": \"\\u009b<\"\n}\n", 0},
		{"application/problem+json; charset=utf-8", "{\"b\" :1}", "jsonl", false, "{\"b\":1}\n", 0},
		{"application/json", "[1, {\"a\":2}]", "yaml", true, "- 1\n- a: 2\n", 0},
		{"application/json", "", "json", false, "", 0},
		{"application/json", "half {", "table", false, "half {", 0},
		{"application/json", "half {", "table", true, "", exitFailed},
		{"text/plain", "a\x1bb\nc", "json", true, "a\\x1bb\nc", 0},
		{"application/x-ndjson", "{}\n{}\n", "table", false, "{}\n{}\n", 0},
	} {
		body, media = tt.body, tt.media
		a, out, errs := apiApp(t, s.URL, tt.tty)
		code := a.execute(t.Context(), []string{"api", "GET", "/x", "-o", tt.format})
		if code != tt.code || out.String() != tt.want || strings.Contains(errs.String(), "hunter2") {
			t.Errorf("%s %q -o %s, terminal %v: exit code %d, %q %s", tt.media, tt.body, tt.format, tt.tty, code, out.String(), errs.String())
		}
	}
}

// A header is refused before anything is sent, and never repeated: it may be a
// credential.
func TestAPIHeader(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"X-A=b\r\nX-B: c", "X-A=\x00", "X-A=\x7f", "Bad Name=x", "=x", "X-A"} {
		if h, err := apiHeader([]string{text}); err == nil || classify(err).exit != exitUsage || strings.Contains(err.Error(), "b\r") {
			t.Errorf("%q: %v, %v", text, h, err)
		}
	}
	h, err := apiHeader([]string{"x-a=1", "X-A=2=3\t4"})
	if err != nil || !slices.Equal(h["X-A"], []string{"1", "2=3\t4"}) {
		t.Errorf("%v, %v", h, err)
	}
}
