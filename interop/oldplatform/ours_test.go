package oldplatform

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/executor"
	"github.com/parley-project/parley/internal/kafkatest"
	"github.com/parley-project/parley/internal/store"
)

// scene is one Kafka with topics of its own, and agents.
type scene struct {
	t       *testing.T
	brokers []string
	topics  map[string]string
	agents  *agents
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, brokers: kafkatest.Brokers(t), topics: make(map[string]string), agents: newAgents(t)}
	name := kafkatest.Topics(t)
	var all []string
	for subject, topic := range kafka.DefaultTopics() {
		s.topics[subject] = name(topic)
	}
	for _, subject := range []string{bus.SubjectOpen, bus.SubjectChanged} {
		s.topics[subject] = name(subject)
	}
	for _, topic := range s.topics {
		all = append(all, topic)
	}
	kafkatest.Create(t, s.brokers, 3, all...)
	return s
}

// args are those of a script, and more.
func (s *scene) args(more map[string]any) map[string]any {
	all := map[string]any{
		"brokers": s.brokers, "tasks": s.topics[bus.SubjectTasks], "results": s.topics[bus.SubjectResults],
		"monitoring": s.topics[bus.SubjectMonitoring], "agents": s.agents.urls(),
	}
	maps.Copy(all, more)
	return all
}

