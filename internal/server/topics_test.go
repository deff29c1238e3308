package server_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/kafkatest"
	"github.com/parley-project/parley/internal/server"
)

// TestTopicsAreLookedAtFirst: a process without a topic that it listens to is not
// built, and one whose topics are not as they should be says so once.
func TestTopicsAreLookedAtFirst(t *testing.T) {
	t.Parallel()
	brokers, topic := kafkatest.Brokers(t), kafkatest.Topics(t)
	names := server.TopicNames{
		Tasks: topic("tasks"), Results: topic("results"), Runs: topic("runs"), Progress: topic("progress"), Hints: topic("hints"),
		Cancels: topic("cancels"), Changes: topic("changes"), DeadLetters: topic("dead"),
	}
	var log lockedBuffer
	cfg := server.Config{
		Data: filepath.Join(t.TempDir(), "data"), Listen: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Kafka: &server.KafkaConfig{Brokers: brokers, Topics: server.KafkaTopics(names)}, BridgeGroup: topic("bridges"), ExecutorGroup: topic("executors"),
	}
	kafkatest.Create(t, brokers, 12, names.Tasks, names.Results, names.Runs, names.Progress, names.Cancels)
	_, err := server.New(t.Context(), cfg)
	if parley.CodeOf(err) != parley.CodeNotFound || !strings.Contains(err.Error(), names.Hints) || strings.Contains(err.Error(), names.Tasks) ||
		!strings.Contains(err.Error(), "parley topics create") {
		t.Fatalf("without the topic of hints: %v", err)
	}
	kafkatest.Create(t, brokers, 3, names.Hints)
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	text := log.String()
	for _, want := range []string{"topic=" + names.Hints + " finding=\"it has 3 partitions", "topic=" + names.DeadLetters + " finding=\"it does not exist"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is not once in the log:\n%s", want, text)
		}
	}
	if strings.Contains(text, "workflow.execution.requests") {
		t.Errorf("a topic that is not used is spoken of:\n%s", text)
	}
}

// TestTopicsOfABridgeWithoutLedger: it is told nothing of topics that it does not use.
func TestTopicsOfABridgeWithoutLedger(t *testing.T) {
	t.Parallel()
	brokers, topic := kafkatest.Brokers(t), kafkatest.Topics(t)
	report, err := server.CreateTopics(t.Context(), server.KafkaConfig{
		Brokers: brokers, Used: server.LedgerlessSubjects(),
		Topics: server.KafkaTopics(server.TopicNames{Tasks: topic("tasks"), Results: topic("results"), DeadLetters: topic("dead")}),
	})
	if err != nil {
		t.Fatal(err)
	}
	var subjects []string
	for _, r := range report.Topics {
		subjects = append(subjects, r.Plan.Subject)
	}
	want := []string{bus.SubjectDeadLetters, bus.SubjectResults, bus.SubjectTasks}
	if strings.Join(subjects, " ") != strings.Join(want, " ") || report.Err() != nil {
		t.Errorf("%v, want %v: %v", subjects, want, report.Err())
	}
}
