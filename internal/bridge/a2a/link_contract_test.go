package a2a

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/adaptertest"
	"github.com/parley-project/parley/jsonrpc"
)

// TestLinkContract plays the dialogues of testdata with agents on stdio and
// WebSocket, as far as they are not about HTTP itself (AD-14: the same adapter,
// the same contract).
func TestLinkContract(t *testing.T) {
	for _, url := range []string{"stdio:agent", "ws://agent.test/run"} {
		t.Run(linkScheme(url), func(t *testing.T) {
			adaptertest.RunLines(t, adaptertest.Suite{Dir: "testdata"}, adaptertest.Lines{
				URL: url,
				New: func(x *bridge.Exchange, log *slog.Logger, obs bridge.TranslationObserver, dial func() io.ReadWriteCloser) bridge.Adapter {
					a := New(Options{
						Exchange: x, Logger: log, Observer: obs,
						Push: func(taskID string) (url, token string, ok bool) {
							return "https://parley.test/a2a/push/" + taskID, "token-of-the-task", true
						},
					})
					links := newLink(linkOptions{Exchange: x, Stdio: true, Dial: func(context.Context, linkTarget) (jsonrpc.Stream, error) {
						return jsonrpc.NewLineStream(dial()), nil
					}})
					a.link = links
					a.closers = append(a.closers, links.close)
					return a
				},
			})
		})
	}
}
