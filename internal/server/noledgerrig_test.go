package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/kafkatest"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/server"
)

// oldSide is an executor of the existing platform and its agents, beside processes of
// the real binary that have no database.
type oldSide struct {
	*rolesRig
	peer *kafka.Bus
	// let is closed when held calls may end.
	let  chan struct{}
	once sync.Once
	sent []string // the tasks' ids

	mu      sync.Mutex                       // protects what follows
	results map[string][]records.AgentResult // by task
}

// newOldSide makes the topics and the file of the processes. The agent quick answers
// at once, held when it is let, narrow the same with two calls at a time. grace is the
// processes' limits.drain_grace.
func newOldSide(t *testing.T, brokers []string, partitions int32, grace time.Duration) *oldSide {
	t.Helper()
	o := &oldSide{
		rolesRig: &rolesRig{t: t, binary: buildBinary(t), dir: t.TempDir(), log: newCallLog(), procs: map[string]*roleProcess{}},
		let:      make(chan struct{}), results: map[string][]records.AgentResult{},
	}
	topic := kafkatest.Topics(t)
	names := []string{topic("tasks"), topic("results"), topic("dead")}
	kafkatest.Create(t, brokers, partitions, names...)
	quick := httptest.NewServer(o.log.simpleAgent("quick", 0))
	held := httptest.NewServer(o.heldAgent())
	t.Cleanup(quick.Close)
	t.Cleanup(held.Close)
	t.Cleanup(o.letGo)
	file := "listen: 127.0.0.1:0\ndata: data\negress: {allow: [127.0.0.0/8]}\nlimits: {drain_grace: " + grace.String() + "}\nbridge: {ledger: none}\n" +
		"bus:\n  kafka:\n    brokers: [" + strings.Join(brokers, ", ") + "]\n    groups: {bridges: " + topic("bridges") + "}\n" +
		"    topics: {tasks: " + names[0] + ", results: " + names[1] + ", dead_letters: " + names[2] + "}\n" +
		"agents:\n" +
		"  - {name: quick, url: \"" + quick.URL + "\", protocol: simple-a2a}\n" +
		"  - {name: held, url: \"" + held.URL + "\", protocol: simple-a2a, timeout: 200s, outcome_unknown: fail}\n" +
		"  - {name: narrow, url: \"" + held.URL + "\", protocol: simple-a2a, timeout: 200s, limits: {concurrency: 2}, outcome_unknown: fail}\n"
	write(t, filepath.Join(o.dir, "parley.yaml"), file)
	o.env = append(os.Environ(), "PARLEY_CONFIG="+filepath.Join(o.dir, "parley.yaml"))
	t.Cleanup(o.killAll)
	var err error
	o.peer, err = kafka.New(t.Context(), kafka.Config{Brokers: brokers, Topics: server.KafkaTopics(server.TopicNames{Tasks: names[0], Results: names[1], DeadLetters: names[2]})})
	if err != nil {
		t.Fatal(err)
	}
	stop, err := o.peer.Subscribe(t.Context(), bus.SubjectResults, "", o.hear)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = o.peer.Close() })
	return o
}

func (o *oldSide) letGo() { o.once.Do(func() { close(o.let) }) }

// heldAgent notes a call, and answers when it is let. It goes on when the caller has
// hung up: what it has begun costs.
func (o *oldSide) heldAgent() http.Handler {
	answer := o.log.simpleAgent("held", 0)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held := httptest.NewRecorder()
		answer.ServeHTTP(held, r)
		<-o.let
		_, _ = w.Write(held.Body.Bytes())
	})
}

func (o *oldSide) hear(_ context.Context, m bus.Message) error {
	r, err := records.DecodeResult(m.Value)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.results[r.TaskID] = append(o.results[r.TaskID], r)
	return nil
}

