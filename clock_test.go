package parley_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// machineClock are the files under internal/ and jsonrpc/ that read the machine's clock
// themselves, each with why. Everything else is given a clock, so that a test can set it
// and what is compared comes from one.
var machineClock = map[string]string{
	"internal/api/middleware.go":         "deadline of a connection",
	"internal/bridge/a2a/follow.go":      "deadline of a context",
	"internal/bridge/a2a/grpc_errors.go": "deadline of a context",
	"internal/bridge/exchange.go":        "deadline of a connection",
	"internal/bridge/exchange_direct.go": "deadline of a connection",
	"internal/bus/kafka/state.go":        "deadline of a context",
	"internal/push/push.go":              "deadline of a connection",
	"internal/store/postgres_link.go":    "deadline of a connection",
	"internal/values/files/files.go":     "times of files, which are those of the machine",
	"internal/zone/direct/oidc.go":       "expiry of a token that a library has dated by the machine's clock",
	"internal/zone/zoneauth/tls.go":      "where a default is used",
	"jsonrpc/client.go":                  "durations, and the deadline of a context",
	"jsonrpc/conn.go":                    "beginning of a clock that measures durations",
	"jsonrpc/params_stream.go":           "durations",
	"jsonrpc/pending.go":                 "the clock that measures durations",
	"jsonrpc/pipe.go":                    "deadline of a connection",
	"jsonrpc/reconnect.go":               "durations",
	"jsonrpc/rpcdial/listen.go":          "deadline of a connection",
	"jsonrpc/rpchttp/back.go":            "deadline of a connection",
	"jsonrpc/rpchttp/follow.go":          "durations",
	"jsonrpc/rpchttp/inbox.go":           "deadline of a connection",
	"jsonrpc/rpchttp/stall.go":           "deadline of a connection",
	"jsonrpc/rpcws/server.go":            "deadline of a connection",
	"jsonrpc/server.go":                  "beginning of a clock that measures durations",
}

// forTests are packages that no program of ours is made of: pgtest, zonetest and so on.
var forTests = regexp.MustCompile(`test/|/sample/`)

// TestClocksAreGiven: code reads the clock that it was given; time.Now as a default is no
// call of it. Chance and connections are given, too: nobody uses what all of a process
// share.
func TestClocksAreGiven(t *testing.T) {
	used := make(map[string]bool)
	goFiles(t, func(file string, src []byte) {
		product := strings.HasPrefix(file, "internal/") || strings.HasPrefix(file, "jsonrpc/")
		if !product || strings.HasSuffix(file, "_test.go") || forTests.MatchString(file) || generated.Match(src) {
			return
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if name := selected(n.Fun); slices.Contains([]string{"time.Now", "time.Since", "time.Until"}, name) {
					if used[file] = true; machineClock[file] == "" {
						t.Errorf("%s: %s(): take the clock that was given, or name the file in machineClock with why", fset.Position(n.Pos()), name)
					}
				}
			case *ast.SelectorExpr:
				if name := selected(n); slices.Contains([]string{"http.DefaultClient", "http.Get", "http.Post", "net.Dial", "net.DialTimeout", "net.DefaultResolver"}, name) {
					t.Errorf("%s: %s is shared by the whole process", fset.Position(n.Pos()), name)
				}
			}
			return true
		})
	})
	for file := range machineClock {
		if !used[file] {
			t.Errorf("machineClock names %s, which reads no clock", file)
		}
	}
}

// selected is package and name of what e stands for, "" if it is nothing of that form.
func selected(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := s.X.(*ast.Ident); ok {
		return x.Name + "." + s.Sel.Name
	}
	return ""
}
