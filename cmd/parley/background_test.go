package main

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptStart runs a command line that serves, until the script or "end NAME"
// ends it. NAME is set to the URL that it prints when it is ready.
func scriptStart(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, done: make(chan struct{})}
	r.out.search, r.out.found = regexp.MustCompile(`(?m)^(http://\S+)\n`), make(chan string, 1)
	a := scriptApp(ts, &r.out, &r.err)
	a.now = time.Now
	go func() {
		defer close(r.done)
		r.exit = a.execute(ctx, args[1:])
	}()
	ts.Defer(func() { cancel(); <-r.done })
	ts.Value(runningKey{}).(map[string]*running)[args[0]] = r
	line := "parley " + strings.Join(args[1:], " ")
	select {
	case url := <-r.out.found:
		ts.Setenv(args[0], url)
	case <-r.done:
		ts.Fatalf("%s ended with %d: %s", line, r.exit, r.err.String())
	case <-time.After(2 * time.Minute):
		ts.Fatalf("%s does not say where it serves: %s", line, r.err.String())
	}
}
