package slacktest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"
)

// Message is what a person has written, as an event tells it. Empty members have
// defaults that make a question to the app in a channel.
type Message struct {
	// EventID is new for each event, not for each delivery of it.
	EventID string
	// Type is app_mention or message, Subtype that of a message.
	Type, Subtype string
	// ChannelType is channel, group, mpim or im.
	ChannelType             string
	Team, Channel, User     string
	Text, TS, ThreadTS, Bot string
	Files                   []map[string]any
	// More are further members of the inner event.
	More map[string]any
}

// Body gives the event of a message as Slack sends it.
func (m Message) Body() []byte {
	inner := map[string]any{
		"type": or(m.Type, "app_mention"), "channel": or(m.Channel, "C0CHAN"), "ts": m.TS, "event_ts": m.TS, "text": m.Text,
		"user":   or(m.User, "U0ASKER"),
		"blocks": []map[string]any{{"type": "rich_text_of_the_future", "elements": 7}},
	}
	for name, value := range map[string]string{
		"subtype": m.Subtype, "thread_ts": m.ThreadTS, "bot_id": m.Bot, "channel_type": m.ChannelType,
	} {
		if value != "" {
			inner[name] = value
		}
	}
	if m.Files != nil {
		inner["files"] = m.Files
	}
	maps.Copy(inner, m.More)
	return EventBody(or(m.EventID, "Ev"+m.TS), or(m.Team, Team), inner)
}

// EventBody gives an event_callback with an inner event.
func EventBody(id, team string, inner map[string]any) []byte {
	b, err := json.Marshal(map[string]any{
		"type": "event_callback", "token": "legacy", "team_id": team, "api_app_id": AppID, "event_id": id, "event_time": 1,
		"authorizations": []map[string]any{{"team_id": team, "user_id": BotUser, "is_bot": true, "is_enterprise_install": false}},
		"event":          inner,
	})
	if err != nil {
		panic(err)
	}
	return b
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// Sign gives the headers of a request with that body at that time.
func Sign(secret string, at time.Time, body []byte) http.Header {
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + stamp + ":"))
	mac.Write(body)
	return http.Header{
		"Content-Type":              {"application/json"},
		"X-Slack-Request-Timestamp": {stamp},
		"X-Slack-Signature":         {"v0=" + hex.EncodeToString(mac.Sum(nil))},
	}
}

// Deliver sends an event, the retry-th time again if retry is not 0, and gives the
// response.
func (s *Server) Deliver(ctx context.Context, h http.Handler, body []byte, retry int) *httptest.ResponseRecorder {
	header := Sign(s.cfg.SigningSecret, s.cfg.Now(), body)
	if retry > 0 {
		header.Set("X-Slack-Retry-Num", strconv.Itoa(retry))
		header.Set("X-Slack-Retry-Reason", "http_timeout")
	}
	return Send(ctx, h, header, body)
}

// Send is Deliver with other headers.
func Send(ctx context.Context, h http.Handler, header http.Header, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/slack/events", bytes.NewReader(body))
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
