package kafkatest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/parley-project/parley/internal/kafkatest"
)

// childEnv makes a run of this test binary one that starts a broker, names its
// address, and waits to be killed.
const childEnv = "KAFKATEST_CHILD"

func produce(t *testing.T, brokers []string, topic string) error {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic), kgo.MetadataMinAge(250*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return client.ProduceSync(ctx, kgo.StringRecord("v")).FirstErr()
}

func TestBrokers(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	name := kafkatest.Topics(t)
	if a := name("a"); a == kafkatest.Topics(t)("a") || a == name("b") || a != name("a") {
		t.Error("the names of topics are not as they should be")
	}
	kafkatest.Create(t, brokers, 3, name("a"), name("b"))
	if err := produce(t, brokers, name("a")); err != nil {
		t.Error(err)
	}
}

// TestFaults stops, kills and pauses the nodes of a cluster of three.
func TestFaults(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Nodes: 3})
	kafkatest.Create(t, c.Brokers(), 1, "t")
	first := c.Leader(t, "t", 0)
	c.Kill(first)
	if err := produce(t, c.Brokers(), "t"); err != nil {
		t.Fatalf("after a kill: %v", err)
	}
	second := c.Leader(t, "t", 0)
	if first == second {
		t.Fatal("the killed node leads")
	}
	c.Start(t, first)
	c.Pause(t, second)
	for deadline := time.Now().Add(2 * time.Minute); c.Leader(t, "t", 0) == second; {
		if time.Now().After(deadline) {
			t.Fatal("the paused node leads")
		}
	}
	c.Continue(t, second)
	c.Stop(second)
	if err := produce(t, c.Brokers(), "t"); err != nil {
		t.Fatalf("after a stop: %v", err)
	}
}

// TestKilled: when the test process is killed, its brokers end and their folder
// goes.
func TestKilled(t *testing.T) {
	t.Parallel()
	if os.Getenv(childEnv) != "" {
		c := kafkatest.Start(t, kafkatest.Options{})
		fmt.Println("broker at", c.Brokers()[0])
		select {}
	}
	temp := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	child.Env = append(os.Environ(), childEnv+"=1", "TMPDIR="+temp)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var address string
	for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
		_, address, _ = strings.Cut(lines.Text(), "broker at ")
	}
	if address == "" {
		t.Fatal("the child started no broker")
	}
	brokers := processes(t, temp)
	if len(brokers) == 0 {
		t.Fatal("no process of the child's folder was found")
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		left, err := filepath.Glob(filepath.Join(temp, "*"))
		if err != nil {
			t.Fatal(err)
		}
		running := processes(t, temp)
		if len(left) == 0 && len(running) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %v, running: %v", left, running)
		}
	}
}

// processes gives the Java processes whose command line names dir.
func processes(t *testing.T, dir string) []string {
	t.Helper()
	out, err := exec.Command("ps", "-eww", "-o", "pid=,args=").Output()
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, dir) && strings.Contains(line, "java") {
			found = append(found, strings.Fields(line)[0])
		}
	}
	return found
}

func TestSecure(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{TLS: true, ACL: true})
	if !strings.HasPrefix(c.SecureBrokers()[0], "127.0.0.1:") {
		t.Error(c.SecureBrokers())
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.SecureBrokers()...), kgo.DialTLSConfig(c.TLS()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
