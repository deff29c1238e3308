package a2a

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley/interop/internal/install"
)

// kind is an SDK, by language and version.
type kind string

// The SDKs, each with the newest version of its dialect that was at hand.
const (
	go10     kind = "go-2.4.0"
	go03     kind = "go-0.3.15"
	python10 kind = "python-1.3.0"
	python03 kind = "python-0.3.26"
	js10     kind = "js-1.3.0"
	js03     kind = "js-0.3.14"
	java03   kind = "java-0.3.3"
)

// command is the program of an agent, ready to get its flags.
func (k kind) command(ctx context.Context) (*exec.Cmd, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	got := installKind(k)
	if got.err != nil {
		return nil, got.err
	}
	switch k {
	case go10:
		return exec.CommandContext(ctx, filepath.Join(got.dir, "agent10")), nil
	case go03:
		return exec.CommandContext(ctx, filepath.Join(got.dir, "agent03")), nil
	case python10, python03:
		program := "agent10.py"
		if k == python03 {
			program = "agent03.py"
		}
		cmd := exec.CommandContext(ctx, "python3", filepath.Join(here, "python", program))
		cmd.Env = append(os.Environ(), "PYTHONPATH="+got.dir, "PYTHONDONTWRITEBYTECODE=1")
		return cmd, nil
	case js10:
		return exec.CommandContext(ctx, "node", filepath.Join(got.dir, "agent10.mjs")), nil
	case js03:
		return exec.CommandContext(ctx, "node", filepath.Join(got.dir, "agent03.mjs")), nil
	case java03:
		return exec.CommandContext(ctx, "java", "-XX:TieredStopAtLevel=1", "-jar", filepath.Join(got.dir, "quarkus-run.jar")), nil
	}
	return nil, fmt.Errorf("no agent %s", k)
}

// installed is where the programs of an agent are.
type installed struct {
	dir string
	err error
}

// installs has what was installed; the process has it once, like the folders
// that it stands for.
var installs struct {
	mu   sync.Mutex
	made map[string]installed
	node string
}

func installKind(k kind) installed {
	installs.mu.Lock()
	defer installs.mu.Unlock()
	name, _, _ := strings.Cut(string(k), "-")
	if name == "python" {
		name = string(k)
	}
	if got, ok := installs.made[name]; ok {
		return got
	}
	var got installed
	ctx := context.Background()
	switch k {
	case go10, go03:
		got.dir, got.err = install.Go(ctx, "./cmd/...")
	case python10:
		got.dir, got.err = install.Python(ctx, "python/requirements10.txt")
	case python03:
		got.dir, got.err = install.Python(ctx, "python/requirements03.txt")
	case js10, js03:
		got.dir, got.err = installNode(ctx)
		installs.node = got.dir
	case java03:
		got.dir, got.err = install.Maven(ctx, "java")
	}
	if installs.made == nil {
		installs.made = make(map[string]installed)
	}
	installs.made[name] = got
	return got
}

// installNode puts our programs beside their packages: Node looks for packages
// from where a program is.
func installNode(ctx context.Context) (string, error) {
	packages, err := install.Node(ctx, "node")
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "interop-a2a-")
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob("node/*.mjs")
	if err != nil {
		return "", err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil {
			return "", err
		}
	}
	return dir, os.Symlink(packages, filepath.Join(dir, "node_modules"))
}

// setup is how an agent is started.
type setup struct {
	// dual: it speaks 0.3 beside 1.0.
	dual bool
	// db is where it keeps its tasks, "" for memory. Only Python's can.
	db string
	// flags are more, which only this kind has.
	flags []string
	// public is what its card names instead of its own address.
	public string
}

// agent is a running agent.
type agent struct {
	kind  kind
	where map[string]string
	log   string
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{}
	out   *record
	// doors are the proxies in front of a settled agent.
	doors [2]*proxy
}

// record is what an agent wrote on its standard error, and after its first line
// on its standard output.
type record struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf.Len() > 1<<20 {
		return len(p), nil
	}
	return r.buf.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

// run starts an agent that writes its executions to log, and waits until it
// serves.
func run(k kind, log string, s setup) (*agent, error) {
	cmd, err := k.command(context.Background())
	if err != nil {
		return nil, err
	}
	a := &agent{kind: k, log: log, cmd: cmd, done: make(chan struct{}), out: new(record)}
	cmd.Stderr = a.out
	cmd.Args = append(cmd.Args, "--log", log, "--listen", "127.0.0.1:0")
	if k != js03 && k != java03 {
		cmd.Args = append(cmd.Args, "--grpc", "127.0.0.1:0")
	}
	if s.public != "" {
		cmd.Args = append(cmd.Args, "--public", s.public)
	}
	if s.db != "" {
		cmd.Args = append(cmd.Args, "--db", s.db)
	}
	if s.dual {
		cmd.Args = append(cmd.Args, "--dual")
	}
	cmd.Args = append(cmd.Args, s.flags...)
	// A test binary that dies takes its agents along: they end with this pipe.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	a.stdin = stdin
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadBytes('\n')
	go func() {
		defer close(a.done)
		_, _ = io.Copy(a.out, lines) // before Wait, which closes it
		_ = cmd.Wait()
	}()
	if err == nil {
		err = json.Unmarshal(line, &a.where)
	}
	if err == nil {
		err = a.healthy()
	}
	if err != nil {
		a.kill()
		return nil, fmt.Errorf("agent %s does not start: %w\n%s", k, err, a.out)
	}
	return a, nil
}

