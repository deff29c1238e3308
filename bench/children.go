package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a process of its own whose CPU and memory are measured, or which
// must not be measured with others.
type child struct {
	cmd *exec.Cmd
	// first is the first line that it wrote, which says that it serves.
	first string
}

// startSelf runs this program as a child in the given part.
func startSelf(ctx context.Context, variable string, order any) (*child, error) {
	text, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	return startChild(cmd)
}

// startChild starts cmd and waits for its first line.
func startChild(cmd *exec.Cmd) (*child, error) {
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return nil, errors.Join(fmt.Errorf("%s ended before it served", path.Base(cmd.Path)), cmd.Wait())
	}
	c := &child{cmd: cmd, first: lines.Text()}
	go func() {
		for lines.Scan() { //nolint:revive // whatever else it says is read and dropped, so that it can go on
		}
	}()
	return c, nil
}

// startReady starts a `parley serve`, which says its URL first, and waits until
// it takes tasks.
func startReady(ctx context.Context, cmd *exec.Cmd) (*child, error) {
	c, err := startChild(cmd)
	if err != nil {
		return nil, err
	}
	for range 200 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.first+"/readyz", http.NoBody)
		if err != nil {
			break
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return c, nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.stop()
	return nil, errors.New("parley serve was not ready within 10 s")
}

// stop ends the child and waits for it.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	_ = c.cmd.Wait()
}

// cpu is the time that the child has used so far.
func (c *child) cpu() (time.Duration, error) { return cpuOfProcess(c.cmd.Process.Pid) }

func cpuOfProcess(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const utime, stime, ticks = 11, 12, 100 // from the state on; a tick is 10 ms on Linux
	if len(fields) <= stime {
		return 0, errors.New("the system does not tell a process's time")
	}
	user, err1 := strconv.ParseInt(fields[utime], 10, 64)
	system, err2 := strconv.ParseInt(fields[stime], 10, 64)
	return time.Duration(user+system) * (time.Second / ticks), errors.Join(err1, err2)
}

// peak is the most memory that the child has had resident, in MiB.
func (c *child) peak() (float64, error) { return peakMemory(strconv.Itoa(c.cmd.Process.Pid)) }

const agentChild = "PARLEY_BENCH_AGENT"

// serveBenchAgents is a child that serves agents which speak Simple A2A and
// answer after the time that the path names, such as /50ms. It says its URL.
func serveBenchAgents(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, max(0, r.ContentLength))
		if _, err := readFull(r, body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if d, err := time.ParseDuration(path.Base(r.URL.Path)); err == nil && d > 0 {
			time.Sleep(d)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(append([]byte(`{"task_id":"`), taskID(body)...), `","status":"success","output":{"text":"done"},"error":null}`...))
	})
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stopped()
	fmt.Println("http://" + l.Addr().String())
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
