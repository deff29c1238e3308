package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
)

// programVariable makes the test binary the program: the rest of the command
// line is its own.
const programVariable = "PARLEY_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestRPCScripts runs the command lines in testdata/rpc. Besides the commands
// of TestScripts they have:
//
//	background NAME ARGS…  run parley ARGS until the script or "end NAME" ends
//	                       it; the URL that it says it listens on becomes $NAME
//	end NAME               end it; its output are the files NAME.out and
//	                       NAME.err; it must have ended with exit code 0
//	await FILE TEXT        wait until FILE has TEXT in it
//	hangup NAME SCHEME     listen at $NAME and end each connection after the
//	                       first line
//	silent NAME            listen at $NAME and never answer
//	web NAME STATUS        answer HTTP requests at $NAME with a status
//
// $PARLEY is a command line that starts the program.
func TestRPCScripts(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "rpc"),
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Values[stateKey{}] = &scriptState{}
			e.Values[runningKey{}] = map[string]*running{}
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("PARLEY", "env "+programVariable+"=1 "+self)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"parley": scriptParley, "code": scriptCode, "input": scriptInput,
			"background": scriptBackground, "end": scriptEnd, "await": scriptAwait,
			"hangup": scriptHangup, "silent": scriptSilent, "web": scriptWeb,
		},
	})
}

type runningKey struct{}

// running is a command line in the background.
type running struct {
	cancel   context.CancelFunc
	out, err lockedBuffer
	done     chan struct{}
	exit     int
}

// lockedBuffer tells when a line that matches has been written.
type lockedBuffer struct {
	mu     sync.Mutex
	text   strings.Builder
	search *regexp.Regexp
	found  chan string
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.text.Write(p)
	if b.search != nil {
		if m := b.search.FindStringSubmatch(b.text.String()); m != nil {
			b.found <- m[1]
			b.search = nil
		}
	}
	return n, err
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// take gives what was written since it was called last.
func (b *lockedBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

func scriptBackground(ts *testscript.TestScript, _ bool, args []string) {
	name := args[0]
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, done: make(chan struct{})}
	r.err.search, r.err.found = regexp.MustCompile(`(?m)(?:^listening on|between A) (\S+) `), make(chan string, 1)
	a := &app{
		stdin: strings.NewReader(""), stdout: &r.out, stderr: &r.err, dir: ts.MkAbs("."),
		now: func() time.Time { return epoch() }, zone: time.UTC,
		terminal: func(io.Writer) (int, bool) { return 0, false },
		env:      []string{"TOKEN=" + ts.Getenv("TOKEN")},
	}
	go func() {
		defer close(r.done)
		r.exit = a.execute(ctx, args[1:])
	}()
	ts.Value(runningKey{}).(map[string]*running)[name] = r
	ts.Defer(func() { cancel(); <-r.done })
	select {
	case url := <-r.err.found:
		ts.Setenv(name, url)
	case <-r.done:
		ts.Fatalf("%s ended with %d: %s", name, r.exit, r.err.String())
	case <-time.After(2 * time.Minute):
		ts.Fatalf("%s does not listen: %s", name, r.err.String())
	}
}

func scriptEnd(ts *testscript.TestScript, _ bool, args []string) {
	r := ts.Value(runningKey{}).(map[string]*running)[args[0]]
	r.cancel()
	<-r.done
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".out"), []byte(r.out.String()), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".err"), []byte(r.err.String()), 0o600))
	if r.exit != 0 {
		ts.Fatalf("%s ended with %d: %s", args[0], r.exit, r.err.String())
	}
}

func scriptAwait(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(ts.MkAbs(args[0])); err == nil && strings.Contains(string(b), args[1]) {
			return
		}
	}
	ts.Fatalf("%s never has %q in it", args[0], args[1])
}

// listenFor serves connections of a script with f.
func listenFor(ts *testscript.TestScript, name, scheme string, f func(net.Conn)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Setenv(name, scheme+l.Addr().String())
	var wg sync.WaitGroup
	ended := make(chan struct{})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				f(c)
			})
			wg.Go(func() {
				<-ended
				_ = c.Close()
			})
		}
	})
	ts.Defer(func() { close(ended); _ = l.Close(); wg.Wait() })
}

func scriptHangup(ts *testscript.TestScript, _ bool, args []string) {
	listenFor(ts, args[0], args[1]+"://", func(c net.Conn) { _, _ = bufio.NewReader(c).ReadString('\n') })
}

func scriptSilent(ts *testscript.TestScript, _ bool, args []string) {
	listenFor(ts, args[0], "tcp://", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
}

func scriptWeb(ts *testscript.TestScript, _ bool, args []string) {
	listenFor(ts, args[0], "http://", func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil || strings.TrimSpace(line) == "" {
				break
			}
		}
		fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", strings.Join(args[1:], " "))
	})
}

// TestRPCSpecificationExamples plays the examples of the JSON-RPC 2.0
// specification (section 7) against rpc serve over standard input and output:
// one process per example, whose answers must be those of the specification,
// but for the texts of messages.
func TestRPCSpecificationExamples(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "specification.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) != 15 {
		t.Fatalf("%d examples, the specification has 15", len(archive.Files))
	}
	for _, example := range archive.Files {
		t.Run(example.Name, func(t *testing.T) {
			t.Parallel()
			var input, want strings.Builder
			for line := range strings.Lines(string(example.Data)) {
				if text, ok := strings.CutPrefix(line, "--> "); ok {
					input.WriteString(text)
				} else if text, ok := strings.CutPrefix(line, "<-- "); ok {
					want.WriteString(text)
				}
			}
			var out, errs strings.Builder
			a := &app{
				stdin: strings.NewReader(input.String()), stdout: &out, stderr: &errs, now: time.Now, zone: time.UTC,
				terminal: func(io.Writer) (int, bool) { return 0, false },
			}
			if code := a.execute(t.Context(), []string{"rpc", "serve", "stdio:"}); code != 0 {
				t.Errorf("exit code %d: %s", code, errs.String())
			}
			if diff := cmp.Diff(comparable2(t, want.String()), comparable2(t, out.String())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// comparable2 reads answers line by line, and leaves out the texts of errors.
func comparable2(t *testing.T, lines string) []any {
	t.Helper()
	var all []any
	for line := range strings.Lines(lines) {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		dropMessages(v)
		all = append(all, v)
	}
	return all
}

func dropMessages(v any) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			dropMessages(x)
		}
	case map[string]any:
		if e, ok := v["error"].(map[string]any); ok {
			delete(e, "message")
			delete(e, "data")
		}
	}
}
