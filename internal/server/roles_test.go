package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/kafkatest"
	"github.com/parley-project/parley/internal/pgtest"
)

// rolesRig is a database, maybe Kafka, agents that keep a log, and the processes
// of the real binary that share them.
type rolesRig struct {
	t      *testing.T
	binary string
	dir    string
	env    []string
	log    *callLog

	mu    sync.Mutex // protects what follows
	procs map[string]*roleProcess
}

// roleProcess is one `parley serve`.
type roleProcess struct {
	name, roles, url string
	cmd              *exec.Cmd
	output           *lockedBuffer
	ended            chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The workflow of these tests: three steps, of which the second is for an agent
// that must never be called twice.
const rolesWorkflow = `name: chain
steps:
  - {id: a, agent: resend, input: {text: "${workflow.input.n}"}}
  - {id: b, agent: once, input: {text: "${a.output.text}"}}
  - {id: c, agent: resend, input: {text: "${b.output.text}"}}
output: {text: "${c.output.text}"}
`

// newRolesRig makes a migrated database and what the processes need. delay is
// how long an agent works.
func newRolesRig(t *testing.T, binary, kind string, delay time.Duration) *rolesRig {
	t.Helper()
	return newRolesRigOn(t, binary, kind, delay, pgtest.Database(t))
}

// newRolesRigOn is newRolesRig for the database at a URL.
func newRolesRigOn(t *testing.T, binary, kind string, delay time.Duration, url string) *rolesRig {
	t.Helper()
	r := &rolesRig{t: t, binary: binary, dir: t.TempDir(), log: newCallLog(), procs: map[string]*roleProcess{}}
	resend := httptest.NewServer(r.log.simpleAgent("resend", delay))
	t.Cleanup(resend.Close)
	once := httptest.NewServer(r.log.a2aAgent("once", delay))
	t.Cleanup(once.Close)
	file := "listen: 127.0.0.1:0\ndata: data\nworkflows: [flows]\negress: {allow: [127.0.0.0/8]}\nlimits: {drain_grace: 2s}\nlog: {level: info}\n" +
		"agents:\n" +
		"  - {name: resend, url: \"" + resend.URL + "\", protocol: simple-a2a, outcome_unknown: resend}\n" +
		"  - {name: once, url: \"" + once.URL + "\", protocol: jsonrpc-2.0, outcome_unknown: fail}\n"
	if kind == "kafka" {
		file += r.kafkaSection()
	}
	write(t, filepath.Join(r.dir, "parley.yaml"), file)
	write(t, filepath.Join(r.dir, "flows", "chain.yaml"), rolesWorkflow)
	r.env = append(os.Environ(), "PARLEY_DATABASE__URL="+url, "PARLEY_CONFIG="+filepath.Join(r.dir, "parley.yaml"))
	r.command("migrate", "up")
	if kind == "kafka" {
		r.command("topics", "create")
	}
	t.Cleanup(r.killAll)
	return r
}

func (r *rolesRig) kafkaSection() string {
	topics := kafkatest.Topics(r.t)
	var s strings.Builder
	s.WriteString("bus:\n  kafka:\n    brokers: [" + strings.Join(kafkatest.Brokers(r.t), ", ") + "]\n    topics:\n")
	for _, name := range []string{
		"tasks", "results", "monitoring", "execution_requests", "cancellation_requests", "runs", "progress", "hints", "cancels", "changes", "dead_letters",
	} {
		s.WriteString("      " + name + ": " + topics(name) + "\n")
	}
	return s.String() + "    groups: {bridges: " + topics("bridges") + ", executors: " + topics("executors") + ", requests: " + topics("requests") + "}\n"
}

// command runs one command to its end.
func (r *rolesRig) command(args ...string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), r.binary, args...)
	cmd.Env, cmd.Dir = r.env, r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("parley %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// start starts a process with the roles and waits until it is ready.
func (r *rolesRig) start(name, roles string, args ...string) *roleProcess {
	r.t.Helper()
	p := &roleProcess{name: name, roles: roles, output: &lockedBuffer{}, ended: make(chan struct{})}
	p.cmd = exec.Command(r.binary, append([]string{"serve", "--roles", roles}, args...)...)
	p.cmd.Env, p.cmd.Dir, p.cmd.Stderr = r.env, r.dir, p.output
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	first, err := bufio.NewReader(out).ReadString('\n')
	p.url = strings.TrimSpace(first)
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	r.mu.Lock()
	r.procs[name] = p
	r.mu.Unlock()
	if err != nil {
		r.t.Fatalf("%s (%s) does not start: %v\n%s", name, roles, err, p.output)
	}
	r.awaitReady(p)
	return p
}

func (r *rolesRig) awaitReady(p *roleProcess) {
	r.t.Helper()
	r.awaitStatus(p, http.StatusOK)
}

func (r *rolesRig) get(p *roleProcess, path string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// kill ends a process with SIGKILL.
func (r *rolesRig) kill(name string) {
	r.mu.Lock()
	p := r.procs[name]
	delete(r.procs, name)
	r.mu.Unlock()
	if p != nil {
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		<-p.ended
	}
}

func (r *rolesRig) killAll() {
	r.mu.Lock()
	var names []string
	for name, p := range r.procs {
		names = append(names, name)
		if r.t.Failed() {
			r.t.Logf("%s (%s):\n%.8000s", name, p.roles, p.output)
		}
	}
	r.mu.Unlock()
	for _, name := range names {
		r.kill(name)
	}
}

// stopAll ends every process as an operator does; each has to end well.
func (r *rolesRig) stopAll() {
	r.t.Helper()
	r.mu.Lock()
	procs := r.procs
	r.procs = map[string]*roleProcess{}
	r.mu.Unlock()
	for _, p := range procs {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, p := range procs {
		select {
		case <-p.ended:
		case <-time.After(5 * time.Minute):
			_ = p.cmd.Process.Signal(syscall.SIGQUIT)
			<-p.ended
			r.t.Errorf("%s (%s) does not stop", p.name, p.roles)
		}
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			r.t.Errorf("%s (%s) ended with %d:\n%s", p.name, p.roles, code, p.output)
		}
	}
}

// call makes one request of a process with the role api.
func (r *rolesRig) call(p *roleProcess, method, path, body string, into any) error {
	key, err := os.ReadFile(filepath.Join(r.dir, "data", "key"))
	if err != nil {
		return err
	}
	c := &crashRig{t: r.t, url: p.url, key: strings.TrimSpace(string(key))}
	return c.call(method, path, body, into)
}

// execute runs the workflow once, waits for its end and gives how long that took.
func (r *rolesRig) execute(p *roleProcess, n int) time.Duration {
	r.t.Helper()
	began := time.Now()
	id := r.begin(p, n)
	var run parley.Run
	key, err := os.ReadFile(filepath.Join(r.dir, "data", "key"))
	if err != nil {
		r.t.Fatal(err)
	}
	// The event stream ends with the run: what it waits for has to be told here.
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/runs/"+id+"/events", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		r.t.Fatal(err)
	}
	took := time.Since(began)
	if err := r.call(p, http.MethodGet, "/api/v1/runs/"+id, "", &run); err != nil || run.Status != parley.RunCompleted {
		r.t.Fatalf("run %s is %s: %v %v", id, run.Status, run.Error, err)
	}
	return took
}

// begin starts a run, until it was accepted.
func (r *rolesRig) begin(p *roleProcess, n int) string {
	r.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; wait(r.t, 20*time.Millisecond) {
		var run parley.Run
		err := r.call(p, http.MethodPost, "/api/v1/workflows/chain/execute", fmt.Sprintf(`{"input_data":{"n":"%d"},"idempotency_key":"k%d"}`, n, n), &run)
		if err == nil {
			return run.ID
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("run %d is not accepted: %v\n%s", n, err, p.output)
		}
	}
}

// check waits for the ends of runs and holds histories and the agents' log to
// the promises.
func (r *rolesRig) check(p *roleProcess, ids []string) {
	r.t.Helper()
	key, err := os.ReadFile(filepath.Join(r.dir, "data", "key"))
	if err != nil {
		r.t.Fatal(err)
	}
	c := &crashRig{t: r.t, url: p.url, key: strings.TrimSpace(string(key)), output: &bytes.Buffer{}}
	for i, id := range ids {
		c.checkRun(i, id)
	}
	r.log.check(r.t)
}

// startRuns starts n runs, 16 at a time, one each pace, and gives their ids.
func (r *rolesRig) startRuns(p *roleProcess, n int, pace time.Duration) []string {
	ids := make([]string, n)
	var wg sync.WaitGroup
	next := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range next {
				ids[i] = r.begin(p, i)
			}
		})
	}
	for i := range n {
		next <- i
		wait(r.t, pace)
	}
	close(next)
	wg.Wait()
	return ids
}

