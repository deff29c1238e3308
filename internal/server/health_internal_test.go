package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
)

// TestAskLeavesEachItsTime: a part that does not answer, or not even to the end of
// its time, is said to be silent, and says nothing about the others.
func TestAskLeavesEachItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asking sync.WaitGroup
		release := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
		defer cancel()
		began := time.Now()
		said := ask(ctx, &asking, map[string]func(context.Context) error{
			"bus":      func(context.Context) error { <-release; return nil },
			"database": func(ctx context.Context) error { return ctx.Err() },
			"slow":     func(ctx context.Context) error { <-ctx.Done(); return errors.New("its own words") },
		})
		if said["bus"] == nil || said["database"] != nil || said["slow"] == nil || said["slow"].Error() != "its own words" {
			t.Errorf("said %v", said)
		}
		if d := time.Since(began); d > readyWithin+time.Second {
			t.Errorf("it took %v", d)
		}
		close(release)
		asking.Wait() // for who is asked for too long, too
	})
}

// TestWordsForEverybody: who asks without a key is told our words, and not those of
// what lies below: they name addresses, databases and users.
func TestWordsForEverybody(t *testing.T) {
	below := errors.New("failed to connect to `user=canary`: 10.0.0.5:5432: connection refused")
	for err, told := range map[error]bool{
		parley.Errorf(parley.CodeUnavailable, "this process is being stopped"):                                      true,
		parley.Errorf(parley.CodeUnavailable, "the database canary on db:5432 as ann cannot be reached: %w", below): false,
		parley.Errorf(parley.CodeInternal, "canary"):                                                                false,
		below: false,
	} {
		if got := words(err); (got != "does not answer") != told || strings.Contains(got, "canary") {
			t.Errorf("%v: %q is told", err, got)
		}
	}
}

// TestTroubleForEverybody: of what does not work with Kafka the log has the topics,
// groups and brokers, and who asks without a key is told none of them.
func TestTroubleForEverybody(t *testing.T) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	b, err := kafka.New(t.Context(), kafka.Config{Brokers: broker.ListenAddrs(), Topics: map[string]string{bus.SubjectTasks: "canary.tasks"}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Publish(t.Context(), bus.Message{Subject: bus.SubjectTasks, Key: "k", Value: []byte("{}")}); err == nil {
		t.Fatal("published to a topic that does not exist")
	}
	err = (&Server{kafka: b}).busReady(t.Context())
	if err == nil || !strings.Contains(err.Error(), "canary.tasks") || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("the log has %v", err)
	}
	if got := words(err); got != "does not answer" {
		t.Errorf("%q is told to everybody", got)
	}
}

// slowCollector is a page of metrics that takes until it is let go.
type slowCollector struct{ begun, release chan struct{} }

func (c slowCollector) Describe(chan<- *prometheus.Desc) {}

func (c slowCollector) Collect(chan<- prometheus.Metric) {
	c.begun <- struct{}{}
	<-c.release
}

// TestMetricsAreBounded: whoever asks for the metrics needs no key, and the database is
// asked for them; so only some are looked at together.
func TestMetricsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := slowCollector{make(chan struct{}, 100), make(chan struct{})}
		metrics := prometheus.NewRegistry()
		metrics.MustRegister(c)
		h := metricsHandler(metrics)
		ask := func() int {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			return rec.Code
		}
		var asking sync.WaitGroup
		codes := make(chan int, 100)
		for range 50 {
			asking.Go(func() { codes <- ask() })
		}
		synctest.Wait()
		if n := len(c.begun); n > 10 || n == 0 {
			t.Errorf("%d of 50 are looked at together", n)
		}
		close(c.release)
		asking.Wait()
		counts := map[int]int{}
		for range 50 {
			counts[<-codes]++
		}
		if counts[http.StatusServiceUnavailable] == 0 || counts[http.StatusOK]+counts[http.StatusServiceUnavailable] != 50 || ask() != http.StatusOK {
			t.Errorf("answers: %v", counts)
		}
	})
}

// TestWithoutAPI: who asks a process without the role api for something of the API is
// told so by Parley: commands take a refusal without an id for that of another server.
func TestWithoutAPI(t *testing.T) {
	t.Parallel()
	s := &Server{cfg: Config{Roles: []Role{RoleBridge}}}
	server := httptest.NewServer(s.withoutAPI(prometheus.NewRegistry()))
	defer server.Close()
	c, err := client.New(client.Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Run(t.Context(), "run-1")
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.Status != http.StatusNotFound || !strings.Contains(refused.Text(), "the roles bridge") || refused.RequestID == "" {
		t.Errorf("%v %+v", err, refused)
	}
}
