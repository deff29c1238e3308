package verification

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/slack-go/slack"
	"github.com/slack-go/slack/socketmode"
)

const (
	// socketRead bounds one message of Socket Mode, in bytes.
	socketRead = 4 << 20
	// socketBuffer has every answer to Slack go out as one frame: Slack does not put
	// together those of several.
	socketBuffer = 32 << 10
	// socketAtOnce is how many events are stored at once.
	socketAtOnce = 16
	// ackWithin bounds the wait for a connection on which an event is acknowledged.
	ackWithin = 10 * time.Second
	// connectMost bounds the wait between attempts to connect.
	connectMost = time.Minute
)

// listen holds a Socket Mode connection until ctx ends. The library dials again
// when it is lost or Slack asks for it, and gives up only if the token is refused.
// Its pauses grow to five minutes, in which nobody hears people who ask: one that
// would be longer than connectMost is made here.
func (z *Zone) listen(ctx context.Context) {
	dial := z.cfg.Slack.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: slackTimeout}).DialContext
	}
	for n := 1; ctx.Err() == nil; n++ {
		client := socketmode.New(z.api, socketmode.OptionLog(silent{}), socketmode.OptionReadLimit(socketRead),
			socketmode.OptionDialer(&websocket.Dialer{NetDialContext: dial, Proxy: z.cfg.Slack.Proxy, HandshakeTimeout: slackTimeout, WriteBufferSize: socketBuffer}))
		running, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		all.Go(func() { z.handle(running, client, stop) })
		err := client.RunContext(running)
		stop()
		all.Wait()
		if ctx.Err() != nil {
			return
		}
		wait := z.backoff(n, connectMost)
		// The error may hold the URL, and with it a ticket.
		z.cfg.Logger.ErrorContext(ctx, "Socket Mode has ended", "event", "slack_socket", "code", judge(err).code, "again_in", wait)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// handle takes the events of a client until ctx ends, which stop does.
func (z *Zone) handle(ctx context.Context, client *socketmode.Client, stop context.CancelFunc) {
	slots := make(chan struct{}, socketAtOnce)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-client.Events:
			id, payload, d, ok := z.envelopeOf(ctx, &ev)
			if tooPatient(&ev) {
				stop()
			}
			if !ok {
				continue
			}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				z.takeSocket(ctx, client, id, payload, d)
			})
		}
	}
}

// tooPatient says whether the library is about to wait for longer than Slack has
// asked for and connectMost.
func tooPatient(ev *socketmode.Event) bool {
	failed, ok := ev.Data.(*slack.ConnectionErrorEvent)
	if !ok {
		return false
	}
	_, asked := errors.AsType[*slack.RateLimitedError](failed.ErrorObj)
	return !asked && failed.Backoff > connectMost
}

// envelopeOf gives what is to be acknowledged; payload is nil for what is nothing
// but that.
func (z *Zone) envelopeOf(ctx context.Context, ev *socketmode.Event) (id string, payload []byte, d delivery, ok bool) {
	switch ev.Type {
	case socketmode.EventTypeConnected:
		z.cfg.Logger.InfoContext(ctx, "Socket Mode is connected", "event", "slack_socket")
		return "", nil, d, false
	case socketmode.EventTypeConnectionError, socketmode.EventTypeInvalidAuth, socketmode.EventTypeErrorWriteFailed, socketmode.EventTypeIncomingError:
		code := string(ev.Type)
		if e, isError := ev.Data.(*slack.ConnectionErrorEvent); isError {
			code = judge(e.ErrorObj).code
		}
		z.cfg.Logger.WarnContext(ctx, "Socket Mode has a problem", "event", "slack_socket", "code", code)
		return "", nil, d, false
	case socketmode.EventTypeErrorBadMessage:
		// The library does not know it, or finds a member of an unknown type in it. It
		// may be a question all the same, and is acknowledged in any case: Slack would
		// send it three more times.
		bad, isBad := ev.Data.(*socketmode.ErrorBadMessage)
		if !isBad {
			return "", nil, d, false
		}
		m := object(bad.Message)
		d = delivery{retry: string(m["retry_attempt"]), reason: m.str("retry_reason")}
		if m.str("type") == socketmode.RequestTypeEventsAPI {
			payload = m["payload"]
		}
		id = m.str("envelope_id")
	default:
		if ev.Request == nil {
			return "", nil, d, false
		}
		id = ev.Request.EnvelopeID
		if ev.Type == socketmode.EventTypeEventsAPI {
			payload = ev.Request.Payload
			if ev.Request.RetryAttempt > 0 {
				d = delivery{retry: string(rune('0' + min(ev.Request.RetryAttempt, 9))), reason: ev.Request.RetryReason}
			}
		}
	}
	return id, payload, d, id != ""
}

// takeSocket acknowledges an envelope when what it asks for is stored.
func (z *Zone) takeSocket(ctx context.Context, client *socketmode.Client, id string, payload []byte, d delivery) {
	if payload != nil {
		if e, ok := readEnvelope(payload); ok && z.take(context.WithoutCancel(ctx), &e, d) != nil {
			return // Slack sends it again
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ackWithin)
	defer cancel()
	if err := client.AckCtx(ctx, id, nil); err != nil && ctx.Err() == nil {
		z.cfg.Logger.WarnContext(ctx, "an event could not be acknowledged", "event", "slack_socket", "envelope", clean(id))
	}
}
