package server_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/parley-project/parley/internal/kafkatest"
)

// TestApart: a bridge on another cluster than the executor of its database, and one whose
// bus is the database, are no use to it. All of them say so, and stay ready, since nobody
// knows which of them is right; with the right bridge, and without those, all is well.
func TestApart(t *testing.T) {
	kafkatest.NeedServer(t)
	t.Parallel()
	other, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("the-other-one"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close) // behind the end of the processes
	r := newRolesRig(t, buildBinary(t), "kafka", 0)
	brokers := []string{"--bus.kafka.brokers", other.ListenAddrs()[0]}
	r.command(append([]string{"topics", "create"}, brokers...)...)
	main := r.start("main", "api,executor")
	elsewhere, silent := r.start("elsewhere", "bridge", brokers...), r.start("silent", "bridge", "--bus.kind", "memory")
	for _, p := range []*roleProcess{main, elsewhere, silent} {
		waitFor(t, p.name+" does not say that there are several buses:", func() bool {
			status, body, err := r.get(p, "/readyz")
			if err == nil && status != http.StatusOK {
				t.Fatalf("%s: %d %s", p.name, status, body)
			}
			return err == nil && strings.Contains(body, `"peers":"other processes of the database use another bus`)
		})
	}
	waitFor(t, "the log does not name both:", func() bool {
		text := main.output.String()
		return strings.Contains(text, "cluster the-other-one") && strings.Contains(text, "notifications of the database")
	})

	for _, p := range []*roleProcess{elsewhere, silent} {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	r.start("bridge", "bridge")
	r.execute(main, 0)
	waitFor(t, "it is not over:", func() bool {
		_, body, err := r.get(main, "/readyz")
		return err == nil && !strings.Contains(body, "peers") && strings.Contains(main.output.String(), "one bus again")
	})
	if text := main.output.String(); strings.Count(text, "use another bus") > 6 { // a busy machine makes them come and go
		t.Errorf("its log:\n%s", text)
	}
	r.stopAll()
	r.log.check(t)
}