// awaitShares starts runs until each of the executors has decided about one: a
// bus that hands shares out anew when somebody joins takes its time.
func (r *rolesRig) awaitShares(api *roleProcess, executors ...*roleProcess) {
	r.t.Helper()
	const first, most = 10_000, 600
	for n := range most {
		r.begin(api, first+n)
		wait(r.t, 50*time.Millisecond)
		if !slices.ContainsFunc(executors, func(p *roleProcess) bool { a, _ := r.decisions(p); return a == 0 }) {
			return
		}
	}
	r.t.Fatalf("one of %d executors decides about nothing", len(executors))
}

var decisionsLine = regexp.MustCompile(`(?m)^parley_decisions_total\{outcome="(\w+)"\} (\S+)$`)

// decisions reads how many decisions a process made, and how many of them were
// refused.
func (r *rolesRig) decisions(p *roleProcess) (accepted, refused int) {
	r.t.Helper()
	_, text, err := r.get(p, "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range decisionsLine.FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			r.t.Fatal(err)
		}
		if m[1] == "accepted" {
			accepted = int(v)
		} else {
			refused = int(v)
		}
	}
	return accepted, refused
}

// TestRoles runs the real binary in every split of the roles over processes.
func TestRoles(t *testing.T) { //nolint:tparallel // one cluster of processes at a time
	kafkatest.NeedServer(t)
	t.Parallel()
	binary := buildBinary(t)
	for _, kind := range []string{"postgres", "kafka"} {
		for _, split := range []string{"api+executor+bridge", "api,executor+bridge", "api+executor,bridge", "api,bridge+executor", "api,executor,bridge+api,executor,bridge"} {
			t.Run(kind+"/"+split, func(t *testing.T) { roleSplit(t, binary, kind, split) })
		}
		t.Run(kind+"/share", func(t *testing.T) { rolesShare(t, binary, kind) })
		t.Run(kind+"/crash", func(t *testing.T) { rolesCrash(t, binary, kind) })
		t.Run(kind+"/bridge restarts", func(t *testing.T) { bridgeRestarts(t, binary, kind) })
	}
}

