package agents_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// languages are the agents: the words that start each one.
func languages(t *testing.T) map[string][]string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "agent")
	if out, err := exec.CommandContext(t.Context(), "go", "build", raceFlag, "-o", bin, "./go").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	abs := func(path string) string {
		p, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	return map[string][]string{
		"go":     {bin},
		"python": {"python3", abs("python/agent.py")},
		"node":   {"node", abs("node/agent.mjs")},
	}
}

// start runs an agent on a free port until the test ends, and gives its URL.
func start(t *testing.T, command []string) (at string) {
	t.Helper()
	cmd := exec.Command(command[0], append(slices.Clone(command[1:]), "--port", "0")...)
	cmd.Stderr = testWriter{t}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "listening on http://") {
		t.Fatalf("%v says %q", command, lines.Text())
	}
	return strings.TrimPrefix(lines.Text(), "listening on ")
}

// testWriter shows what an agent complains about; it should not complain.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Errorf("the agent writes to stderr: %s", p)
	return len(p), nil
}

// exchange is one request and what it must be answered with.
type exchange struct {
	method, path string // default POST /
	header       http.Header
	body         string

	status int
	// want is a JSON text, or several if the answer is a stream; "…" is anything.
	want   string
	stream bool
	// until repeats the request until the answer fits.
	until bool
}

// dialogue holds exchanges with one agent. It knows which names of ours stand
// for which ids of the agent.
type dialogue struct {
	url   string
	names map[string]string
}

func newDialogue(url string) *dialogue {
	return &dialogue{url: strings.TrimSuffix(url, "/"), names: make(map[string]string)}
}

// visitor makes each request over a connection of its own. A kept one may be closed by
// the agent, for it was idle for some seconds, in the moment in which it is used again.
func visitor() *http.Client {
	return &http.Client{Transport: strangers()}
}

func strangers() *http.Transport { return &http.Transport{DisableKeepAlives: true} }

// patience bounds what is waited for.
const patience = 2 * time.Minute

// hold makes the exchange and says in which way the answer is another one than
// the wanted.
func (d *dialogue) hold(t *testing.T, x exchange) error {
	t.Helper()
	body := generated.ReplaceAllStringFunc(x.body, func(name string) string {
		if id, ok := d.names[name]; ok {
			return id
		}
		return name
	})
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := d.once(t, x, body)
		if err == nil || !x.until || time.Since(begun) > patience {
			return err
		}
	}
}

func (d *dialogue) once(t *testing.T, x exchange, body string) error {
	t.Helper()
	method, path := x.method, x.path
	if method == "" {
		method, path = http.MethodPost, "/"
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	maps.Copy(req.Header, x.header)
	if method == http.MethodPost && x.header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := visitor().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != x.status {
		return fmt.Errorf("HTTP %d, want %d\n%s", resp.StatusCode, x.status, got)
	}
	if is := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"); is != x.stream {
		return fmt.Errorf("stream is %v, want %v\n%s", is, x.stream, got)
	}
	if strings.TrimSpace(x.want) == "…" {
		return nil
	}
	if x.stream {
		got = events(got)
	}
	return d.compare(x.want, got)
}

// events takes server-sent events apart: their data, one after another.
func events(body []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(body) {
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			out.Write(bytes.Replace(data, []byte("…\n"), []byte("\"…\"\n"), 1)) // on a page: some more
		}
	}
	return out.Bytes()
}

// compare holds the JSON texts of got to those of want. The names of d are
// learnt from what fits.
func (d *dialogue) compare(want string, got []byte) error {
	w, err := texts(strings.NewReader(strings.ReplaceAll(want, "http://127.0.0.1:9001", d.url)))
	if err != nil {
		return fmt.Errorf("what is wanted is no JSON: %w", err)
	}
	g, err := texts(bytes.NewReader(got))
	if err != nil {
		return fmt.Errorf("no JSON: %w\n%s", err, got)
	}
	names := maps.Clone(d.names)
	if text := fits(w, g, names); text != "" {
		return fmt.Errorf("%s\n%s", text, got)
	}
	d.names = names
	return nil
}

