package server_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/kafkatest"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
)

// startPoints are the moments at which TestC8_TriggerFailpoints lets the process
// die: before and after each commit between an event that is accepted and the runs
// that it starts.
var startPoints = []string{
	"signal.before", "signal.after", "take-starts.before", "take-starts.after", "P1.before", "P1.after", "end-start.before", "end-start.after",
}

// TestC8_TriggerFailpoints lets a server die at each of these moments, on both
// databases, and starts it again: every event that was accepted starts one run, and
// no event starts two.
func TestC8_TriggerFailpoints(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		for _, point := range startPoints {
			t.Run(kind+"/"+point, func(t *testing.T) {
				t.Parallel()
				dieBeforeTheRun(t, kind, &death{point: point, passage: 2, dead: make(chan struct{})})
			})
		}
	}
}

// onKafka creates the topics of a test. topic gives them their names, by what they are
// for, and names groups and other topics that are the own of this test, too.
func onKafka(t *testing.T) (cfg kafka.Config, topic func(string) string) {
	t.Helper()
	topic = kafkatest.Topics(t)
	cfg = kafka.Config{Brokers: kafkatest.Brokers(t), Topics: server.KafkaTopics(server.TopicNames{
		Tasks: topic("tasks"), Results: topic("results"), Monitoring: topic("monitoring"), ExecutionRequests: topic("starts"),
		CancellationRequests: topic("stops"), Runs: topic("runs"), Progress: topic("progress"), Hints: topic("hints"),
		Cancels: topic("cancels"), Changes: topic("changes"), DeadLetters: topic("dead"),
	})}
	// One broker makes the topics of many tests; on a busy machine it may take longer than
	// a person would be kept waiting.
	for deadline := time.Now().Add(5 * time.Minute); ; {
		_, err := server.CreateTopics(t.Context(), cfg)
		if err == nil {
			return cfg, topic
		}
		if parley.CodeOf(err) != parley.CodeUnavailable || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// onDatabase gives the configuration of a server with workflows.
func onDatabase(t *testing.T, kind string, flows ...string) server.Config {
	t.Helper()
	dir := t.TempDir()
	for i, flow := range flows {
		write(t, filepath.Join(dir, "flows", fmt.Sprintf("%d.yaml", i)), flow)
	}
	cfg := server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", SecretsDir: filepath.Join(dir, "secrets"), DrainGrace: time.Millisecond,
	}
	if len(flows) > 0 {
		cfg.WorkflowDirs = []string{filepath.Join(dir, "flows")}
	}
	if kind == "postgres" {
		cfg.DatabaseURL, cfg.SealKeyFile = parley.NewSecret([]byte(pgtest.Database(t))), filepath.Join(dir, "seal")
	}
	return cfg
}

func dieBeforeTheRun(t *testing.T, kind string, d *death) {
	cfg := onDatabase(t, kind, "name: ship\ntriggers: [{event: {name: paid, input: {n: \"${event.data}\"}}}]\nsteps: [{id: a, set: 1}]\n")
	first := cfg
	first.Failpoint = d.hit
	var accepted []string
	if s, err := server.New(t.Context(), first); err == nil {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = s.Run(ctx) }()
		for n := 0; n < 20 && !d.isGone(); n++ {
			_, err := s.Executor().Signal(ctx, parley.SignalRequest{Signal: parley.Signal{ID: fmt.Sprint("e", n), Name: "paid", Data: fmt.Append(nil, n)}})
			if err == nil {
				accepted = append(accepted, fmt.Sprintf(`{"n":%d}`, n))
			}
			select {
			case <-d.dead:
			case <-time.After(50 * time.Millisecond):
			}
		}
		stop()
		<-ended
	}
	if !d.isGone() {
		t.Fatalf("failpoint %s was not passed %d times", d.point, d.passage)
	}
	again := startServer(t, cfg)
	w := &world{t: t, cfg: cfg, server: again}
	waitFor(t, "the runs of accepted events do not come:", func() bool {
		got := w.inputs() // also of an event that was written, but not answered
		return !slices.ContainsFunc(accepted, func(want string) bool { return !slices.Contains(got, want) })
	})
	time.Sleep(1500 * time.Millisecond)
	got := w.inputs()
	slices.Sort(got)
	if once := slices.Compact(slices.Clone(got)); len(once) != len(got) {
		t.Errorf("one event has started two runs: %q", got)
	}
}

