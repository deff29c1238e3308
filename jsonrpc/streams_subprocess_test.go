//go:build unix

package jsonrpc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestSubprocessChild is the child of the tests below: this test binary, run
// again with the kind of child in its environment. By itself it does nothing.
func TestSubprocessChild(t *testing.T) {
	kind := os.Getenv("JSONRPC_TEST_CHILD")
	if kind == "" {
		return
	}
	children := map[string]func(){
		"echo":  func() { echoLines(Stdio()) },
		"serve": func() { <-NewConn(Stdio(), Config{Handler: HandlerFunc(echo)}).Done() },
		"fail": func() {
			fmt.Fprintln(os.Stderr, "boom: no such database")
			os.Exit(3)
		},
		"says much and fails": func() { // as much as the pipe takes
			io.WriteString(os.Stderr, strings.Repeat("a line\n", 8<<10)+"boom\n")
			os.Exit(3)
		},
		"deaf": func() {
			signal.Ignore(syscall.SIGTERM)
			fmt.Println(`{"ready":true}`)
			select {}
		},
		"needs SIGTERM": func() {
			signalled := make(chan os.Signal, 1)
			signal.Notify(signalled, syscall.SIGTERM)
			fmt.Println(`{"ready":true}`)
			<-signalled
		},
		"floods stderr": func() {
			line := strings.Repeat("e", 1023) + "\n"
			for range 4 << 10 {
				io.WriteString(os.Stderr, line)
			}
			io.WriteString(os.Stderr, "the end\r\n"+strings.Repeat("l", 40)+"\nopen")
			echoLines(Stdio())
		},
		"leaves a child": func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestSubprocessChild$")
			cmd.Env = append(os.Environ(), "JSONRPC_TEST_CHILD=deaf")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
			if err := cmd.Start(); err != nil {
				panic(err)
			}
			fmt.Fprintln(os.Stderr, cmd.Process.Pid)
		},
		"last words": func() {
			io.Copy(io.Discard, os.Stdin)
			if _, err := io.WriteString(os.Stdout, strings.Repeat("w", 1<<20)); err == nil {
				os.WriteFile(os.Getenv("JSONRPC_TEST_FILE"), []byte("said"), 0o600)
			}
		},
		"closes stdout": func() {
			os.Stdout.Close()
			io.Copy(io.Discard, os.Stdin)
		},
		"cut": func() { io.WriteString(os.Stdout, `{"id":`) },
	}
	children[kind]()
	os.Exit(0)
}

func childCommand(kind string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestSubprocessChild$")
	// Otherwise each child stays for a second at its end, looking for races.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "JSONRPC_TEST_CHILD="+kind)
	return cmd
}