// roleSplit starts the processes, runs the workflow, and stops them. A step's
// way through the processes takes milliseconds, not a sweep's second.
func roleSplit(t *testing.T, binary, kind, split string) {
	r := newRolesRig(t, binary, kind, 0)
	var api *roleProcess
	for i, roles := range strings.Split(split, "+") {
		p := r.start(fmt.Sprint("p", i), roles)
		if api == nil && strings.Contains(roles, "api") {
			api = p
		}
		status, body, err := r.get(p, "/readyz")
		var ready struct {
			Roles  []string          `json:"roles"`
			Checks map[string]string `json:"checks"`
		}
		if err := json.Unmarshal([]byte(body), &ready); err != nil || strings.Join(ready.Roles, ",") != roles || ready.Checks["database"] != "ok" || ready.Checks["bus"] != "ok" {
			t.Errorf("readyz of %s: %d %s", roles, status, body)
		}
		if status, _, err2 := r.get(p, "/healthz"); status != http.StatusOK || err != nil || err2 != nil {
			t.Errorf("healthz of %s: %d", roles, status)
		}
	}
	r.execute(api, 0) // connections and caches
	best := time.Hour
	for n := range 5 {
		best = min(best, r.execute(api, n+1))
	}
	t.Logf("%s %s: a run of three steps takes %s", kind, split, best.Round(time.Millisecond))
	if best >= time.Second {
		t.Errorf("a run of three steps takes %s", best)
	}
	r.stopAll()
	r.log.check(t)
}

