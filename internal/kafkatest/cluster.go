package kafkatest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Options choose what [Start] starts.
type Options struct {
	// Nodes is the number of brokers, each a controller too: 1 (the default)
	// or 3. With three, topics have three copies and need two in sync, and a
	// dead broker is noticed after 3 seconds.
	Nodes int
	// SASL makes the secure listener ask for a login: PLAIN, SCRAM-SHA-256 and
	// SCRAM-SHA-512 with the users of this package, OAUTHBEARER with [Token].
	SASL bool
	// TLS encrypts the secure listener and makes it ask for a certificate that
	// the cluster's authority has signed; see [Cluster.TLS].
	TLS bool
	// ACL lets nobody but [AdminUser] do anything on the secure listener that no
	// access rule allows. The plain listener stays free.
	ACL bool
	// Mesh, if set, is called for each way between two nodes before they start, and
	// again, with other ports, when they start again on others: the nodes then reach
	// each other where it listens, and nowhere else, so that the network between
	// them can be hurt. It needs the whole network 127.0.0.0/8 on
	// the loopback, as Linux has it.
	Mesh func(Link)
	// Settings are further settings of every broker, by Kafka's names.
	Settings map[string]string
}

// Cluster is brokers of one test. Its methods may be called concurrently, but
// not two for the same node at once. Nodes are counted from 0.
type Cluster struct {
	options Options
	dir     string
	jars    string
	id      string
	family  *family
	tls     *tls.Config
	nodes   []*node
	client  *kgo.Client
}

// Start starts brokers for one test and stops them when it ends. It takes 2 to
// 10 seconds; with -short the test is skipped.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	NeedServer(tb)
	c, err := start(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			for i, n := range c.nodes {
				tb.Logf("end of the log of node %d:\n%s", i, n.logTail())
			}
		}
		c.close()
	})
	return c
}

// startLimit is how long a cluster may take to start, on a machine that does
// much else.
const startLimit = 5 * time.Minute

func start(ctx context.Context, o Options) (*Cluster, error) {
	return onOtherPorts(func() (*Cluster, error) { return startOnce(ctx, o) })
}

// portTries is how often a cluster is started on ports of which one was taken by
// somebody else between the look at it and the start of its broker.
const portTries = 3

// onOtherPorts repeats open, which chooses ports, until none of them was taken
// meanwhile.
func onOtherPorts(open func() (*Cluster, error)) (c *Cluster, err error) {
	for range portTries {
		if c, err = open(); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			break
		}
	}
	return c, err
}

func startOnce(ctx context.Context, o Options) (*Cluster, error) {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	jars, err := install(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "parley-kafka-")
	if err != nil {
		return nil, err
	}
	f, err := newFamily(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &Cluster{options: o, dir: dir, jars: jars, id: newID(), family: f}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := c.open(ctx); err != nil {
		c.close()
		return nil, fmt.Errorf("start Kafka: %w", err)
	}
	return c, nil
}

// open prepares and starts all nodes.
func (c *Cluster) open(ctx context.Context) error {
	if c.options.TLS {
		if err := c.makeCertificates(); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(c.dir, "log4j2.properties"), []byte(logging), 0o600); err != nil {
		return err
	}
	for i := range c.options.Nodes {
		n := &node{cluster: c, dir: filepath.Join(c.dir, "node"+strconv.Itoa(i)), plain: freeAddress(), controller: freeAddress()}
		if c.options.SASL || c.options.TLS || c.options.ACL {
			n.secure = freeAddress()
		}
		c.nodes = append(c.nodes, n)
	}
	if c.options.Mesh != nil {
		if err := c.mesh(); err != nil {
			return err
		}
	}
	var err error
	if c.client, err = kgo.NewClient(kgo.SeedBrokers(c.Brokers()...)); err != nil {
		return err
	}
	errs := make([]error, len(c.nodes))
	var all sync.WaitGroup
	for i, n := range c.nodes {
		all.Go(func() {
			if errs[i] = n.format(ctx, c.properties(i)); errs[i] == nil {
				errs[i] = n.start(ctx)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.complete(ctx)
}

// complete waits until the brokers that run know of each other.
func (c *Cluster) complete(ctx context.Context) error {
	running := 0
	for _, n := range c.nodes {
		if n.running() {
			running++
		}
	}
	return await(ctx, c.client, present(running))
}

func (c *Cluster) close() {
	if c.client != nil {
		c.client.Close()
	}
	for _, n := range c.nodes {
		n.kill()
	}
	c.family.close()
}

// Brokers gives the addresses of the plain listeners, node by node.
func (c *Cluster) Brokers() []string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.plain)
	}
	return all
}

// SecureBrokers gives the addresses of the listeners with [Options.SASL] and
// [Options.TLS].
func (c *Cluster) SecureBrokers() []string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.secure)
	}
	return all
}

// TLS gives a client's configuration: the cluster's authority and a certificate
// of [User].
func (c *Cluster) TLS() *tls.Config { return c.tls.Clone() }

// Kill ends node i at once (SIGKILL).
func (c *Cluster) Kill(i int) { c.nodes[i].kill() }

// Stop ends node i in good order (SIGTERM): it hands its partitions over.
func (c *Cluster) Stop(i int) { c.nodes[i].stop() }

// Start starts node i again, on its data and addresses, and returns when the
// brokers know of it.
func (c *Cluster) Start(tb testing.TB, i int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := c.nodes[i].start(ctx); err != nil {
		tb.Fatal(err)
	}
	if err := c.complete(ctx); err != nil {
		tb.Fatal(err)
	}
}

// Pause stops node i where it stands (SIGSTOP), its connections open.
func (c *Cluster) Pause(tb testing.TB, i int) {
	tb.Helper()
	if err := c.nodes[i].pause(); err != nil {
		tb.Fatal(err)
	}
}

// Continue lets a paused node go on.
func (c *Cluster) Continue(tb testing.TB, i int) {
	tb.Helper()
	if err := c.nodes[i].resume(); err != nil {
		tb.Fatal(err)
	}
}

// Leader gives the node that leads a partition now.
func (c *Cluster) Leader(tb testing.TB, topic string, partition int32) int {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	leader := 0
	if err := await(ctx, c.client, func(known *kmsg.MetadataResponse) error {
		for _, p := range known.Topics[0].Partitions {
			if p.Partition == partition && p.Leader > 0 {
				leader = int(p.Leader) - 1
				return nil
			}
		}
		return errors.New("no leader")
	}, topic); err != nil {
		tb.Fatalf("%s/%d: %v", topic, partition, err)
	}
	return leader
}

// freeAddress gives a loopback address that nobody listens on. It lies below
// the ports that the system gives to connections, so that it stays free while a
// broker is down.
func freeAddress() string {
	for {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(20_000+rand.IntN(12_000)))
		l, err := net.Listen("tcp", address)
		if err == nil {
			_ = l.Close()
			return address
		}
	}
}
