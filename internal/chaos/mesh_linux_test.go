package chaos_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/parley-project/parley/internal/kafkatest"
)

// hasMesh: the loopback has an address for each way from one broker to another.
const hasMesh = true

// TestMesh cuts one broker off from the others, but not from its clients: the others
// notice, and one of them leads. Once it is back it copies again.
func TestMesh(t *testing.T) {
	kafkatest.NeedServer(t)
	t.Parallel()
	c := &cluster{t: t}
	c.kafka = kafkatest.Start(t, c.brokerOptions(shape{brokers: 3, mesh: true}))
	kafkatest.Create(t, c.brokers(), 1, "t")
	alone := c.kafka.Leader(t, "t", 0)
	each := func(do func(*proxy)) {
		for way, proxies := range c.between {
			if way[0] != alone && way[1] != alone {
				continue
			}
			for _, p := range proxies {
				do(p)
			}
		}
	}
	each((*proxy).tear)
	eventually(t, 30*time.Second, "another broker leads, and the rest copy", func() error {
		for i, address := range c.brokers() {
			if i == alone {
				continue
			}
			if p := c.partition(address); p.Leader < 1 || int(p.Leader) == alone+1 || len(p.ISR) != 2 {
				return fmt.Errorf("%s says that %d leads %v", address, p.Leader, p.ISR)
			}
		}
		return nil
	})
	each((*proxy).heal)
	eventually(t, 30*time.Second, "all copy", func() error {
		if p := c.partition(c.brokers()[alone]); len(p.ISR) != 3 {
			return fmt.Errorf("only %v copy", p.ISR)
		}
		return nil
	})
}

// partition is what one broker says of the only partition of t.
func (c *cluster) partition(address string) kadm.PartitionDetail {
	c.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	known, err := kadm.NewClient(client).ListTopics(c.t.Context(), "t")
	if err != nil {
		return kadm.PartitionDetail{Leader: -1}
	}
	return known["t"].Partitions[0]
}
