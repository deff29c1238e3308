package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/logging"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/server"
)

// deadPage is a page of GET /dead-letters.
type deadPage struct {
	Items []parley.DeadLetter `json:"items"`
	Total int                 `json:"total"`
}

// deadLetters reads what a query selects.
func (w *world) deadLetters(query string) (p deadPage) {
	w.t.Helper()
	status, body := w.call("GET", "/api/v1/dead-letters?"+query, "")
	if err := json.Unmarshal(body, &p); err != nil || status != http.StatusOK {
		w.t.Fatalf("%d %s: %v", status, body, err)
	}
	return p
}

// TestDeadLetterReplay: a task that has used up its policy is one dead letter; a
// replay goes on from its step, calls nobody again who has answered, and can be
// had once.
func TestDeadLetterReplay(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	var calls atomic.Int64
	fails := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) <= 2 {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		log.simpleAgent("two", 0).ServeHTTP(w, r)
	})
	w := newWorld(t, map[string]http.Handler{"one simple-a2a": log.simpleAgent("one", 0), "two simple-a2a": fails}, `
name: again
steps:
  - {id: a, agent: one, input: {v: 1}}
  - {id: b, agent: two, input: "${a.output}", retry: {attempts: 2, delay: 10ms, on: ["*"]}}
`)
	old := w.run("again", `{}`)
	if old.Status != parley.RunFailed || calls.Load() != 2 {
		t.Fatalf("%s after %d calls: %v", old.Status, calls.Load(), old.Error)
	}
	page := w.deadLetters("agent=two&workflow=again&state=waiting&run_id=" + old.ID)
	if page.Total != 1 {
		t.Fatalf("%+v", page)
	}
	l := page.Items[0]
	if l.Step != "b" || l.Attempts != 2 || l.HTTPStatus != 500 || l.Kind != parley.DeadLetterTask || l.FirstFailedAt.After(l.CreatedAt) {
		t.Errorf("%+v", l)
	}
	status, body := w.call("POST", "/api/v1/dead-letters/"+l.ID+"/replay", "")
	if err := json.Unmarshal(body, &l); err != nil || status != http.StatusAccepted || l.State != parley.DeadLetterReplayed || l.ResolvedBy != "system" {
		t.Fatalf("replay: %d %s", status, body)
	}
	if run := w.end(l.ReplayRun); run.Status != parley.RunCompleted || run.RetriedFrom != old.ID {
		t.Errorf("%s from %q: %v", run.Status, run.RetriedFrom, run.Error)
	}
	if n := len(log.counts()); n != 2 || calls.Load() != 3 {
		t.Errorf("%d tasks were executed, agent two was called %d times", n, calls.Load())
	}
	if status, body := w.call("POST", "/api/v1/dead-letters/"+l.ID+"/replay", ""); status != http.StatusConflict {
		t.Errorf("again: %d %s", status, body)
	}
	if status, body := w.call("POST", "/api/v1/dead-letters:replay", `{"filter":{}}`); status != http.StatusOK || !strings.Contains(string(body), `"matched":0`) {
		t.Errorf("the rest: %d %s", status, body)
	}
}

// TestDeadLettersByFilter: many are replayed together, at a rate, and those that
// fail again wait as new ones.
func TestDeadLettersByFilter(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	var healed atomic.Bool
	flaky := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !healed.Load() {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		log.simpleAgent("flaky", 0).ServeHTTP(w, r)
	})
	w := newWorld(t, map[string]http.Handler{"flaky simple-a2a": flaky}, "name: one\nsteps: [{id: a, agent: flaky, input: {v: 1}}]\n")
	const runs = 12
	for range runs {
		w.run("one", `{}`)
	}
	healed.Store(true)
	body := `{"filter":{"agent":"flaky"},"rate":100,"limit":5`
	after, replayed := "", 0
	for range 4 {
		var report parley.ReplayReport
		status, answer := w.call("POST", "/api/v1/dead-letters:replay", body+after+"}")
		if err := json.Unmarshal(answer, &report); err != nil || status != http.StatusOK || report.Failed > 0 {
			t.Fatalf("%d %s", status, answer)
		}
		replayed += report.Replayed
		if report.Next == "" {
			break
		}
		after = `,"after":"` + report.Next + `"`
	}
	if replayed != runs || w.deadLetters("state=waiting").Total != 0 {
		t.Errorf("%d replayed, %d wait", replayed, w.deadLetters("state=waiting").Total)
	}
	for _, l := range w.deadLetters("page_size=100").Items {
		if run := w.end(l.ReplayRun); run.Status != parley.RunCompleted {
			t.Errorf("%s: %v", run.Status, run.Error)
		}
	}
}

