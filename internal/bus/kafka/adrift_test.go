package kafka_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
)

// valve is the network to the brokers: while it is shut what is written waits.
type valve struct {
	mu   sync.Mutex
	shut chan struct{} // nil while it is open
}

func (v *valve) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut = make(chan struct{})
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.shut)
	v.shut = nil
}

func (v *valve) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return valved{conn, v}, err
}

type valved struct {
	net.Conn
	valve *valve
}

func (c valved) Write(b []byte) (int, error) {
	c.valve.mu.Lock()
	shut := c.valve.shut
	c.valve.mu.Unlock()
	if shut != nil {
		<-shut
	}
	return c.Conn.Write(b)
}

// TestAdrift: a record that is published again, since nobody has confirmed it in time,
// is written once when the brokers are there again. Another one, and the same one
// later, is a record of its own.
func TestAdrift(t *testing.T) {
	brokers, topics := fake(t)
	at := spotOf(t, "bustest.now")
	var v valve
	b := open(t, kafka.Config{Brokers: brokers, Topics: topics, PublishTimeout: 200 * time.Millisecond, Dialer: v.dial})
	reader := open(t, kafka.Config{Brokers: brokers, Topics: topics})
	var got tally
	subscribe(t, reader, at, got.handle)
	// confirmed publishes m until it is confirmed, which may take a slow machine longer
	// than one publication waits.
	confirmed := func(m bus.Message) (err error) {
		for range 100 {
			if err = b.Publish(t.Context(), m); err == nil {
				break
			}
		}
		return err
	}
	m := bus.Message{Subject: at.subject, Key: "k", Value: []byte("0"), Header: map[string]string{"h": "1"}}
	if err := confirmed(m); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first one came", func() bool { n, _ := got.count(); return n == 1 })
	v.close()
	m.Value = []byte("1")
	other := m
	other.Header = map[string]string{"h": "2"}
	for range 4 {
		if err := b.Publish(t.Context(), m); parley.CodeOf(err) != parley.CodeUnavailable {
			t.Errorf("nobody has confirmed it: %v", err)
		}
	}
	if err := b.Publish(t.Context(), other); parley.CodeOf(err) != parley.CodeUnavailable {
		t.Errorf("nobody has confirmed it: %v", err)
	}
	again := make(chan error, 1)
	go func() { again <- confirmed(m) }()
	time.Sleep(50 * time.Millisecond)
	v.open()
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"1", "2", "2", "3"} {
		m.Value = []byte(value)
		if err := confirmed(m); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the last one came", func() bool { got.mu.Lock(); defer got.mu.Unlock(); return got.seen["3"] == 1 })
	got.mu.Lock()
	defer got.mu.Unlock()
	if got.seen["1"] != 3 || got.seen["2"] != 2 {
		t.Errorf("a record, one with another header, and the first one later came %d times, want 3: %v", got.seen["1"], got.seen)
	}
}
