package oldplatform

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley/interop/internal/install"
	"github.com/parley-project/parley/interop/internal/tail"
)

// event is what a script tells.
type event struct {
	Event         string          `json:"event"`
	TaskID        string          `json:"task_id"`
	RunID         string          `json:"run_id"`
	CorrelationID string          `json:"correlation_id"`
	Step          string          `json:"step"`
	StepID        string          `json:"step_id"`
	StepName      string          `json:"step_name"`
	Status        string          `json:"status"`
	Output        json.RawMessage `json:"output"`
	Error         *string         `json:"error"`
	Tries         int             `json:"tries"`
	Topic         string          `json:"topic"`
	Headers       int             `json:"headers"`
	Value         json.RawMessage `json:"value"`
	Metadata      json.RawMessage `json:"metadata"`
	Compressions  []string        `json:"compressions"`
}

// peer is a script at work.
type peer struct {
	t     *testing.T
	name  string
	stdin io.WriteCloser
	stop  func()
	ended chan struct{}

	mu     sync.Mutex // protects what follows
	events []event
	err    error
}

// play starts a script. It is stopped with the test, which fails if the script
// has ended with an error by then.
func play(t *testing.T, script string, args map[string]any) *peer {
	t.Helper()
	packages, err := install.Python(t.Context(), filepath.Join("python", "requirements.txt"))
	check(t, err)
	given, err := json.Marshal(args)
	check(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, "python3", "-u", filepath.Join("python", script), string(given))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=ignore")
	p := &peer{t: t, name: script, ended: make(chan struct{})}
	stderr := &tail.Writer{}
	cmd.Stderr = stderr
	p.stdin, err = cmd.StdinPipe()
	check(t, err)
	stdout, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 8<<20)
		for lines.Scan() {
			var e event
			err := json.Unmarshal(lines.Bytes(), &e)
			p.mu.Lock()
			p.events, p.err = append(p.events, e), err
			p.mu.Unlock()
		}
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if err != nil && ctx.Err() == nil && !slices.ContainsFunc(p.events, func(e event) bool { return e.Event == "crash" }) {
			p.err = fmt.Errorf("%s: %w\n%s", script, err, stderr)
		}
	}()
	var once sync.Once
	p.stop = func() {
		once.Do(func() {
			cancel()
			<-p.ended
			p.check()
		})
	}
	t.Cleanup(p.stop)
	return p
}

func (p *peer) check() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		p.t.Error(p.err)
		p.err = nil
	}
}

// told gives the events of one kind so far.
func (p *peer) told(kind string) (list []event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if e.Event == kind {
			list = append(list, e)
		}
	}
	return list
}

// end waits until the script has ended.
func (p *peer) end() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(2 * time.Minute):
		p.t.Errorf("%s has not ended", p.name)
	}
	p.check()
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within waits until a condition holds.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", d, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
