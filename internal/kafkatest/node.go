package kafkatest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// node is one broker: its place, and its process while it runs.
type node struct {
	cluster    *Cluster
	dir        string
	plain      string
	secure     string
	controller string
	// internal and hosts are those of a mesh.
	internal, hosts string

	mu      sync.Mutex // protects process
	process *process
}

// stopLimit is how long a broker may take to end in good order.
const stopLimit = 30 * time.Second

// newID makes a cluster's id as Kafka wants it.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	b[0] &= 0x7f // no leading minus: the tool would take it for an option
	return base64.RawURLEncoding.EncodeToString(b)
}

func (n *node) java(ctx context.Context, args ...string) *exec.Cmd {
	all := append([]string{
		"-Xmx320m", "-Xss512k", "-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=96m", "-XX:TieredStopAtLevel=1",
		"-XX:ReservedCodeCacheSize=64m", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=" + filepath.Join(n.cluster.dir, "log4j2.properties"),
		"-cp", filepath.Join(n.cluster.jars, "libs") + "/*",
	}, args...)
	if n.hosts != "" {
		all = append([]string{"-Djdk.net.hosts.file=" + n.hosts}, all...)
	}
	cmd := exec.CommandContext(ctx, "java", all...)
	cmd.Dir = n.dir
	return cmd
}

func (n *node) settings() string { return filepath.Join(n.dir, "server.properties") }

// format writes the settings and prepares the node's log folder.
func (n *node) format(ctx context.Context, properties string) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(n.settings(), []byte(properties), 0o600); err != nil {
		return err
	}
	args := []string{"kafka.tools.StorageTool", "format", "-t", n.cluster.id, "-c", n.settings()}
	if n.cluster.options.SASL {
		args = append(args, scramUsers()...)
	}
	cmd := n.java(ctx, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := n.cluster.family.run(cmd)
	if err != nil {
		return err
	}
	<-p.exited
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("format: %v: %s", cmd.ProcessState, out.Bytes())
	}
	return nil
}

func (n *node) logFile() string { return filepath.Join(n.dir, "broker.log") }

// start starts the broker and returns when it says that it is ready.
func (n *node) start(ctx context.Context) error {
	if n.running() {
		return errors.New("the node runs already")
	}
	log, err := os.Create(n.logFile())
	if err != nil {
		return err
	}
	defer log.Close()
	// The broker's life is not that of the context that its start is bounded by.
	cmd := n.java(context.WithoutCancel(ctx), "kafka.Kafka", n.settings())
	cmd.Stdout, cmd.Stderr = log, log
	p, err := n.cluster.family.run(cmd)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.process = p
	n.mu.Unlock()
	for {
		if text, err := os.ReadFile(n.logFile()); err == nil && bytes.Contains(text, []byte("Kafka Server started")) {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("the broker ended: %v\n%s", cmd.ProcessState, n.logTail())
		case <-ctx.Done():
			return fmt.Errorf("the broker is not ready: %w\n%s", ctx.Err(), n.logTail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// logTail is the end of the broker's log.
func (n *node) logTail() []byte {
	text, err := os.ReadFile(n.logFile())
	if err != nil {
		return nil
	}
	return text[max(0, len(text)-1024):]
}

func (n *node) current() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

func (n *node) running() bool {
	p := n.current()
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (n *node) signal(s syscall.Signal) error {
	if !n.running() {
		return errors.New("the node does not run")
	}
	return n.current().cmd.Process.Signal(s)
}

func (n *node) pause() error  { return n.signal(syscall.SIGSTOP) }
func (n *node) resume() error { return n.signal(syscall.SIGCONT) }

func (n *node) kill() {
	if !n.running() {
		return
	}
	_ = n.signal(syscall.SIGKILL)
	<-n.current().exited
}

func (n *node) stop() {
	if !n.running() {
		return
	}
	_ = n.signal(syscall.SIGTERM)
	select {
	case <-n.current().exited:
	case <-time.After(stopLimit):
		n.kill()
	}
}
