package server_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/parley-project/parley/internal/server"
)

// TestReadyWhenAllListen: a process is ready once all its parts have subscribed. That of a
// bridge takes tasks before what else it hears of, and while brokers come back, the one may
// be had and the other not yet: without it the process would end.
func TestReadyWhenAllListen(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close) // behind the server's end
	cfg := onDatabase(t, "postgres")
	cfg.Roles, cfg.Kafka = []server.Role{server.RoleBridge}, &server.KafkaConfig{Brokers: broker.ListenAddrs()}
	if _, err := server.CreateTopics(t.Context(), *cfg.Kafka); err != nil {
		t.Fatal(err)
	}
	asked, held := make(chan struct{}), make(chan struct{})
	// While one request sleeps, a second one comes to the same function.
	ask, answer := sync.OnceFunc(func() { close(asked) }), sync.OnceFunc(func() { close(held) })
	t.Cleanup(answer)
	broker.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if !slices.ContainsFunc(req.(*kmsg.ListOffsetsRequest).Topics, func(topic kmsg.ListOffsetsRequestTopic) bool { return topic.Topic == "parley.changes" }) {
			broker.KeepControl()
			return nil, nil, false
		}
		ask()
		broker.SleepControl(func() { <-held })
		return nil, nil, false
	})
	w := &world{t: t, cfg: cfg, server: startServer(t, cfg)}
	<-asked
	for until := time.Now().Add(time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if status, body := w.call(http.MethodGet, "/readyz", ""); status != http.StatusServiceUnavailable {
			t.Fatalf("before it has subscribed to all: %d %s", status, body)
		}
	}
	answer()
	waitFor(t, "the server is not ready:", func() bool { status, _ := w.call(http.MethodGet, "/readyz", ""); return status == http.StatusOK })
}