// pastParley is a client for what a test itself asks of an agent: with a
// connection for each request, since on a busy machine an agent may close one
// that has been idle for seconds just when it is used again.
func pastParley() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// healthy waits until the agent answers.
func (a *agent) healthy() error {
	var err error
	for began := time.Now(); time.Since(began) < time.Minute; {
		var resp *http.Response
		if resp, err = pastParley().Get(a.where["url"] + "/log"); err == nil {
			return resp.Body.Close()
		}
		select {
		case <-a.done:
			return errors.New("it has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return err
}

// kill ends the agent without any warning.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill()
	<-a.done
	_ = a.stdin.Close()
}

// release opens a gate.
func (a *agent) release(t *testing.T, key string) {
	t.Helper()
	if err := a.open(key); err != nil {
		t.Fatal(err)
	}
}

// open is release outside of a test's own goroutine.
func (a *agent) open(key string) error {
	resp, err := pastParley().Post(a.where["url"]+"/release?key="+url.QueryEscape(key), "", nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// entry is a line of an agent's log.
type entry struct {
	At      int64  `json:"at"`
	PID     int    `json:"pid"`
	What    string `json:"what"`
	Message string `json:"message"`
	Task    string `json:"task"`
	Context string `json:"context"`
	Text    string `json:"text"`
}

// entries is what the agent did for a run: its executions, and the cancels of
// their tasks.
func (a *agent) entries(t *testing.T, run string) (executions, cancels []entry) {
	t.Helper()
	text, err := os.ReadFile(a.log)
	if err != nil {
		t.Fatal(err)
	}
	tasks := make(map[string]bool)
	for line := range bytes.Lines(text) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		switch {
		case e.What == "cancel" && tasks[e.Task]:
			cancels = append(cancels, e)
		case e.What == "execute" && strings.HasPrefix(e.Message, "msg-"+run+"."):
			tasks[e.Task] = true
			executions = append(executions, e)
		}
	}
	return executions, cancels
}

// everything is the whole log of an agent.
func (a *agent) everything(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(a.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pool has the agents that tests share, one for each kind.
type pool struct {
	mu     sync.Mutex
	dir    string
	agents map[kind]func() (*agent, error)
}

// shared has what the whole test binary shares.
var shared pool

// close ends the agents. If tests failed it shows what these wrote, and what
// Java's is doing, which once answered nothing any more.
func (p *pool) close(failed bool) {
	for k, get := range p.agents {
		a, err := get()
		if err != nil {
			continue
		}
		if failed && k == java03 {
			_ = a.cmd.Process.Signal(syscall.SIGQUIT) // for its threads
			time.Sleep(2 * time.Second)
		}
		a.kill()
		if failed {
			fmt.Printf("%s wrote:\n%s\n", k, a.out)
		}
	}
	_ = os.RemoveAll(p.dir)
	if installs.node != "" {
		_ = os.RemoveAll(installs.node)
	}
}

// get starts the agent of a kind if nobody did.
func (p *pool) get(k kind) (*agent, error) {
	p.mu.Lock()
	if p.dir == "" {
		p.agents = make(map[kind]func() (*agent, error))
		dir, err := os.MkdirTemp("", "interop-agents-")
		if err != nil {
			p.mu.Unlock()
			return nil, err
		}
		p.dir = dir
	}
	start, ok := p.agents[k]
	if !ok {
		start = sync.OnceValues(func() (*agent, error) {
			return run(k, filepath.Join(p.dir, string(k)+".log"), setup{dual: k.dual()})
		})
		p.agents[k] = start
	}
	p.mu.Unlock()
	return start()
}

// sharedAgent is the agent of a kind that other tests use too. It speaks both
// dialects if it can.
func sharedAgent(t *testing.T, k kind) *agent {
	t.Helper()
	a, err := shared.get(k)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ownAgent is an agent that only this test has.
func ownAgent(t *testing.T, k kind, s setup) *agent {
	t.Helper()
	return ownAgentAt(t, k, filepath.Join(t.TempDir(), "log"), s)
}

// ownAgentAt goes on with a log of an earlier agent.
func ownAgentAt(t *testing.T, k kind, log string, s setup) *agent {
	t.Helper()
	a, err := run(k, log, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.kill()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", k, a.out)
		}
	})
	return a
}

// rpc posts a JSON-RPC request to an agent, past Parley.
func rpc(t *testing.T, r route, a *agent, body any) string {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url(a), bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if r.version == "1.0" {
		req.Header.Set("A2A-Version", "1.0")
	}
	resp, err := pastParley().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}
