package jsonrpc_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
	"github.com/parley-project/parley/jsonrpc/rpcpractice"
	"github.com/parley-project/parley/jsonrpc/rpctest"
)

// TestConformanceMessages runs the conformance cases against the messages
// alone: scan, handler, append, without a connection (RPC-1 to RPC-6, RPC-25).
func TestConformanceMessages(t *testing.T) {
	mux, cfg := rpcpractice.NewMux(), rpctest.ConformanceConfig()
	exchange := func(_ context.Context, send []byte, _ int) ([]byte, error) {
		var out []byte
		for line := range bytes.SplitSeq(send, []byte("\n")) {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			if answer := jsonrpc.Answer(mux, cfg, line); len(answer) > 0 {
				out = append(append(out, answer...), '\n')
			}
		}
		return out, nil
	}
	rpctest.RunConformance(t, exchange, rpctest.ConformanceOptions{})
}

// TestConformanceCases holds the data file to what is promised of it.
func TestConformanceCases(t *testing.T) {
	groups, names := make(map[string]int), make(map[string]bool)
	strict := 0
	for _, c := range rpctest.Conformance() {
		groups[c.Group]++
		if names[c.Name] || !strings.HasPrefix(c.Name, c.Group+"/") {
			t.Errorf("name %q", c.Name)
		}
		names[c.Name] = true
		if !c.Lenient {
			strict++
		} else if c.Why == "" {
			t.Errorf("%s: lenient without a reason", c.Name)
		}
		if c.Check([]byte(`{"jsonrpc":"2.0","id":"never","result":0}`)) == nil {
			t.Errorf("%s: accepts anything", c.Name)
		}
		if c.Group != "framing" && bytes.ContainsRune(c.Send, '\n') {
			t.Errorf("%s: a newline inside a message", c.Name)
		}
	}
	if groups["specification"] != 15 || len(names) < 300 || strict < 240 || len(groups) != 13 {
		t.Errorf("%d cases, %d strict, in groups %v", len(names), strict, groups)
	}
}
