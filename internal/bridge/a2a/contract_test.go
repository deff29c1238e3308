package a2a_test

import (
	"flag"
	"log/slog"
	"testing"

	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a"
	"github.com/parley-project/parley/internal/bridge/adaptertest"
)

var update = flag.Bool("update", false, "write what was seen into the dialogues")

// TestContract plays the dialogues of testdata, each named by the rule that it
// proves.
func TestContract(t *testing.T) {
	adaptertest.Run(t, adaptertest.Suite{
		Dir:    "testdata",
		Update: *update,
		New: func(x *bridge.Exchange, log *slog.Logger, obs bridge.TranslationObserver) bridge.Adapter {
			return a2a.New(a2a.Options{
				Exchange: x, Logger: log, Observer: obs,
				Push: func(taskID string) (url, token string, ok bool) {
					return "https://parley.test/a2a/push/" + taskID, "token-of-the-task", true
				},
			})
		},
	})
}
