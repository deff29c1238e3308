package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptState is what the commands of one script share.
type scriptState struct {
	url   string
	stdin string
	exit  int
}

type stateKey struct{}

// TestScripts runs the command lines in testdata/script in the process,
// against a server of their own. Besides the usual commands they have:
//
//	parley ARGS…     run a command line; "!" if it must not exit with 0
//	until TEXT ARGS… the same, interrupted as by Ctrl-C once standard error matches TEXT
//	code N           the last exit code was N
//	input FILE       the next command line reads FILE as its standard input
//	data DIR         make a running local server's data folder
//	start NAME ARGS… run a command line that serves; NAME is set to its URL
//	end NAME         end it; its output are the files NAME.out and NAME.err
//	agent NAME PATH  serve an agent whose card is at PATH; NAME is set to its URL
//	postgres         make an empty database; url.txt is its URL
//	oldplatform      make a database of the existing platform; url.txt is its URL
//
// The environment variable WIDTH makes standard output a terminal so wide.
// With UPDATE_SCRIPTS=1 the expected outputs are written instead of compared.
func TestScripts(t *testing.T) {
	t.Parallel()
	source, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			_, url := newWorld(e.T().(testing.TB))
			e.Values[stateKey{}] = &scriptState{url: url}
			e.Values[testKey{}] = e.T().(testing.TB)
			e.Values[sourceKey{}] = source
			e.Values[runningKey{}] = map[string]*running{}
			e.Setenv("PARLEY_URL", url)
			e.Setenv("PARLEY_URL_OF_TEST", url)
			e.Setenv("PARLEY_KEY", worldKey)
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"parley": scriptParley, "until": scriptUntil, "code": scriptCode, "input": scriptInput, "data": scriptData, "agent": scriptAgent,
			"oldplatform": scriptOldPlatform, "postgres": scriptPostgres, "start": scriptStart, "end": scriptEnd,
		},
	})
}

func scriptParley(ts *testscript.TestScript, neg bool, args []string) {
	state := ts.Value(stateKey{}).(*scriptState)
	a := scriptApp(ts, ts.Stdout(), ts.Stderr())
	a.stdin, state.stdin = strings.NewReader(state.stdin), ""
	state.exit = a.execute(context.Background(), args)
	if neg == (state.exit == exitDone) {
		ts.Fatalf("parley %s: exit code %d", strings.Join(args, " "), state.exit)
	}
}

// scriptUntil is for what shows something and then goes on: a time limit for it would be
// too short on a busy machine, and passed in vain on any other.
func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	ctx, interrupt := context.WithTimeout(context.Background(), 2*time.Minute)
	defer interrupt()
	text := regexp.MustCompile("(?m)(" + args[0] + ")")
	errs := lockedBuffer{search: text, found: make(chan string, 1)}
	go func() {
		select {
		case <-errs.found:
			interrupt()
		case <-ctx.Done():
		}
	}()
	state := ts.Value(stateKey{}).(*scriptState)
	state.exit = scriptApp(ts, ts.Stdout(), &errs).execute(ctx, args[1:])
	line := "parley " + strings.Join(args[1:], " ")
	if !text.MatchString(errs.String()) {
		ts.Fatalf("%s does not show %q: %s", line, args[0], errs.String())
	}
	_, err := io.WriteString(ts.Stderr(), errs.String())
	ts.Check(err)
	if neg == (state.exit == exitDone) {
		ts.Fatalf("%s: exit code %d", line, state.exit)
	}
}

// scriptApp is the program with the environment of a script, and nothing to read.
func scriptApp(ts *testscript.TestScript, out, errs io.Writer) *app {
	a := &app{
		stdin: strings.NewReader(""), stdout: out, stderr: errs, dir: ts.MkAbs("."),
		now: func() time.Time { return epoch().Add(time.Minute) }, zone: time.UTC,
		terminal: func(w io.Writer) (int, bool) {
			n, err := strconv.Atoi(ts.Getenv("WIDTH"))
			return n, err == nil && w == out
		},
	}
	for _, name := range []string{
		"HOME", "XDG_CONFIG_HOME", "PARLEY_URL", "PARLEY_KEY", "PARLEY_DATA", "NO_COLOR", "TERM", "MY_KEY",
		"PARLEY_CONFIG", "PARLEY_BUS__KIND", "PARLEY_DATABASE_URL", "PARLEY_DATABASE__URL", "KAFKA_BROKERS", "PG_PASSWORD",
		"TRACEPARENT", "TRACESTATE",
	} {
		if v := ts.Getenv(name); v != "" {
			a.env = append(a.env, name+"="+v)
		}
	}
	return a
}

func scriptCode(ts *testscript.TestScript, _ bool, args []string) {
	if got := strconv.Itoa(ts.Value(stateKey{}).(*scriptState).exit); len(args) != 1 || got != args[0] {
		ts.Fatalf("exit code %s, want %v", got, args)
	}
}

func scriptInput(ts *testscript.TestScript, _ bool, args []string) {
	ts.Value(stateKey{}).(*scriptState).stdin = ts.ReadFile(args[0])
}

func scriptData(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	url := ts.Value(stateKey{}).(*scriptState).url
	ts.Check(os.WriteFile(filepath.Join(dir, "endpoint"), []byte(url+"\n"), 0o600))
	ts.Check(os.WriteFile(filepath.Join(dir, "key"), []byte(worldKey+"\n"), 0o600))
}

func scriptAgent(ts *testscript.TestScript, _ bool, args []string) {
	mux := http.NewServeMux()
	if len(args) > 1 {
		mux.HandleFunc("GET "+args[1], func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"name":"Fine Translator!","description":"Translates","protocolVersion":"0.3.0","skills":[]}`)
		})
	}
	mux.HandleFunc("POST /", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "task_id is missing", http.StatusBadRequest)
	})
	s := httptest.NewServer(mux)
	ts.Defer(s.Close)
	ts.Setenv(args[0], s.URL)
}