// send publishes n tasks for an agent, each of a run of its own.
func (o *oldSide) send(agent string, n int) {
	o.t.Helper()
	for range n {
		id := fmt.Sprintf("%s-%d", agent, len(o.sent))
		o.sent = append(o.sent, id)
		v, err := records.AgentTask{
			RunID: "run-" + id, TaskID: id, AgentName: agent, Input: json.RawMessage(`{"text":"hi"}`), CorrelationID: "corr-" + id, At: time.Now(),
		}.Encode()
		if err == nil {
			err = o.peer.Publish(o.t.Context(), bus.Message{Subject: bus.SubjectTasks, Key: "run-" + id, Value: v})
		}
		if err != nil {
			o.t.Fatal(err)
		}
	}
}

// start starts a bridge without a database.
func (o *oldSide) start(name string, args ...string) *roleProcess {
	o.t.Helper()
	return o.rolesRig.start(name, "bridge", args...)
}

// awaitCalls waits until so many of an agent's tasks were called.
func (o *oldSide) awaitCalls(agent string, n int) {
	o.t.Helper()
	o.await(fmt.Sprintf("%d calls of %s", n, agent), func() bool {
		seen := 0
		for task := range o.log.counts() {
			if strings.HasPrefix(task, agent+"-") {
				seen++
			}
		}
		return seen >= n
	})
}

// awaitResults waits until each task that was sent has a result.
func (o *oldSide) awaitResults() {
	o.t.Helper()
	o.await("a result of each task", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.results) == len(o.sent)
	})
	wait(o.t, time.Second) // what comes twice, comes now
}

func (o *oldSide) await(what string, is func() bool) {
	o.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !is(); wait(o.t, 10*time.Millisecond) {
		if time.Now().After(deadline) || o.t.Context().Err() != nil {
			o.t.Fatalf("there is not: %s", what)
		}
	}
}

// terminate sends SIGTERM, and gives what waits for the end, which has to be a good
// one, and tells how long it took.
func (o *oldSide) terminate(name string) (ended func() time.Duration) {
	o.t.Helper()
	o.rolesRig.mu.Lock()
	p := o.procs[name]
	delete(o.procs, name)
	o.rolesRig.mu.Unlock()
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		o.t.Fatal(err)
	}
	return func() time.Duration {
		o.t.Helper()
		o.awaitEnd(p)
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			o.t.Errorf("%s ended with %d:\n%s", name, code, p.output)
		}
		return time.Since(began)
	}
}

// end is terminate for a process that may not be able to end well.
func (o *oldSide) end(name string) time.Duration {
	o.t.Helper()
	o.rolesRig.mu.Lock()
	p := o.procs[name]
	delete(o.procs, name)
	o.rolesRig.mu.Unlock()
	began := time.Now()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	o.awaitEnd(p)
	return time.Since(began)
}

func (o *oldSide) awaitEnd(p *roleProcess) {
	o.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(5 * time.Minute):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.ended
		o.t.Errorf("%s does not stop:\n%s", p.name, p.output)
	}
}

// judge holds every task to one result that says the same as all others, and to the
// number of calls that may is for it.
func (o *oldSide) judge(may func(task string) int) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	calls := o.log.counts()
	repeated, doubled := 0, 0
	for _, id := range o.sent {
		for _, r := range o.results[id] {
			if r.Status != records.StatusSuccess {
				o.t.Errorf("%s: %+v", id, r)
			}
		}
		if n := len(o.results[id]); n == 0 || n > calls[id] {
			o.t.Errorf("%s has %d results of %d calls", id, n, calls[id])
		}
		if calls[id] > may(id) {
			o.t.Errorf("%s was called %d times, want at most %d", id, calls[id], may(id))
		}
		repeated += calls[id] - 1
		doubled += len(o.results[id]) - 1
	}
	o.t.Logf("%d tasks, %d calls more than that, %d results more", len(o.sent), repeated, doubled)
}

// atMost gives every task so many calls.
func atMost(n int) func(string) int { return func(string) int { return n } }