func texts(r io.Reader) (all []any, err error) {
	dec := json.NewDecoder(r)
	dec.UseNumber()
	for {
		var v any
		if err := dec.Decode(&v); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
}

var (
	// generated is how the pages and the transcripts write ids that agents make.
	generated = regexp.MustCompile(`\b(?:task|context|message)-[0-9]+\b`)
	moment    = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
)

// fits says where got differs from want. An id that the agent made stands for
// the same one everywhere, a time for any time; "…" leaves out the other members
// of an object, or elements of an array.
func fits(want, got any, names map[string]string) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("want an object, got %v", got)
		}
		return objectFits(w, g, names)
	case []any:
		g, ok := got.([]any)
		if i := slices.Index(w, any("…")); i >= 0 && len(g) >= len(w)-1 {
			w, g = slices.Delete(slices.Clone(w), i, i+1), slices.Delete(slices.Clone(g), i, len(g)-(len(w)-1-i))
		}
		if !ok || len(w) != len(g) {
			return fmt.Sprintf("want %d elements, got %v", len(w), got)
		}
		for i := range w {
			if text := fits(w[i], g[i], names); text != "" {
				return fmt.Sprintf("[%d]%s", i, text)
			}
		}
		return ""
	case string:
		g, ok := got.(string)
		switch {
		case !ok:
		case generated.FindString(w) == w && w != "":
			if id, known := names[w]; known && id != g || len(g) < 20 {
				return fmt.Sprintf(": %s is %q", w, g)
			}
			names[w] = g
			return ""
		case moment.MatchString(w) && moment.MatchString(g):
			return ""
		}
	}
	if want != got {
		return fmt.Sprintf(": want %v, got %v", want, got)
	}
	return ""
}

func objectFits(w, g map[string]any, names map[string]string) string {
	_, open := w["…"]
	for name := range g {
		if _, ok := w[name]; !ok && !open {
			return ": member " + name + " is not wanted"
		}
	}
	for name, value := range w {
		if name == "…" {
			continue
		}
		v, ok := g[name]
		if !ok {
			return ": member " + name + " is missing"
		}
		if text := fits(value, v, names); text != "" {
			return "." + name + text
		}
	}
	return ""
}

// process is an agent on stdin and stdout. Its answers come in any order.
type process struct {
	t       *testing.T
	in      io.WriteCloser
	mu      sync.Mutex
	answers []map[string]any
	ended   chan struct{}
}

func startStdio(t *testing.T, command []string) *process {
	t.Helper()
	cmd := exec.Command(command[0], append(slices.Clone(command[1:]), "--stdio")...)
	cmd.Stderr = testWriter{t}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, in: in, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var answer map[string]any
			if err := json.Unmarshal(line, &answer); err != nil {
				t.Errorf("a line that is no JSON object: %q", line)
			}
			p.mu.Lock()
			p.answers = append(p.answers, answer)
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		in.Close()
		timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		<-p.ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("the agent does not end well when stdin is closed: %v", err)
		}
		timer.Stop()
	})
	return p
}

// call sends a line and gives the answer with the id.
func (p *process) call(line string, id any) map[string]any {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		for i, a := range p.answers {
			if a["id"] == id {
				p.answers = append(p.answers[:i:i], p.answers[i+1:]...)
				p.mu.Unlock()
				return a
			}
		}
		p.mu.Unlock()
	}
	p.t.Fatalf("no answer with id %v to %.200s", id, line)
	return nil
}

func TestMain(m *testing.M) {
	for _, name := range []string{"python3", "node"} {
		if _, err := exec.LookPath(name); err != nil {
			fmt.Fprintln(os.Stderr, "the example agents need", name)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