// inputs gives the inputs of all runs.
func (w *world) inputs() (list []string) {
	w.t.Helper()
	status, b := w.call("GET", "/api/v1/runs?page_size=100", "")
	var page struct{ Items []parley.Run }
	if err := json.Unmarshal(b, &page); err != nil || status != http.StatusOK {
		w.t.Fatalf("%d %s", status, b)
	}
	for i := range page.Items {
		var compact any
		if err := json.Unmarshal(page.Items[i].Input, &compact); err != nil {
			w.t.Fatal(err)
		}
		text, _ := json.Marshal(compact)
		list = append(list, string(text))
	}
	return list
}

// hook delivers to a webhook as its sender does, without a key.
func (w *world) hook(path, secret, body string) string {
	w.t.Helper()
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.server.URL()+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("X-Parley-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	req.Header.Set("User-Agent", "shop")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if strings.Contains(string(answer), secret) {
		w.t.Errorf("the answer has the secret: %s", answer)
	}
	var got struct{ Status, Code any }
	if err := json.Unmarshal(answer, &got); err != nil {
		w.t.Fatalf("%s: %v", answer, err)
	}
	return fmt.Sprint(resp.StatusCode, " ", got.Status, " ", got.Code)
}

// TestC7_WebhookAcrossTheServer: over HTTP, with a secret in a file that changes
// while the server runs, on both databases.
func TestC7_WebhookAcrossTheServer(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cfg := onDatabase(t, kind, "name: Order in\ntriggers: [{webhook: {secret: \"file:hook\", if: event.body.n > 0, input: {n: \"${event.body.n}\", by: \"${event.headers['user-agent']}\"}}}]\nsteps: [{id: a, set: 1}]\n")
			write(t, filepath.Join(cfg.SecretsDir, "hook"), "secret-1\n")
			w := &world{t: t, cfg: cfg, server: startServer(t, cfg)}
			got := []string{
				w.hook("/hooks/order-in", "secret-1", `{"n":1}`), w.hook("/api/v1/hooks/Order%20in", "secret-1", `{"n":1}`),
				w.hook("/hooks/order-in", "secret-1", `{"n":0}`), w.hook("/hooks/order-in", "secret-2", `{"n":1}`),
				w.hook("/hooks/order-in", "secret-1", `{}`), w.hook("/hooks/order", "secret-1", `{}`),
			}
			write(t, filepath.Join(cfg.SecretsDir, "hook"), "secret-2\n")
			got = append(got, w.hook("/hooks/order-in", "secret-2", `{"n":2}`), w.hook("/hooks/order-in", "secret-1", `{"n":3}`))
			want := []string{
				"202 started <nil>", "200 repeated <nil>", "202 ignored <nil>", "401 401 unauthorized", "422 422 expression", "404 404 not_found",
				"202 started <nil>", "401 401 unauthorized",
			}
			if !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			inputs := w.inputs()
			slices.Sort(inputs)
			if !slices.Equal(inputs, []string{`{"by":"shop","n":1}`, `{"by":"shop","n":2}`}) {
				t.Errorf("runs of %q", inputs)
			}
		})
	}
}

