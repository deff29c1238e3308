package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestReadme types every command line of README.md as a reader does who has started
// parley dev, has an agent that answers a POST as the page says, and has a run that
// failed.
func TestReadme(t *testing.T) {
	t.Parallel()
	page := readPage(t, "README.md")
	p := &pageSession{t: t, dir: t.TempDir()}
	var ill atomic.Bool
	writer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusNotImplemented)
		case ill.Load():
			w.WriteHeader(http.StatusBadRequest)
		default:
			_, _ = io.WriteString(w, `{"status": "success", "output": {"text": "Queues are patient"}}`)
		}
	}))
	defer writer.Close()
	defer p.dev()()
	story := regexp.MustCompile("(?s)```yaml\n(name: story\n.*?)```").FindStringSubmatch(page)
	if story == nil {
		t.Fatal("the page has lost its workflow")
	}
	write(t, p.dir, "story.yaml", story[1])
	lines, failed := regexp.MustCompile(`(?m)^(?:\$ )?\./bin/parley (.*)$`).FindAllStringSubmatch(page, -1), ""
	for _, m := range lines {
		line, _, _ := strings.Cut(m[1], " #")
		if strings.Contains(line, "RUN") && failed == "" {
			ill.Store(true)
			_, out := p.types("run start story --set topic=x --wait -q -o json")
			ill.Store(false)
			failed = runIn(t, out)
		}
		code, out := p.types(strings.NewReplacer("RUN", failed, "http://127.0.0.1:9000/", writer.URL).Replace(line))
		if code != exitDone {
			t.Errorf("%s: exit code %d\n%s", line, code, out)
		}
		// What the page shows of an output is in it.
		_, shown, _ := strings.Cut(page, m[0]+"\n...\n")
		shown, _, ok := strings.Cut(shown, "$ ")
		if ok && !strings.Contains(out, shown) {
			t.Errorf("%s prints\n%s\nand not, as on the page,\n%s", line, out, shown)
		}
	}
	if len(lines) < 12 || failed == "" {
		t.Errorf("only %d command lines on the page", len(lines))
	}
}

// types runs a command line in the folder of the page and gives what a terminal shows.
func (p *pageSession) types(line string) (int, string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	var out lockedBuffer
	code := p.app(&out).execute(ctx, words(line))
	return code, out.String()
}

// dev starts parley dev in the folder of the page, and gives what ends it.
func (p *pageSession) dev() (end func()) {
	p.t.Helper()
	out := &lockedBuffer{search: regexp.MustCompile(`(In another terminal)`), found: make(chan string, 1)}
	ctx, cancel := context.WithCancel(p.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { p.app(out).execute(ctx, []string{"dev", "--listen", "127.0.0.1:0"}) })
	select {
	case <-out.found:
	case <-time.After(2 * time.Minute):
		p.t.Errorf("parley dev does not begin: %s", out.String())
	}
	return func() { cancel(); wg.Wait() }
}

// runIn gives the id of the run that a command has printed as JSON.
func runIn(t *testing.T, out string) string {
	t.Helper()
	var run struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(strings.NewReader(out[strings.Index(out, "{"):])).Decode(&run); err != nil || run.ID == "" {
		t.Fatalf("%v in %s", err, out)
	}
	return run.ID
}