// TestPoisonRecords: what no executor could have sent moves the partition on: it
// is kept with its bytes and where it was, its copy goes to the topic of dead
// letters, and what may be published again comes again.
func TestPoisonRecords(t *testing.T) {
	t.Parallel()
	cfg, topic := onKafka(t)
	w := &world{t: t, cfg: server.Config{
		Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", Kafka: &cfg, DrainGrace: 100 * time.Millisecond,
		BridgeGroup: topic("bridges"), ExecutorGroup: topic("executors"),
	}}
	w.server = startServer(t, w.cfg)
	waitFor(t, "the server is not ready:", func() bool { status, _ := w.call("GET", "/readyz", ""); return status == http.StatusOK })
	copies := make(chan bus.Message, 20)
	peer, err := kafka.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	stop, err := peer.Subscribe(t.Context(), bus.SubjectDeadLetters, "", func(_ context.Context, m bus.Message) error {
		copies <- m
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	raw, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.DefaultProduceTopic(topic("tasks")), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	poison := map[string]*kgo.Record{
		"garbage":   {Value: []byte("\x00\xff\xfe"), Key: []byte("\xff")},
		"truncated": {Value: []byte(`{"run_id": "r", "task_i`)},
		"tombstone": {Key: []byte("r")},
		"nobody":    {Value: []byte(`{"agent_name": "writer"}`), Headers: []kgo.RecordHeader{{Key: "authorization", Value: []byte("hunter2")}, {Key: "x", Value: []byte{0xff}}}},
	}
	for name, r := range poison {
		if err := raw.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(name, err)
		}
	}
	waitFor(t, "four dead letters do not come:", func() bool { return w.deadLetters("kind=record").Total == len(poison) })
	byOffset := map[int64]parley.DeadLetter{}
	for _, l := range w.deadLetters("topic=" + topic("tasks")).Items {
		_, body := w.call("GET", "/api/v1/dead-letters/"+l.ID, "")
		if err := json.Unmarshal(body, &l); err != nil || strings.Contains(string(body), "hunter2") {
			t.Fatalf("%s: %v", body, err)
		}
		byOffset[l.Source.Offset] = l
	}
	for name, r := range poison {
		l := byOffset[r.Offset]
		if string(l.Value) != string(r.Value) || string(l.Key) != string(r.Key) || l.Tombstone != (r.Value == nil) || l.Source.Group != topic("bridges") {
			t.Errorf("%s: kept as %+v", name, l)
		}
	}
	for range poison {
		m := take(t, copies)
		offset, err := strconv.ParseInt(m.Header["__dlq.errors.offset"], 10, 64)
		if l := byOffset[offset]; err != nil || m.Header["dlq.id"] != l.ID || string(m.Value) != string(l.Value) || m.Key != string(l.Key) || (m.Value == nil) != l.Tombstone {
			t.Errorf("copy %+v", m)
		}
	}
	// Two of them must not be on a topic that old peers read; one can come again.
	garbage, nobody := byOffset[poison["garbage"].Offset], byOffset[poison["nobody"].Offset]
	if status, body := w.call("POST", "/api/v1/dead-letters/"+garbage.ID+"/replay", ""); status != http.StatusUnprocessableEntity || !strings.Contains(string(body), "discard this one") {
		t.Errorf("garbage: %d %s", status, body)
	}
	if status, body := w.call("POST", "/api/v1/dead-letters/"+nobody.ID+"/replay", ""); status != http.StatusAccepted {
		t.Errorf("nobody: %d %s", status, body)
	}
	m := take(t, copies)
	from := topic("tasks") + "/0/" + strconv.FormatInt(poison["nobody"].Offset, 10)
	if m.Header["redriven-from"] != from || m.Header["x"] != "\xff" || m.Header["authorization"] != "" || string(m.Value) != `{"agent_name": "writer"}` {
		t.Errorf("redriven: %+v", m)
	}
	if p := w.deadLetters("state=waiting"); p.Total != len(poison) {
		t.Errorf("%d wait", p.Total)
	}
	replayForeign(w, peer, topic)
}

// TestFloodOfPoison: a sender that is broken costs the log lines by time, not by
// record, and each of its records is a dead letter.
func TestFloodOfPoison(t *testing.T) {
	t.Parallel()
	cfg, topic := onKafka(t)
	conf := onDatabase(t, "sqlite")
	var log lockedBuffer
	conf.Kafka, conf.Requests, conf.RequestGroup, conf.Logger = &cfg, true, topic("requests"), logging.New(&log, logging.Config{})
	conf.BridgeGroup, conf.ExecutorGroup = topic("bridges"), topic("executors")
	w := &world{t: t, cfg: conf, server: startServer(t, conf)}
	raw, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	send := func(from, to int) {
		t.Helper()
		var all []*kgo.Record
		for n := from; n < to; n++ {
			key := []byte("run-" + strconv.Itoa(n))
			all = append(all,
				&kgo.Record{Topic: topic("tasks"), Key: key, Value: fmt.Appendf(nil, "no JSON %d", n)},
				&kgo.Record{Topic: topic("starts"), Key: key, Value: fmt.Appendf(nil, `{"run_id": "run-%d", "workflow_plan": {"name": "%[1]d"}}`, n)},
			)
		}
		if err := raw.ProduceSync(t.Context(), all...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(subject string) int { return w.deadLetters("kind=record&topic=" + topic(subject)).Total }
	waitFor(t, "nobody reads the topics:", func() bool { // a group begins with what is published once it is there
		send(0, 1)
		return kept("tasks") > 0 && kept("starts") > 0
	})
	const records = 400
	send(1, 1+records)
	waitFor(t, "the dead letters do not come:", func() bool { return kept("tasks") > records && kept("starts") > records })
	for _, line := range []string{"task record refused", "a record cannot be handled; it is a dead letter", "a record is a dead letter"} {
		if n := strings.Count(log.String(), line); n == 0 || n > records/4 {
			t.Errorf("%d lines %q", n, line)
		}
	}
}

// replayForeign: the task of an old executor that fails for good is a dead letter
// with the place of its record; its replay is a task of its own, whose result
// follows the first.
func replayForeign(w *world, peer *kafka.Bus, topic func(string) string) {
	t := w.t
	results := make(chan bus.Message, 10)
	stop, err := peer.Subscribe(t.Context(), bus.SubjectResults, "", func(_ context.Context, m bus.Message) error {
		results <- m
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	value, err := records.AgentTask{RunID: "run-old", TaskID: "task-old", AgentName: "nobody", CorrelationID: "corr-old", At: time.Now()}.Encode()
	if err == nil {
		err = peer.Publish(t.Context(), bus.Message{Subject: bus.SubjectTasks, Key: "run-old", Value: value})
	}
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		m := take(t, results)
		r, err := records.DecodeResult(m.Value)
		if err != nil || r.Status != records.StatusFailure || r.TaskID != "task-old" || r.CorrelationID != "corr-old" {
			t.Errorf("result %s: %v", m.Value, err)
		}
		waitFor(t, "no dead letter of the old task:", func() bool { return w.deadLetters("kind=foreign_task").Total == n })
		l := w.deadLetters("kind=foreign_task&state=waiting").Items[0]
		if l.Source == nil || l.Source.Topic != topic("tasks") || l.Task != "task-old" || l.Reason != r.Error {
			t.Errorf("%+v", l)
		}
		if n == 1 {
			if status, body := w.call("POST", "/api/v1/dead-letters/"+l.ID+"/replay", ""); status != http.StatusAccepted {
				t.Fatalf("%d %s", status, body)
			}
		}
	}
}

func take(t *testing.T, from chan bus.Message) bus.Message {
	t.Helper()
	select {
	case m := <-from:
		return m
	case <-time.After(5 * time.Minute):
		t.Fatal("no copy on the topic of dead letters")
		return bus.Message{}
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what, "5 minutes are over")
		}
	}
}