// rolesShare has two executors and two bridges share runs: all of them work, and
// few decisions are made in vain (protocol.md §4.10).
func rolesShare(t *testing.T, binary, kind string) {
	r := newRolesRig(t, binary, kind, 5*time.Millisecond)
	api := r.start("api", "api")
	workers := map[string]*roleProcess{}
	for _, name := range []string{"executor-1", "executor-2", "bridge-1", "bridge-2"} {
		role, _, _ := strings.Cut(name, "-")
		workers[name] = r.start(name, role)
	}
	const runs = 200
	r.awaitShares(api, workers["executor-1"], workers["executor-2"])
	r.check(api, r.startRuns(api, runs, 0))
	for task, n := range r.log.counts() {
		if n != 1 {
			t.Errorf("task %s was called %d times", task, n)
		}
	}
	accepted, refused := 0, 0
	for _, name := range []string{"executor-1", "executor-2"} {
		a, f := r.decisions(workers[name])
		if a < runs/4 {
			t.Errorf("%s has made %d decisions about %d runs", name, a, runs)
		}
		accepted, refused = accepted+a, refused+f
	}
	t.Logf("%s: %d decisions accepted, %d refused", kind, accepted, refused)
	// Alone none or one; on a machine that is busy with other tests both executors look
	// after runs that the other one is late with. If both were told of each run, it
	// would be about one of two.
	if refused > accepted/5 {
		t.Errorf("%d of %d decisions were made in vain", refused, accepted)
	}
	r.stopAll()
}

// rolesCrash kills one of each while runs are under way: those that come back
// and those that are left to the others. Everything ends once, and the agents
// were called as their policies allow.
func rolesCrash(t *testing.T, binary, kind string) {
	r := newRolesRig(t, binary, kind, 40*time.Millisecond)
	api := r.start("api", "api")
	for _, name := range []string{"executor-1", "executor-2", "bridge-1", "bridge-2"} {
		role, _, _ := strings.Cut(name, "-")
		r.start(name, role, "--bus.kafka.instance_id", name)
	}
	const runs = 200
	ids := make(chan []string, 1)
	go func() { ids <- r.startRuns(api, runs, 10*time.Millisecond) }()
	wait(t, 400*time.Millisecond)
	r.kill("executor-1") // for good
	wait(t, 300*time.Millisecond)
	r.kill("bridge-1")
	wait(t, 200*time.Millisecond)
	r.start("bridge-1", "bridge", "--bus.kafka.instance_id", "bridge-1")
	wait(t, 300*time.Millisecond)
	r.kill("bridge-2") // for good: its claims are settled after the lease
	r.check(api, <-ids)
	r.stopAll()
}

// bridgeRestarts kills the only bridge in the middle of calls: under the same
// instance id it works again within 3 s.
func bridgeRestarts(t *testing.T, binary, kind string) {
	r := newRolesRig(t, binary, kind, 200*time.Millisecond)
	api := r.start("api", "api")
	r.start("executor", "executor")
	r.start("bridge", "bridge", "--bus.kafka.instance_id", "bridge-1")
	r.execute(api, 0)
	var ids []string
	for n := range 20 {
		ids = append(ids, r.begin(api, n+1))
	}
	for deadline := time.Now().Add(5 * time.Minute); len(r.log.counts()) < 10; wait(t, 5*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no calls under way")
		}
	}
	const most, tries = 3*time.Second + 600*time.Millisecond, 3
	took := most + 1 // the machine may be busy with something else once, not each time
	for n := 0; n < tries && took > most; n++ {
		r.kill("bridge")
		killed := time.Now()
		r.start("bridge", "bridge", "--bus.kafka.instance_id", "bridge-1")
		r.execute(api, 100+n)
		took = time.Since(killed)
		t.Logf("%s: killed, restarted and a run of three steps of 200 ms done in %s", kind, took.Round(time.Millisecond))
	}
	if took > most {
		t.Errorf("the bridge works again only after %s", took)
	}
	r.check(api, ids)
	r.stopAll()
}
