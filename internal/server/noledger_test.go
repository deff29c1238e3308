package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/server"
)

// TestBridgeWithoutLedger: a bridge without a database takes the tasks of an
// executor of the existing platform, calls agents of its configuration and those
// that the old API knows, and gives one result for each. What fails, and what it
// cannot read, goes to the topic of dead letters.
func TestBridgeWithoutLedger(t *testing.T) {
	t.Parallel()
	log := newCallLog()
	agent := httptest.NewServer(log.a2aAgent("listed", 0))
	defer agent.Close()
	other := httptest.NewServer(log.a2aAgent("found", 0))
	defer other.Close()
	oldAPI := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		items := []any{}
		if r.URL.Query().Get("name") == "found" {
			items = append(items, map[string]any{"id": "1", "name": "found", "url": other.URL, "auth_type": "none", "status": "active", "timeout_ms": 30000})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items, "total": len(items)})
	}))
	defer oldAPI.Close()

	cfg, topic := onKafka(t)
	peer, err := kafka.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	results := make(chan bus.Message, 10)
	stop, err := peer.Subscribe(t.Context(), bus.SubjectResults, "", func(_ context.Context, m bus.Message) error {
		results <- m
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	letters := make(chan bus.Message, 10)
	stopLetters, err := peer.Subscribe(t.Context(), bus.SubjectDeadLetters, "", func(_ context.Context, m bus.Message) error {
		letters <- m
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stopLetters()
	spec := parley.AgentSpec{Name: new("listed"), URL: &agent.URL, Protocol: new(parley.ProtocolJSONRPC), By: "test"}
	s := startServer(t, server.Config{
		Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", Roles: []server.Role{server.RoleBridge}, NoLedger: true,
		Kafka: &cfg, BridgeGroup: topic("bridges"), EgressAllow: []string{"127.0.0.0/8"}, AgentSpecs: []parley.AgentSpec{spec},
		Lookup: server.LookupURLs{API: oldAPI.URL}, DrainGrace: 100 * time.Millisecond,
	})
	resp, err := http.Get(s.URL() + "/healthz")
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("healthz: %v", err)
	}
	if err := peer.Publish(t.Context(), bus.Message{Subject: bus.SubjectTasks, Key: "run-1", Value: []byte(`{"agent_name": "listed"}`)}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"corr-listed": "SUCCESS", "corr-found": "SUCCESS", "corr-nobody": "FAILURE"}
	for _, name := range []string{"listed", "found", "nobody"} {
		v, err := records.AgentTask{
			RunID: "run-1", TaskID: "task-" + name, AgentName: name, Input: json.RawMessage(`{"text":"hi"}`), CorrelationID: "corr-" + name, At: time.Now(),
		}.Encode()
		if err == nil {
			err = peer.Publish(t.Context(), bus.Message{Subject: bus.SubjectTasks, Key: "run-1", Value: v})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		select {
		case m := <-results:
			var r struct {
				Status string `json:"status"`
			}
			if err := json.Unmarshal(m.Value, &r); err != nil || want[m.Key] != r.Status {
				t.Errorf("result of %q: %s", m.Key, m.Value)
			}
			delete(want, m.Key)
		case <-time.After(5 * time.Minute):
			t.Fatalf("no results for %v", want)
		}
	}
	classes := map[string]string{}
	for range 2 {
		m := take(t, letters)
		classes[m.Header["dlq.agent"]] = m.Header["dlq.error.class"]
		if m.Header["__dlq.errors.topic"] != topic("tasks") || m.Header["__dlq.errors.group"] != topic("bridges") || m.Header["__dlq.errors.offset"] == "" {
			t.Errorf("%+v", m)
		}
	}
	if classes["listed"] != "invalid" || classes["nobody"] != "unknown_agent" {
		t.Errorf("dead letters %v", classes)
	}
}
