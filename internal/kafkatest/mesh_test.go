package kafkatest_test

import (
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/parley-project/parley/internal/kafkatest"
)

// way carries what one node says to another until it is cut.
type way struct {
	kafkatest.Link
	listener net.Listener

	mu    sync.Mutex // protects what follows
	conns []net.Conn
	cut   bool
	tasks sync.WaitGroup
}

func newWay(t *testing.T, l kafkatest.Link) *way {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", l.Listen)
	if err != nil {
		t.Fatal(err)
	}
	w := &way{Link: l, listener: listener}
	w.tasks.Go(w.accept)
	t.Cleanup(w.end)
	return w
}

func (w *way) accept() {
	for {
		from, err := w.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", w.Target)
		if err != nil {
			_ = from.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, from, to)
		cut := w.cut
		w.mu.Unlock()
		if cut {
			_, _ = from.Close(), to.Close()
		}
		w.tasks.Go(func() { _, _ = io.Copy(to, from); _ = to.Close() })
		w.tasks.Go(func() { _, _ = io.Copy(from, to); _ = from.Close() })
	}
}

// end cuts the way for good.
func (w *way) end() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.cut = true
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.tasks.Wait()
}

// TestMesh cuts one node off from the others, but not from its clients: the others
// notice, and one of them leads.
func TestMesh(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the loopback has one address")
	}
	t.Parallel()
	var ways []*way
	c := kafkatest.Start(t, kafkatest.Options{Nodes: 3, Mesh: func(l kafkatest.Link) { ways = append(ways, newWay(t, l)) }})
	kafkatest.Create(t, c.Brokers(), 1, "t")
	if err := produce(t, c.Brokers(), "t"); err != nil {
		t.Fatal(err)
	}
	alone := c.Leader(t, "t", 0)
	for _, w := range ways {
		if w.From == alone || w.To == alone {
			w.end()
		}
	}
	others := slices.Delete(slices.Clone(c.Brokers()), alone, alone+1)
	client, err := kgo.NewClient(kgo.SeedBrokers(others...), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		known, err := kadm.NewClient(client).ListTopics(t.Context(), "t")
		if err == nil && known["t"].Partitions[0].Leader >= 0 && int(known["t"].Partitions[0].Leader) != alone+1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("node %d leads yet: %v %v", alone, known, err)
		}
	}
	if err := produce(t, others, "t"); err != nil {
		t.Errorf("without a node that is cut off: %v", err)
	}
}
