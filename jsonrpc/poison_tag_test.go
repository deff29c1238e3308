//go:build !jsonrpc_poison

package jsonrpc_test

import (
	"os/exec"
	"testing"
)

// TestPoisonTag runs what handles borrowed bytes with the tag that overwrites
// them (RPC-18): a handler that keeps some is found, and nobody else's are
// spoiled.
func TestPoisonTag(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-tags=jsonrpc_poison",
		"-run=^Test(Poison|ConformanceConn|ServeBatch|CallBatch|Streamed|CallConcurrently)$", ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with the tag: %v\n%s", err, out)
	}
}