// TestTrigger_KafkaRecordsStartRuns: on a real Kafka, by two servers that share
// their work; a topic that is deployed while they run is read without a restart,
// and one that is not there makes nobody unready.
func TestTrigger_KafkaRecordsStartRuns(t *testing.T) {
	t.Parallel()
	cfg, topic := onKafka(t)
	kafkatest.Create(t, cfg.Brokers, 3, topic("orders"))
	conf := onDatabase(t, "postgres")
	conf.Kafka, conf.BridgeGroup, conf.ExecutorGroup = &cfg, topic("bridges"), topic("executors")
	w := &world{t: t, cfg: conf, server: startServer(t, conf)}
	second := conf
	second.Data = filepath.Join(t.TempDir(), "data")
	startServer(t, second)
	deploy := func(doc string) (warnings int) {
		status, b := w.call("POST", "/api/v1/workflows", doc)
		var v struct{ Warnings []parley.Problem }
		if err := json.Unmarshal(b, &v); err != nil || status != http.StatusCreated {
			t.Fatalf("%d %s", status, b)
		}
		return len(v.Warnings)
	}
	n := deploy(`{"name":"order","input":{"type":"object","required":["n"]},"triggers":[{"kafka":{"topic":"` + topic("orders") + `","input":"${event.data}"}}],"steps":[{"id":"a","set":1}]}`)
	n += deploy(`{"name":"nowhere","triggers":[{"kafka":{"topic":"` + topic("nowhere") + `"}}],"steps":[{"id":"a","set":1}]}`)
	if n != 0 || deploy(`{"name":"ours","triggers":[{"kafka":{"topic":"`+topic("runs")+`"}}],"steps":[{"id":"a","set":1}]}`) != 1 {
		t.Errorf("%d warnings of topics that can start runs, or none of one that cannot", n)
	}
	raw, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.DefaultProduceTopic(topic("orders")))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	put := func(value string) {
		if err := raw.ProduceSync(t.Context(), &kgo.Record{Key: []byte(value), Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	// A group begins with what is published once it is there.
	waitFor(t, "the topic is not read:", func() bool { put(`{"n": 0}`); time.Sleep(200 * time.Millisecond); return len(w.inputs()) > 0 })
	before := len(w.inputs())
	var want []string
	for i := range 50 {
		put(fmt.Sprintf(`{"n":%d}`, i+1))
		want = append(want, fmt.Sprintf(`{"n":%d}`, i+1))
	}
	put(`not JSON`)
	waitFor(t, "the dead letter does not come:", func() bool { return w.deadLetters("kind=record").Total == 1 })
	waitFor(t, "the runs do not come:", func() bool { return len(w.inputs()) >= before+50 })
	var got []string
	for _, in := range w.inputs() {
		if in != `{"n":0}` {
			got = append(got, in)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("runs of %q", got)
	}
	if l := w.deadLetters("kind=record").Items[0]; l.Source.Topic != topic("orders") || l.Code != parley.CodeInvalidInput {
		t.Errorf("dead letter %+v", l)
	}
	if status, b := w.call("GET", "/readyz", ""); status != http.StatusOK {
		t.Errorf("not ready: %s", b)
	}
}

// TestDocs_TriggersByEvents deploys the workflow of the page and starts it as the
// page says.
func TestDocs_TriggersByEvents(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/triggers.md")
	if err != nil {
		t.Fatal(err)
	}
	document := regexp.MustCompile("(?s)```yaml\n(name: ship\n.*?)```").FindStringSubmatch(string(page))
	body := regexp.MustCompile(`BODY='(.*)'`).FindStringSubmatch(string(page))
	if document == nil || body == nil {
		t.Fatal("the page has lost its workflow, or the body of its delivery")
	}
	cfg := onDatabase(t, "sqlite", document[1])
	write(t, filepath.Join(cfg.SecretsDir, "shop"), "s3cret\n")
	w := &world{t: t, cfg: cfg, server: startServer(t, cfg)}
	if got := w.hook("/hooks/ship", "s3cret", body[1]); got != "202 started <nil>" {
		t.Error(got)
	}
	if status, b := w.call("POST", "/api/v1/events", `{"event":"order.paid","key":"4711","data":{"total":5}}`); status != http.StatusAccepted {
		t.Errorf("%d %s", status, b)
	}
	waitFor(t, "the runs do not come:", func() bool { return len(w.inputs()) == 2 })
	got := w.inputs()
	slices.Sort(got)
	if !slices.Equal(got, []string{`{"order":"4711"}`, `{"order":"4712"}`}) {
		t.Errorf("runs of %q", got)
	}
	_, metrics := w.call("GET", "/metrics", "")
	for _, line := range []string{`parley_trigger_firings_total{fate="started",trigger="event"} 1`, `parley_trigger_firings_total{fate="started",trigger="webhook"} 1`} {
		if !strings.Contains(string(metrics), line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}