func (s *scene) bus() *kafka.Bus {
	s.t.Helper()
	b, err := kafka.New(s.t.Context(), kafka.Config{Brokers: s.brokers, Topics: s.topics, Compression: "gzip", Logger: logger(s.t)})
	check(s.t, err)
	s.t.Cleanup(func() {
		if err := b.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return b
}

func (s *scene) store() *store.DB {
	s.t.Helper()
	db, err := store.Open(s.t.Context(), filepath.Join(s.t.TempDir(), "parley.db"), store.Options{Logger: logger(s.t)})
	check(s.t, err)
	s.t.Cleanup(func() {
		if err := db.Close(); err != nil {
			s.t.Error(err)
		}
	})
	check(s.t, db.Migrate(s.t.Context()))
	return db
}

// run has something of ours work until the stop that it gives, or the end of
// the test.
func (s *scene) run(what func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := what(ctx); err != nil && ctx.Err() == nil {
			s.t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	s.t.Cleanup(stop)
	return stop
}

// bridge has a bridge of ours serve old executors.
func (s *scene) bridge(ledger bridge.Ledger) (stop func()) {
	s.t.Helper()
	exchange := bridge.NewExchange(bridge.ExchangeConfig{
		Egress: bridge.Egress{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
	})
	s.t.Cleanup(exchange.Close)
	b, err := bridge.New(bridge.Config{
		Worker: "bridge-1", Ledger: ledger, Agents: s.agents, Bus: s.bus(), Results: true, Logger: logger(s.t),
		Group: "bridges" + s.topics[bus.SubjectTasks], Adapters: []bridge.Adapter{a2a.New(a2a.Options{Exchange: exchange})},
	})
	check(s.t, err)
	return s.run(b.Run)
}

// executor is one of ours beside an old bridge.
func (s *scene) executor(db *store.DB, b *kafka.Bus) *executor.Executor {
	return executor.New(executor.Config{
		Store: db, Take: db.Publish, Bus: b, Now: time.Now, NewID: func() string { return "run-" + rand.Text() }, Jitter: mathrand.Float64,
		CancelGrace: 2 * time.Second, Logger: logger(s.t),
		Agent: func(context.Context, string) (executor.AgentInfo, bool) {
			return executor.AgentInfo{Protocol: parley.ProtocolJSONRPC, Policy: parley.OutcomeLookup, Retry: parley.DefaultRetryConfig()}, true
		},
		HandOffs: db, OldBridge: &executor.OldBridge{NewToken: rand.Text, Group: "results" + s.topics[bus.SubjectResults]},
		Requests:   &executor.Requests{Plans: db, NewID: rand.Text, Group: "requests" + s.topics[bus.SubjectTasks]},
		Monitoring: true,
	})
}

func (s *scene) deploy(db *store.DB, x *executor.Executor, source string) {
	s.t.Helper()
	catalog := executor.NewCatalog(executor.CatalogConfig{
		DB: db, Executor: x, Now: time.Now, NewID: rand.Text, KnownAgent: func(context.Context, string) bool { return true },
	})
	_, _, err := catalog.Apply(s.t.Context(), parley.ApplyRequest{Source: []byte(source)})
	check(s.t, err)
}

// audit holds everything on the shared topics to their rules, and gives how many
// results each correlation id has.
func (s *scene) audit() map[string]int {
	s.t.Helper()
	p := play(s.t, "audit.py", map[string]any{"brokers": s.brokers, "topics": map[string][]string{
		s.topics[bus.SubjectTasks]:      {"run_id", "task_id", "agent_name", "input_data", "correlation_id", "timestamp"},
		s.topics[bus.SubjectResults]:    {"run_id", "task_id", "status", "output_data", "correlation_id", "error_message", "timestamp"},
		s.topics[bus.SubjectMonitoring]: {"run_id", "step_id", "step_name", "status", "timestamp", "metadata"},
	}})
	p.end()
	if len(p.told("end")) != 1 {
		s.t.Error("the topics were not read to their end")
	}
	ended := make(map[string]int)
	for _, e := range p.told("record") {
		if e.Topic == s.topics[bus.SubjectResults] {
			var r struct {
				Correlation string `json:"correlation_id"`
			}
			check(s.t, json.Unmarshal(e.Value, &r))
			ended[r.Correlation]++
		}
	}
	return ended
}

// agents are agents of A2A 0.3, all on one address; they do what the text of the
// message says and note every call by the id of its message.
type agents struct {
	url string

	mu    sync.Mutex // protects what follows
	calls map[string]int
}

func newAgents(t *testing.T) *agents {
	a := &agents{calls: make(map[string]int)}
	srv := httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(srv.Close)
	a.url = srv.URL
	return a
}

func (a *agents) serve(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Message struct {
				MessageID string `json:"messageId"`
				Parts     []struct {
					Text string `json:"text"`
				} `json:"parts"`
			} `json:"message"`
		} `json:"params"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil || json.Unmarshal(body, &req) != nil || req.Method != "message/send" || len(req.Params.Message.Parts) == 0 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	text := req.Params.Message.Parts[0].Text
	a.mu.Lock()
	a.calls[req.Params.Message.MessageID]++
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch text {
	case "fail":
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no pap\u00ebr"}}`, req.ID)
	case "refuse":
		w.WriteHeader(http.StatusUnprocessableEntity)
	default:
		findings := `"Ü"`
		if strings.HasPrefix(text, "nul") { // which the old side would pass on
			findings = `"Ü\u0000é𝄞"`
		}
		said, _ := json.Marshal("done: " + text)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"kind":"task","id":"at-1","contextId":"ctx-1","findings":{"zeichen":%s,"n":1.5},`+
			`"status":{"state":"completed"},"artifacts":[{"artifactId":"1","parts":[{"kind":"text","text":%s}]}]}}`, req.ID, findings, said)
	}
}

// called gives how often each message has come.
func (a *agents) called() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.calls)
}

func (a *agents) urls() map[string]string {
	return map[string]string{"Writer": a.url, "Reader": a.url, "Lost": a.url}
}

// Lookup implements bridge.Agents.
func (a *agents) Lookup(_ context.Context, name string) (parley.Agent, error) {
	if a.urls()[name] == "" {
		return parley.Agent{}, parley.Errorf(parley.CodeUnknownAgent, "there is no agent %q", name)
	}
	return parley.Agent{
		ID: name, Name: name, URL: a.url, Protocol: parley.ProtocolJSONRPC, ProtocolConfig: json.RawMessage(`{"a2a":"0.3"}`),
		Timeout: 10 * time.Second, Retry: parley.RetryConfig{MaxRetries: 2, InitialDelay: 100 * time.Millisecond, MaxDelay: time.Second, Multiplier: 2},
		Status: parley.AgentActive,
	}, nil
}

func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}
