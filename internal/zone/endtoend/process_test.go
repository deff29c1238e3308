package endtoend

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/testcache"
)

// binary builds the program once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	return testcache.Program(context.Background(), "github.com/parley-project/parley/cmd/parley")
})

// process is one zone: what it is started with, and what it has written so far,
// over all its lives.
type process struct {
	t    *testing.T
	kind string // execution or verification
	file string // its configuration
	env  []string
	// announced finds the address that it says it listens on.
	announced *regexp.Regexp
	// address is what it listens on from the first start on.
	address string

	mu  sync.Mutex // protects cmd
	cmd *exec.Cmd
	out output
}

// output holds what processes write.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) since(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()[n:]
}

// start runs the zone and waits until it serves.
func (p *process) start() {
	p.t.Helper()
	for try := 0; ; try++ {
		if p.try() {
			return
		}
		if try == 20 {
			p.t.Fatalf("the %s zone does not start:\n%s", p.kind, p.out.since(0))
		}
		pause(100 * time.Millisecond) // its port may not be free yet
	}
}

func (p *process) try() bool {
	listen := p.address
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	file, err := binary()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(file, "zone", p.kind, "--config", p.file, "--zone."+p.kind+".listen", listen)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	from := len(p.out.since(0))
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	for {
		if m := p.announced.FindStringSubmatch(p.out.since(from)); m != nil {
			p.mu.Lock()
			p.cmd = cmd
			p.mu.Unlock()
			if p.address == "" { // later starts have the same one, which others read
				p.address = m[1]
			}
			return true
		}
		select {
		case <-ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// kill ends the zone without warning.
func (p *process) kill() { p.signal(syscall.SIGKILL) }

// stop has the zone end by itself.
func (p *process) stop() { p.signal(syscall.SIGTERM) }

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(s)
	for p.cmd.Process.Signal(syscall.Signal(0)) == nil {
		pause(5 * time.Millisecond)
	}
	p.cmd = nil
}

// get reads a page of the zone, "" if it does not answer.
func (p *process) get(path string) string {
	resp, err := http.Get("http://" + p.address + path)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

func pause(d time.Duration) { <-time.After(d) }

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); pause(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}
