package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ended begins the line in a log that tells of an end that nobody asked for.
const ended = "--- ended by itself"

// process is one process of the cluster with its own network. It is started
// again whenever it ends, as a supervisor would, unless it is held down.
type process struct {
	tb      testing.TB
	spec    childSpec
	log     string
	proxies map[string]*proxy // by what they stand before

	mu      sync.Mutex
	down    bool
	cmd     *exec.Cmd
	unasked int // ends that nobody asked for
	asked   bool
	starts  int
	counted counts // by all its lives that are over, as far as is known
}

func (p *process) url() string { return "http://" + p.spec.Listen }

// supervise runs the process until ctx ends, then kills it.
func (p *process) supervise(ctx context.Context) {
	for ctx.Err() == nil {
		p.mu.Lock()
		down := p.down
		p.mu.Unlock()
		if !down {
			p.once(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// once is one life of the process.
func (p *process) once(ctx context.Context) {
	text, err := json.Marshal(p.spec)
	if err != nil {
		p.tb.Error(err)
		return
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.tb.Error(err)
		return
	}
	defer log.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, attributes()
	// Its end tells the child that this process has ended.
	hold, err := cmd.StdinPipe()
	if err != nil {
		p.tb.Error(err)
		return
	}
	defer hold.Close()
	p.mu.Lock()
	err = cmd.Start()
	p.cmd, p.asked = cmd, false
	p.starts++
	p.mu.Unlock()
	if err != nil {
		p.tb.Error(err)
		return
	}
	gone := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ctx.Done():
			_ = cmd.Process.Kill()
		case <-gone:
		}
	})
	life, over := context.WithCancel(context.WithoutCancel(ctx))
	watching.Go(func() { p.watchCounts(life) })
	_ = cmd.Wait()
	close(gone)
	over()
	watching.Wait()
	p.mu.Lock()
	if !p.asked && ctx.Err() == nil {
		p.unasked++
		_, _ = fmt.Fprintf(log, ended+": %v\n", cmd.ProcessState)
	}
	p.cmd = nil
	p.mu.Unlock()
}

// signal sends a signal to the process, if it runs.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.asked = p.asked || s == syscall.SIGKILL || s == syscall.SIGTERM
		_ = p.cmd.Process.Signal(s)
	}
}

// hold keeps the process from being started again, or no more.
func (p *process) hold(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// kill ends the process with SIGKILL and keeps it down.
func (p *process) kill() {
	p.hold(true)
	p.signal(syscall.SIGKILL)
}

// stop ends the process as an operator does, and waits for its end.
func (p *process) stop(within time.Duration) bool {
	p.hold(true)
	p.signal(syscall.SIGTERM)
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		gone := p.cmd == nil
		p.mu.Unlock()
		if gone {
			return true
		}
	}
	p.signal(syscall.SIGQUIT)
	return false
}

// ready reports whether the process says that it is.
func (p *process) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url()+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", p.spec.Name, resp.Status)
	}
	return nil
}

// tail is the end of what the process has said, for a failed test.
func (p *process) tail(lines int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// lastWords are what the process said before each end that nobody asked for.
func (p *process) lastWords() []string {
	text, _ := os.ReadFile(p.log)
	var all []string
	before := ""
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, ended) {
			all = append(all, p.spec.Name+": "+strings.TrimSpace(before))
		}
		before = line
	}
	return all
}

// raced gives what the race detector has found in the process.
func (p *process) raced() string {
	text, _ := os.ReadFile(p.log)
	_, found, _ := strings.Cut(string(text), "WARNING: DATA RACE")
	return found[:min(len(found), 4000)]
}

// freeAddress gives a loopback address that nobody listens on. It lies below
// the ports that the system gives to connections, so that it stays free while a
// process is down.
func freeAddress(tb testing.TB, port func() int) string {
	tb.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+port())
		if l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	tb.Fatal("no free port")
	return ""
}

func writeFile(tb testing.TB, file, text string) string {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}
