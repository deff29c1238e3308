package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcpractice"
)

const childVariable = "TOUR_TEST_CHILD"

// TestMain makes the test binary the child of the part "process".
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		<-jsonrpc.NewConn(jsonrpc.Stdio(), jsonrpc.Config{Handler: rpcpractice.NewMux()}).Done()
		return
	}
	os.Exit(m.Run())
}

const page = "../../../docs/jsonrpc.md"

// outputs gives what the parts of the tour print.
func outputs(t *testing.T) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	all := map[string]string{}
	part := func(args ...string) {
		var out bytes.Buffer
		if err := run(ctx, &out, args); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		all[args[0]] = out.String()
	}
	serving, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	out := &firstLine{line: make(chan string, 1)}
	wg.Go(func() {
		if err := run(serving, out, []string{"server", "tcp://127.0.0.1:0"}); err != nil {
			t.Error(err)
		}
	})
	url := strings.TrimPrefix(<-out.line, "listening on ")
	part("client", url)
	part("both")
	part("web")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	part("process", "env", childVariable+"=1", self)
	return all
}

type firstLine struct {
	line chan string
	once sync.Once
}

func (f *firstLine) Write(p []byte) (int, error) {
	f.once.Do(func() { f.line <- strings.TrimSpace(string(p)) })
	return len(p), nil
}

// TestTourIsAsThePageSays runs the tour and holds docs/jsonrpc.md to it: every
// block of Go stands in a file of the tour as it is, and what the page says is
// printed by "tour PART" is printed.
func TestTourIsAsThePageSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(b)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 6 {
		t.Errorf("only %d blocks of Go on the page", len(blocks))
	}
	for _, b := range blocks {
		// "…" stands for lines that are left out.
		for piece := range strings.SplitSeq(b[1], "…\n") {
			piece = strings.TrimRight(piece, "\t ")
			if !strings.Contains(code.String(), piece) && !strings.Contains(code.String(), indented(piece)) {
				t.Errorf("the tour does not have:\n%s", piece)
			}
		}
	}
	got := outputs(t)
	shown := regexp.MustCompile("(?ms)^```console\n\\$ go run ./examples/jsonrpc/tour (\\w+)[^\n]*\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	for _, s := range shown {
		if diff := cmp.Diff(s[2], got[s[1]]); diff != "" {
			t.Errorf("tour %s: %s", s[1], diff)
		}
		delete(got, s[1])
	}
	for part, out := range got {
		t.Errorf("the page does not show what tour %s prints:\n%s", part, out)
	}
}

// indented gives a piece of code one level deeper.
func indented(piece string) string {
	var b strings.Builder
	for line := range strings.Lines(piece) {
		if strings.TrimSpace(line) != "" {
			b.WriteByte('\t')
		}
		b.WriteString(line)
	}
	return b.String()
}

// TestTourRefuses names the parts when asked for another.
func TestTourRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"server"}, {"nothing"}, {"both", "x"}, {"process"}} {
		if err := run(t.Context(), os.Stderr, args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
