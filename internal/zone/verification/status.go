package verification

import (
	"context"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/parley-project/parley/internal/store"
)

// hintTimeout bounds what is shown besides the answer.
const hintTimeout = 5 * time.Second

// aside does something that no answer waits for or depends on, and closes done when
// that has ended. When too much of it is under way it is left out.
func (z *Zone) aside(ctx context.Context, f func(ctx context.Context) error) (done <-chan struct{}) {
	ended := make(chan struct{})
	select {
	case z.hints <- struct{}{}:
	default:
		close(ended)
		return ended
	}
	z.storing.Go(func() {
		defer close(ended)
		defer func() { <-z.hints }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hintTimeout)
		defer cancel()
		if err := f(ctx); err != nil {
			z.cfg.Logger.DebugContext(ctx, "a status was not shown", "event", "slack_status")
		}
	})
	return ended
}

// showWorking tells the person that somebody is at work, and closes shown when that
// was done; nil if it is not shown.
func (z *Zone) showWorking(ctx context.Context, q *store.ZoneQuestion) (shown <-chan struct{}) {
	item := slack.NewRefToMessage(q.Channel, q.TS)
	channel, ts := q.Channel, q.ThreadTS
	switch z.cfg.Slack.Status {
	case StatusReaction:
		return z.aside(ctx, func(ctx context.Context) error {
			err := z.api.AddReactionContext(ctx, "eyes", item)
			z.judged("reactions.add", err)
			return err
		})
	case StatusAssistant:
		return z.aside(ctx, func(ctx context.Context) error {
			err := z.api.SetAssistantThreadsStatusContext(ctx, slack.AssistantThreadsSetStatusParameters{
				ChannelID: channel, ThreadTS: ts, Status: strings.ReplaceAll(z.texts.Get(textWorking), ",", " "),
			})
			z.judged("assistant.threads.setStatus", err)
			return err
		})
	}
	return nil
}

// showDone takes that back, once it was shown: an answer may come before it. An
// assistant's status ends with the answer.
func (z *Zone) showDone(ctx context.Context, q *store.ZoneQuestion, shown <-chan struct{}) {
	if z.cfg.Slack.Status != StatusReaction || q.SentAt.IsZero() {
		return
	}
	item := slack.NewRefToMessage(q.Channel, q.TS)
	mark := "white_check_mark"
	if q.Outcome != "answered" {
		mark = "warning"
	}
	z.aside(ctx, func(ctx context.Context) error {
		if shown != nil {
			select {
			case <-shown:
			case <-ctx.Done():
			}
		}
		z.judged("reactions.remove", z.api.RemoveReactionContext(ctx, "eyes", item))
		err := z.api.AddReactionContext(ctx, mark, item)
		z.judged("reactions.add", err)
		return err
	})
}

// release gives up what the other zone holds for a question.
func (z *Zone) release(ctx context.Context, affinity string) {
	if affinity == "" {
		return
	}
	z.aside(ctx, func(ctx context.Context) error { return z.cfg.Execution.Release(ctx, affinity) })
}

// checkScopes warns of what the token may not do, as far as Slack says what it may.
func (z *Zone) checkScopes(ctx context.Context, header string) {
	if header == "" {
		return
	}
	has := map[string]bool{}
	for scope := range strings.SplitSeq(header, ",") {
		has[strings.TrimSpace(scope)] = true
	}
	for scope, why := range map[string]string{
		"chat:write":       "answers cannot be posted",
		"channels:history": "after a lost response nobody can see whether an answer was posted in a channel",
		"im:history":       "after a lost response nobody can see whether an answer was posted in a direct message",
		"files:write":      "files cannot be posted",
		"reactions:write":  "people do not see that their question was taken",
	} {
		if !has[scope] && (scope != "reactions:write" || z.cfg.Slack.Status == StatusReaction) {
			z.cfg.Logger.WarnContext(ctx, "the bot token lacks a scope", "event", "slack_scope", "scope", scope, "consequence", why)
		}
	}
}
