package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/server"
)

// TestTopicsOfRequests: the topics of requests are worth a warning where they may be
// wanted one day, and a fault where runs are to be started by them, for doctor, too:
// serve would not begin. As JSON the report has names like any other.
func TestTopicsOfRequests(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	cfg := server.KafkaConfig{Brokers: broker.ListenAddrs(), Used: []string{
		bus.SubjectTasks, bus.SubjectResults, bus.SubjectRuns, bus.SubjectProgress, bus.SubjectHint, bus.SubjectCancel, bus.SubjectChanged,
		bus.SubjectDeadLetters,
	}}
	if _, err := server.CreateTopics(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	brokers := "--bus.kafka.brokers=" + strings.Join(broker.ListenAddrs(), ",")
	check := func(args ...string) (exit int, said string) {
		return checkTopics(t, append([]string{brokers}, args...)...)
	}
	missing := []string{"workflow.monitoring.updates", "workflow.execution.requests", "workflow.cancellation.requests"}
	if exit, said := check(); exit != 0 || strings.Count(said, "does not exist") != len(missing) {
		t.Errorf("without requests: exit code %d\n%s", exit, said)
	}
	var report struct {
		Brokers int
		Topics  []map[string]json.RawMessage
	}
	_, text := check("-o", "json")
	if err := json.Unmarshal([]byte(text), &report); err != nil || report.Brokers != 1 || len(report.Topics) != 11 || strings.ToLower(text) != text {
		t.Errorf("as JSON: %v\n%s", err, text)
	}
	for _, topic := range report.Topics {
		if f := topic["findings"]; !bytes.HasPrefix(f, []byte("[")) || topic["plan"] == nil || topic["exists"] == nil || topic["created"] == nil {
			t.Errorf("a topic as JSON: %s", topic)
		}
	}
	exit, said := check("--bus.kafka.requests=true")
	for _, topic := range missing {
		if exit == 0 || !strings.Contains(said, topic+": it does not exist") {
			t.Errorf("with requests and without %s: exit code %d\n%s", topic, exit, said)
		}
	}
	settings := "bus:\n  kafka:\n    requests: true\n    brokers: [" + strings.Join(broker.ListenAddrs(), ",") + "]\n"
	if found, exit, said := examined(t, settings, "--timeout=1m"); exit == 0 || found["topics"].Status != checkFail {
		t.Errorf("doctor: exit code %d\n%s", exit, said)
	}
}

// TestTopicsUnwritable: what a process of the configuration publishes to and may not write
// is a warning, for doctor, too, as serve says it at its start; what another role publishes
// is none.
func TestTopicsUnwritable(t *testing.T) {
	t.Parallel()
	allow := func(name string, pattern kmsg.ACLResourcePatternType, o kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: name, Pattern: pattern, Operation: o, Allow: true}
	}
	broker, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root-password"),
		kfake.User("PLAIN", "ann", "ann-password",
			allow("*", kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLOperationDescribe), allow("*", kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLOperationDescribeConfigs),
			allow("parley.", kmsg.ACLResourcePatternTypePrefixed, kmsg.ACLOperationWrite)),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	cfg := server.KafkaConfig{Brokers: broker.ListenAddrs(), SASL: &server.KafkaSASL{
		Mechanism: "PLAIN", User: "root", Secret: func(context.Context) (string, error) { return "root-password", nil },
	}}
	if _, err := server.CreateTopics(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("ann-password"), 0o600); err != nil {
		t.Fatal(err)
	}
	const wants = "WRITE on the topic "
	brokers := strings.Join(broker.ListenAddrs(), ",")
	for roles, topics := range map[string][]string{"executor": {"orchestrator.tasks.http"}, "bridge": {"results.topic"}, "api": nil} {
		exit, said := checkTopics(t, "--bus.kafka.brokers="+brokers, "--bus.kafka.sasl.mechanism=plain", "--bus.kafka.sasl.user=ann",
			"--bus.kafka.sasl.password=file:"+password, "--roles="+roles)
		if exit != 0 || strings.Count(said, wants) != len(topics) || slices.ContainsFunc(topics, func(topic string) bool { return !strings.Contains(said, wants+topic) }) {
			t.Errorf("%s: exit code %d\n%s", roles, exit, said)
		}
	}
	found, exit, said := examined(t, "bus:\n  kafka:\n    brokers: ["+brokers+"]\n    sasl: {mechanism: plain, user: ann, password: \"file:"+password+"\"}\n", "--timeout=1m")
	if found["topics"].Status != checkWarn || !strings.Contains(said, wants+"results.topic") {
		t.Errorf("doctor: exit code %d\n%s", exit, said)
	}
}

// checkTopics is `parley topics check`.
func checkTopics(t *testing.T, args ...string) (exit int, said string) {
	t.Helper()
	var out bytes.Buffer
	a := &app{
		stdin: strings.NewReader(""), stdout: &out, stderr: &out, dir: t.TempDir(), now: time.Now, zone: time.UTC,
		terminal: func(io.Writer) (int, bool) { return 0, false },
	}
	exit = a.execute(t.Context(), append([]string{"topics", "check"}, args...))
	return exit, out.String()
}

// TestTopicsUnchecked: settings that may not be seen are named with what to allow, the rest
// is looked at all the same, and the exit code tells it from topics that are wrong. For
// doctor it is a warning.
func TestTopicsUnchecked(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	cfg := server.KafkaConfig{Brokers: broker.ListenAddrs()}
	if _, err := server.CreateTopics(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	broker.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, asked := range req.(*kmsg.DescribeConfigsRequest).Resources {
			r := kmsg.NewDescribeConfigsResponseResource()
			r.ResourceType, r.ResourceName = asked.ResourceType, asked.ResourceName
			if asked.ResourceName == "parley.runs" {
				r.ErrorCode = kerr.TopicAuthorizationFailed.Code
			}
			resp.Resources = append(resp.Resources, r)
		}
		return resp, nil, true
	})
	const wants = "DESCRIBE_CONFIGS on the topic parley.runs"
	brokers := strings.Join(broker.ListenAddrs(), ",")
	exit, said := checkTopics(t, "--bus.kafka.brokers="+brokers)
	if exit != exitNotAllowed || !strings.Contains(said, "unknown  parley.runs") || !strings.Contains(said, wants) || !strings.Contains(said, "parley.hints") {
		t.Errorf("exit code %d\n%s", exit, said)
	}
	if exit, said := checkTopics(t, "--bus.kafka.brokers="+brokers, "-o", "json"); exit != exitNotAllowed || !strings.Contains(said, `"unchecked":`) {
		t.Errorf("as JSON: exit code %d\n%s", exit, said)
	}
	found, exit, said := examined(t, "bus:\n  kafka:\n    brokers: ["+brokers+"]\n", "--timeout=1m")
	if found["topics"].Status != checkWarn || !strings.Contains(said, wants) {
		t.Errorf("doctor: exit code %d\n%s", exit, said)
	}
}
