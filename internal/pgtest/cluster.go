package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	user = "parley"
	// password is awkward on purpose: it shows who forgets to escape it.
	password = "p@ss: w/rd?#%41&"
)

// startWithin bounds how long a server may take to start, on a busy machine too.
const startWithin = time.Minute

// supervisor runs a server and ends it when the other end of its standard input
// is closed, which the end of the test process does, however it ends; then the
// folder goes, too. With a line on its input the server is killed and the folder
// stays. A server that was stopped by a signal is continued first. What a killed
// server leaves in the kernel is removed.
const supervisor = `
folder=$1; shift
"$@" </dev/null >>"$folder/log" 2>&1 & pid=$!
echo $pid
kids() { cat /proc/$pid/task/$pid/children 2>/dev/null; }
if read -r _; then
  memory=$(sed -n 7p "$folder/data/postmaster.pid" 2>/dev/null)
  all=$(kids)
  kill -KILL $pid $all 2>/dev/null
  wait $pid
  for kid in $all; do
    for _ in 1 2 3 4 5 6 7 8 9; do [ ! -d /proc/$kid ] || sleep 0.02; done; done
  [ -z "$memory" ] || ipcrm -m ${memory##* } 2>/dev/null
else
  kill -CONT $pid $(kids) 2>/dev/null
  kill -QUIT $pid 2>/dev/null
  ( sleep 5; kill -KILL $pid $(kids) ) 2>/dev/null & late=$!
  wait $pid
  kill $late 2>/dev/null
  rm -rf "$folder"
fi
`

// cluster is one data folder and the server that runs on it.
type cluster struct {
	bin    string
	folder string
	port   int
	args   []string

	mu  sync.Mutex
	cmd *exec.Cmd
	// hold is the supervisor's standard input.
	hold io.WriteCloser
	pid  int
}

// newCluster makes a data folder and starts a server on it.
func newCluster(ctx context.Context, o Options) (*cluster, error) {
	c, err := newFolder(ctx, o)
	if err != nil {
		return nil, err
	}
	secret := filepath.Join(c.folder, "password")
	if err := c.give(secret, os.WriteFile(secret, []byte(password), 0o600)); err != nil {
		return nil, err
	}
	out, err := c.command(ctx, "initdb", "--pgdata", c.data(), "--username", user, "--pwfile", secret, "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions", "--set", "scram_iterations=16").CombinedOutput()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w\n%s", err, out), c.remove())
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.remove())
	}
	return c, nil
}

// newFolder makes the folder of a cluster, which is empty and has a port.
func newFolder(ctx context.Context, o Options) (*cluster, error) {
	home, err := install(ctx)
	if err != nil {
		return nil, err
	}
	c := &cluster{bin: filepath.Join(home, "bin"), args: settings(o)}
	if c.port, err = freePort(ctx); err != nil {
		return nil, err
	}
	c.folder, err = os.MkdirTemp("", "parley-postgres-")
	return c, c.give(c.folder, err)
}

// settings are the server's arguments.
func settings(o Options) []string {
	all := map[string]string{
		"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "200",
		"shared_buffers": "32MB", "dynamic_shared_memory_type": "mmap", "jit": "off", "log_min_messages": "warning",
		"fsync": "off", "full_page_writes": "off", "wal_level": "replica", "wal_keep_size": "256MB", "max_wal_senders": "4",
		"synchronous_commit": "on",
	}
	if o.Durable {
		all["fsync"], all["full_page_writes"] = "on", "on"
	}
	maps.Copy(all, o.Settings)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	return args
}

// freePort gives a loopback port that nobody listens on. It lies below those
// that the system gives to connections, so that it stays free while a server is
// down.
func freePort(ctx context.Context) (int, error) {
	for {
		port := 10_000 + rand.IntN(10_000)
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
}

// data is the data folder.
func (c *cluster) data() string { return filepath.Join(c.folder, "data") }

// give makes a file that was made the servers' user's.
func (c *cluster) give(file string, err error) error {
	if err != nil || owner() == os.Geteuid() {
		return err
	}
	return os.Lchown(file, owner(), owner())
}

func (c *cluster) remove() error { return os.RemoveAll(c.folder) }

// url is where database is found.
func (c *cluster) url(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(user, password), Path: "/" + database,
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)), RawQuery: "sslmode=disable",
	}
	return u.String()
}

// command is one of PostgreSQL's programs, run as the servers' user.
func (c *cluster) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return c.asOwner(exec.CommandContext(ctx, filepath.Join(c.bin, program), args...))
}

func (c *cluster) asOwner(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = c.folder
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	// A session of its own: Ctrl-C is for the tests, and so is the SIGHUP that
	// a group with stopped processes gets when its parent dies.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if id := owner(); id != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}
	}
	return cmd
}

// start runs the server until end or kill, or until this process ends, and
// waits until it answers.
func (c *cluster) start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd != nil {
		return errors.New("the server is running")
	}
	server := append([]string{"-D", c.data(), "-p", strconv.Itoa(c.port)}, c.args...)
	// The context of a test must not kill the supervisor: it has work to do then.
	cmd := c.asOwner(exec.Command("/bin/sh", append([]string{"-c", supervisor, "supervisor", c.folder, filepath.Join(c.bin, "postgres")}, server...)...))
	hold, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line := make([]byte, 16)
	n, err := out.Read(line)
	if err == nil {
		c.pid, err = strconv.Atoi(strings.TrimSpace(string(line[:n])))
	}
	c.cmd, c.hold = cmd, hold
	if err == nil {
		err = c.ready(ctx)
	}
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(c.folder, "log"))
		return errors.Join(fmt.Errorf("starting PostgreSQL: %w\n%s", err, log), c.killLocked())
	}
	return nil
}

// ready waits until the server takes connections, as a standby too.
func (c *cluster) ready(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, startWithin)
	defer stop()
	for {
		err := ping(ctx, c.url("postgres"))
		if err == nil {
			return nil
		}
		if !c.alive() {
			return errors.New("it has ended")
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// alive reports whether the postmaster runs: it is a zombie until its
// supervisor is asked to end.
func (c *cluster) alive() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid))
	_, rest, found := bytes.Cut(stat, []byte(") "))
	return err == nil && found && rest[0] != 'Z'
}

// end shuts the server down: existing connections are cut, nothing is lost.
func (c *cluster) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return nil
	}
	if err := syscall.Kill(c.pid, syscall.SIGINT); err != nil {
		return errors.Join(err, c.killLocked())
	}
	for deadline := time.Now().Add(startWithin); c.alive() && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	return c.killLocked()
}

// kill ends all processes of the server at once.
func (c *cluster) kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killLocked()
}

func (c *cluster) killLocked() error {
	if c.cmd == nil {
		return nil
	}
	_, err := io.WriteString(c.hold, "end\n")
	_ = c.cmd.Wait() // its exit status says nothing
	c.cmd, c.hold = nil, nil
	return err
}

// signal sends a signal to all processes of the server.
func (c *cluster) signal(s syscall.Signal) error {
	pids, err := c.processes()
	for _, pid := range pids {
		if failed := syscall.Kill(pid, s); failed != nil && !errors.Is(failed, syscall.ESRCH) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// processes are the postmaster and its children.
func (c *cluster) processes() ([]int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return nil, errors.New("the server is not running")
	}
	kids, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.pid, c.pid))
	if err != nil {
		return nil, err
	}
	pids := []int{c.pid}
	for field := range strings.FieldsSeq(string(kids)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