// startChild gives a child that ends by itself the time for it, unless cfg says
// another.
func startChild(t *testing.T, kind string, cfg SubprocessConfig) *Subprocess {
	t.Helper()
	cfg.CloseWait = cmp.Or(cfg.CloseWait, 2*time.Minute)
	s, err := Start(t.Context(), childCommand(kind), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// readText reads one message.
func readText(t *testing.T, s Stream) string {
	t.Helper()
	var text []byte
	for {
		part, err := s.Read()
		if err != nil {
			t.Fatalf("Read after %q: %v", text, err)
		}
		if text = append(text, part.Data...); part.End {
			return string(text)
		}
	}
}

// RPC-12: messages through a child's stdin and stdout, and an end by closing
// stdin that is no error.
func TestSubprocessEcho(t *testing.T) {
	s := startChild(t, "echo", SubprocessConfig{})
	for _, text := range []string{`{"id":1}`, `{"id":2,"x":"` + strings.Repeat("x", 1<<20) + `"}`, `{"id":3}`} {
		done := make(chan error, 1)
		go func() {
			_, err := s.Write([]byte(text + "\n"))
			done <- err
		}()
		if got := readText(t, s); got != text {
			t.Errorf("echo of %.40q is %.40q", text, got)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if err := s.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
	if _, err := s.Read(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Read after Close: %v", err)
	}
}

// RPC-14, RPC-21: a child that exits at once is told from one that hung up: by
// its status and by what it said last.
func TestSubprocessExitStatus(t *testing.T) {
	s := startChild(t, "fail", SubprocessConfig{})
	_, err := s.Read()
	var exit *ExitError
	var status *exec.ExitError
	if !errors.As(err, &exit) || !errors.As(err, &status) || !errors.Is(err, io.EOF) {
		t.Fatalf("Read: %v, want an *ExitError that matches io.EOF", err)
	}
	if status.ExitCode() != 3 || !strings.Contains(err.Error(), "boom: no such database") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("Read: %v, exit code %d", err, status.ExitCode())
	}
	<-s.Exited()
	for what, err := range map[string]error{"Err": s.Err(), "Close": s.Close(), "second Close": s.Close()} {
		if !errors.As(err, &exit) || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Write([]byte("{}\n")); err == nil {
		t.Error("Write after Close returned no error")
	}
}

// RPC-21: the last words are whole, also if whoever takes stderr has not come to
// them when the child is gone.
func TestSubprocessLateStderr(t *testing.T) {
	started := make(chan (<-chan struct{}), 1)
	var wait sync.Once
	s := startChild(t, "says much and fails", SubprocessConfig{
		StderrLine: func([]byte) { wait.Do(func() { <-<-started }) },
	})
	started <- s.Exited()
	_, err := s.Read()
	var exit *ExitError
	if !errors.As(err, &exit) || !strings.HasSuffix(string(exit.Stderr), "\nboom\n") {
		t.Errorf("Read: %v, want an *ExitError with the last line", err)
	}
}

func TestSubprocessWriteToTheDead(t *testing.T) {
	s := startChild(t, "fail", SubprocessConfig{})
	<-s.Exited()
	var err error
	for err == nil { // the pipe may take something first
		_, err = s.Write([]byte("{}\n"))
	}
	var exit *ExitError
	if !errors.As(err, &exit) || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Write: %v, want an *ExitError that matches EPIPE", err)
	}
}

func TestSubprocessCut(t *testing.T) {
	s := startChild(t, "cut", SubprocessConfig{})
	if part, err := s.Read(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Read: %q, %v", part.Data, err)
	}
}

// A child that closes stdout and goes on has not failed.
func TestSubprocessClosesStdout(t *testing.T) {
	s := startChild(t, "closes stdout", SubprocessConfig{})
	if _, err := s.Read(); err != io.EOF {
		t.Errorf("Read: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// The steps of the graceful stop, each with a time of its own.
func TestSubprocessStop(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cfg  SubprocessConfig
		want string // of Close's error
	}{
		"needs SIGTERM": {SubprocessConfig{CloseWait: 30 * time.Millisecond, TermWait: time.Minute}, ""},
		"deaf":          {SubprocessConfig{CloseWait: 30 * time.Millisecond, TermWait: 30 * time.Millisecond}, "signal: killed"},
	}
	for kind, tt := range tests {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := startChild(t, kind, tt.cfg)
			readText(t, s)
			read := make(chan error, 1)
			go func() {
				_, err := s.Read()
				read <- err
			}()
			err := s.Close()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Close: %v, want %q", err, tt.want)
			}
			if err := <-read; !errors.Is(err, os.ErrClosed) {
				t.Errorf("Read, ended by Close: %v", err)
			}
			gone(t, s.PID())
		})
	}
}

// gone fails the test if there is a process, or a zombie, with this number.
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); syscall.Kill(pid, 0) == nil; {
		// A process whose parent is gone waits for the system to reap it.
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && bytes.Contains(state, []byte(") Z ")) && !ourChild(state) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
		time.Sleep(time.Millisecond)
	}
}

// ourChild says whether the process with this /proc/PID/stat is this one's.
func ourChild(stat []byte) bool {
	_, rest, _ := bytes.Cut(stat, []byte(") Z "))
	parent, _, _ := bytes.Cut(rest, []byte(" "))
	return string(parent) == strconv.Itoa(os.Getpid())
}

// What the child says after its stdin was closed goes nowhere, but does not
// kill it.
func TestSubprocessLastWords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "said")
	cmd := childCommand("last words")
	cmd.Env = append(cmd.Env, "JSONRPC_TEST_FILE="+file)
	s, err := Start(t.Context(), cmd, SubprocessConfig{CloseWait: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the child could not finish: %v", err)
	}
}

func TestSubprocessContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Start(ctx, childCommand("deaf"), SubprocessConfig{CloseWait: -1, TermWait: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	readText(t, s)
	cancel()
	if _, err := s.Read(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Read, ended by the context: %v", err)
	}
	<-s.Exited()
	gone(t, s.PID())

	if _, err := Start(ctx, childCommand("echo"), SubprocessConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Start with a context that has ended: %v", err)
	}
}

// A flood on stderr stops neither the child nor the messages; the end of it is
// kept, lines are cut at their limit.
func TestSubprocessStderr(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	cfg := SubprocessConfig{CloseWait: 2 * time.Minute, StderrLineLimit: 32, StderrTail: 1000, StderrLine: func(line []byte) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, string(line))
	}}
	cmd := childCommand("floods stderr")
	var all bytes.Buffer
	cmd.Stderr = &all
	s, err := Start(t.Context(), cmd, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Write([]byte(`{"id":1}` + "\n"))
	if got := readText(t, s); got != `{"id":1}` {
		t.Errorf("echo is %q", got)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	end := "the end\r\n" + strings.Repeat("l", 40) + "\nopen"
	if tail := string(s.Stderr()); len(tail) != 1000 || !strings.HasSuffix(tail, "e\n"+end) {
		t.Errorf("tail of %d bytes: %q", len(tail), tail)
	}
	if got, want := all.Len(), 4<<20+len(end); got != want {
		t.Errorf("the copy of stderr has %d bytes, want %d", got, want)
	}
	const pieces = 4 << 10 * 32 // 1023 bytes in pieces of 32
	last := lines[len(lines)-4:]
	if want := []string{"the end", strings.Repeat("l", 32), "llllllll", "open"}; strings.Join(last, ",") != strings.Join(want, ",") || len(lines) != pieces+4 {
		t.Errorf("%d lines, the last are %q", len(lines), last)
	}
}

// A grandchild that keeps the pipes open does not keep the Stream open.
func TestSubprocessGrandchild(t *testing.T) {
	s := startChild(t, "leaves a child", SubprocessConfig{})
	if got := readText(t, s); got != `{"ready":true}` {
		t.Errorf("the grandchild says %q", got)
	}
	if _, err := s.Read(); err != io.EOF {
		t.Errorf("Read: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(s.Stderr())))
	if err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
}

func TestSubprocessStartErrors(t *testing.T) {
	before := openDescriptors(t)
	if _, err := Start(t.Context(), exec.Command("/nonexistent/program"), SubprocessConfig{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start: %v", err)
	}
	cmd := childCommand("echo")
	cmd.Stdin = strings.NewReader("")
	if _, err := Start(t.Context(), cmd, SubprocessConfig{}); err == nil || !strings.Contains(err.Error(), "leave them unset") {
		t.Errorf("Start: %v", err)
	}
	if more := opened(t, before); len(more) > 0 {
		t.Errorf("left open: %q", more)
	}
}

// RPC-19: nothing is left of a subprocess: no goroutine, no descriptor.
func TestSubprocessLeavesNothing(t *testing.T) {
	descriptors, goroutines := openDescriptors(t), runtime.NumGoroutine()
	for _, kind := range []string{"echo", "fail", "deaf", "leaves a child"} {
		s, err := Start(t.Context(), childCommand(kind), SubprocessConfig{CloseWait: 20 * time.Millisecond, TermWait: -1})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		gone(t, s.PID())
	}
	if more := opened(t, descriptors); len(more) > 0 {
		t.Errorf("left open: %q", more)
	}
	// A goroutine that was waited for may still be on its way out.
	for deadline := time.Now().Add(2 * time.Minute); runtime.NumGoroutine() > goroutines; {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines before, %d after", goroutines, runtime.NumGoroutine())
		}
		time.Sleep(time.Millisecond)
	}
}

// opened tells what this process has open that it had not before: others
// may go at any time, when what an earlier test forgot is collected.
func opened(t *testing.T, before map[string]int) []string {
	t.Helper()
	var more []string
	for target, n := range openDescriptors(t) {
		if n > before[target] {
			more = append(more, fmt.Sprintf("%s (%d, was %d)", target, n, before[target]))
		}
	}
	return more
}

// openDescriptors counts the descriptors of this process by what they lead
// to, as Linux names it: a pipe or a socket by a number that no other has.
func openDescriptors(t *testing.T) map[string]int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil // only Linux tells
	}
	open := make(map[string]int)
	for _, entry := range entries {
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err == nil { // what read the folder is closed again
			open[target]++
		}
	}
	return open
}

// TestClientSubprocess proves that the program that a Client has started lives as
// long as their connection, though the time for dialing is over, and that the
// Client starts another one after it (RPC-22).
func TestClientSubprocess(t *testing.T) {
	programs := make(chan *Subprocess, 10)
	dial := func(ctx context.Context) (Stream, error) {
		s, err := Start(ctx, childCommand("serve"), SubprocessConfig{CloseWait: 2 * time.Minute})
		if err != nil {
			return nil, err
		}
		programs <- s
		return s, nil
	}
	cl := NewClient(dial, ClientConfig{MinBackoff: time.Millisecond})
	defer cl.Close()
	for i := range 2 {
		for range 3 {
			if got, err := Call[[]int](t.Context(), cl, "m", []int{i}); err != nil || got[0] != i {
				t.Fatal(got, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		first := <-programs
		select {
		case <-first.Exited():
			t.Fatal("stopped in the middle")
		default:
		}
		former := cl.present()
		syscall.Kill(first.PID(), syscall.SIGKILL)
		<-first.Exited()
		for cl.present() == former { // until it notices
			time.Sleep(time.Millisecond)
		}
	}
}
