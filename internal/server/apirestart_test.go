package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// apis are processes of the role api that come and go, and the clients before them.
type apis struct {
	*rolesRig
	key string
	// ids are the runs by the number of their key.
	mu  sync.Mutex
	ids map[int]string // guarded by mu
}

// url gives one of those that are there, or "".
func (a *apis) url() string {
	a.rolesRig.mu.Lock()
	defer a.rolesRig.mu.Unlock()
	var urls []string
	for name, p := range a.procs {
		if strings.HasPrefix(name, "api") {
			urls = append(urls, p.url)
		}
	}
	if len(urls) == 0 {
		return ""
	}
	return urls[rand.IntN(len(urls))] //nolint:gosec // it is a load
}

// do makes one request of one of them. An answer that says nothing of use is to say when
// to come again.
func (a *apis) do(ctx context.Context, method, path, body string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url()+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name := range header {
		req.Header.Set(name, header.Get(name))
	}
	req.Header.Set("Authorization", "Bearer "+a.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		a.t.Errorf("%s %s: %s, Retry-After %q", method, path, resp.Status, resp.Header.Get("Retry-After"))
	}
	return nil, errors.New(resp.Status)
}

// begin starts run n until that was accepted, and once more: it is the same.
func (a *apis) begin(ctx context.Context, n int) {
	for times := 0; times < 2 && ctx.Err() == nil; {
		var run parley.Run
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		resp, err := a.do(one, http.MethodPost, "/api/v1/workflows/chain/execute", fmt.Sprintf(`{"input_data":{"n":"%d"},"idempotency_key":"k%d"}`, n, n), nil)
		if err == nil {
			err = errors.Join(json.NewDecoder(resp.Body).Decode(&run), resp.Body.Close())
		}
		cancel()
		if err != nil {
			wait(a.t, 20*time.Millisecond)
			continue
		}
		times++
		a.mu.Lock()
		if was, known := a.ids[n]; known && was != run.ID {
			a.t.Errorf("key %d has started %s and %s", n, was, run.ID)
		}
		a.ids[n] = run.ID
		a.mu.Unlock()
	}
}

// follow reads the event stream of a run to its end, wherever it breaks off from
// another process.
func (a *apis) follow(ctx context.Context, run string) {
	last, kind := 0, ""
	for ctx.Err() == nil && kind != string(parley.EventRunCompleted) {
		header := http.Header{"Accept": {"text/event-stream"}}
		if last > 0 {
			header.Set("Last-Event-ID", strconv.Itoa(last))
		}
		resp, err := a.do(ctx, http.MethodGet, "/api/v1/runs/"+run+"/events", "", header)
		if err != nil {
			wait(a.t, 20*time.Millisecond)
			continue
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				seq, err := strconv.Atoi(value)
				if err != nil || seq != last+1 {
					a.t.Errorf("%s: event %q comes after %d", run, value, last)
				}
				last = seq
			case "event":
				kind = value
			}
		}
		_ = resp.Body.Close()
	}
}

// TestAPIRestarts: processes of the role api are stopped and killed under load. Each
// start is accepted once, whoever is asked again with its key; event streams go on in
// another process without a gap; what is refused says when to come again.
func TestAPIRestarts(t *testing.T) {
	t.Parallel()
	r := newRolesRig(t, buildBinary(t), "postgres", 50*time.Millisecond)
	r.start("executor", "executor")
	r.start("bridge", "bridge")
	for _, name := range []string{"api-1", "api-2"} {
		r.start(name, "api")
	}
	key, err := os.ReadFile(filepath.Join(r.dir, "data", "key"))
	if err != nil {
		t.Fatal(err)
	}
	a := &apis{rolesRig: r, key: strings.TrimSpace(string(key)), ids: map[int]string{}}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	over := make(chan struct{})
	runs := a.load(ctx, over)
	for n := range 6 {
		name := fmt.Sprintf("api-%d", n%2+1)
		if n < 3 {
			a.stopOne(name)
		} else {
			r.kill(name)
		}
		wait(t, 200*time.Millisecond)
		r.start(name, "api")
		wait(t, 300*time.Millisecond)
	}
	close(over)
	count := runs()
	if ctx.Err() != nil {
		t.Fatal("the clients do not come to an end")
	}
	var page struct {
		Total int `json:"total"`
	}
	r.mu.Lock()
	api := r.procs["api-1"]
	r.mu.Unlock()
	if err := r.call(api, http.MethodGet, "/api/v1/runs?page_size=1", "", &page); err != nil || page.Total != count || len(a.ids) != count {
		t.Errorf("%d keys gave %d ids and %d runs: %v", count, len(a.ids), page.Total, err)
	}
	var ids []string
	for _, id := range a.ids {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	r.check(api, ids)
	r.stopAll()
}

// load starts runs and follows some of them until over is closed. ended waits for all
// clients, and gives how many keys there were.
func (a *apis) load(ctx context.Context, over <-chan struct{}) (ended func() int) {
	var clients sync.WaitGroup
	var mu sync.Mutex
	next := 0
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				mu.Lock()
				n := next
				next++
				mu.Unlock()
				a.begin(ctx, n)
				wait(a.t, 10*time.Millisecond)
				if n%4 == 0 {
					a.mu.Lock()
					id := a.ids[n]
					a.mu.Unlock()
					clients.Go(func() { a.follow(ctx, id) })
				}
			}
		})
	}
	return func() int { clients.Wait(); return next }
}

// stopOne ends a process as an operator does.
func (a *apis) stopOne(name string) {
	a.rolesRig.mu.Lock()
	p := a.procs[name]
	delete(a.procs, name)
	a.rolesRig.mu.Unlock()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		a.t.Errorf("%s does not stop", name)
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}
