package a2a_test

import (
	"flag"
	"testing"

	"github.com/parley-project/parley/internal/bridge/adaptertest"
)

var update = flag.Bool("update", false, "write what was seen into the dialogues")

// TestContract plays the dialogues of testdata, each named by the rule that it
// proves.
func TestContract(t *testing.T) {
	s := suite()
	s.Update = *update
	adaptertest.Run(t, s)
}
