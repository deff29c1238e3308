package a2a

import (
	"context"
	"io"
	"log/slog"
	"regexp"
	"strings"

	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/adaptertest"
	"github.com/parley-project/parley/jsonrpc"
)

// LinkAgents makes adapters for agents on stdio or WebSocket, as url says, over
// connections in memory.
func LinkAgents(url string) adaptertest.Lines {
	place := regexp.MustCompile(`^((POST )?(stdio|ws):\S+|the process agent): `)
	broke := regexp.MustCompile(`the connection broke: [^;]*|the agent has closed the connection`)
	return adaptertest.Lines{
		URL: url,
		Text: func(s string) string {
			s = broke.ReplaceAllString(place.ReplaceAllString(s, ""), "the connection broke")
			return strings.Replace(s, "no complete answer", "no answer", 1)
		},
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
	}
}
