package verification

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
)

// envelope is what Slack sends, as far as anybody can rely on it: a member that is
// missing, of another type or new is no reason to refuse the others (zones.md §0,
// row 9).
type envelope struct {
	kind, challenge    string
	eventID, team, app string
	self               []string // our bot users, as the authorizations have them
	inner              event
	tokens             bool // the bot's tokens were revoked
	trace              parley.Trace
}

// event is the inner event.
type event struct {
	kind, subtype, channel, channelType string
	user, bot, app                      string
	text, ts, thread                    string
	files                               []zone.Attachment
}

type members map[string]json.RawMessage

func object(raw json.RawMessage) members {
	var m members
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

func (m members) str(name string) string {
	var s string
	if json.Unmarshal(m[name], &s) != nil {
		return ""
	}
	return s
}

func (m members) list(name string) []json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(m[name], &list) != nil {
		return nil
	}
	return list
}

// readEnvelope reads the body of a request, or the payload of Socket Mode. ok is
// false for what is no JSON object.
func readEnvelope(body []byte) (e envelope, ok bool) {
	m := object(body)
	if m == nil {
		return envelope{}, false
	}
	e = envelope{
		kind: m.str("type"), challenge: m.str("challenge"), eventID: m.str("event_id"), team: m.str("team_id"), app: m.str("api_app_id"),
	}
	for _, raw := range m.list("authorizations") {
		a := object(raw)
		// Those of people are there, too, if the app acts for them.
		if user := a.str("user_id"); user != "" && string(a["is_bot"]) == "true" {
			e.self = append(e.self, user)
		}
	}
	in := object(m["event"])
	e.inner = event{
		kind: in.str("type"), subtype: in.str("subtype"), channel: in.str("channel"), channelType: in.str("channel_type"),
		user: in.str("user"), bot: in.str("bot_id"), app: in.str("app_id"), text: in.str("text"), ts: in.str("ts"), thread: in.str("thread_ts"),
	}
	if e.team == "" { // an app of a whole organization
		e.team = in.str("team")
	}
	for _, raw := range in.list("files") {
		f := object(raw)
		a := zone.Attachment{ID: f.str("id"), Name: f.str("name"), MIMEType: f.str("mimetype")}
		if json.Unmarshal(f["size"], &a.Size) != nil || a.Size < 0 {
			a.Size = 0
		}
		e.inner.files = append(e.inner.files, a)
	}
	e.tokens = len(object(in["tokens"]).list("bot")) > 0
	return e, true
}

// isQuestion says whether an event is somebody's question to us, and why not.
func (z *Zone) isQuestion(e *envelope) (why string, ok bool) {
	in := &e.inner
	switch {
	case in.channel == "" || in.ts == "" || e.team == "":
		return "incomplete", false
	case z.own(e):
		return "own", false
	case in.bot != "" && (!z.cfg.Slack.Bots || !z.known()):
		return "bot", false
	case in.user == "":
		return "nobody", false
	case in.kind == "app_mention" && (in.subtype == "" || in.subtype == "file_share" || in.subtype == "bot_message"):
		return "", true
	case in.kind != "message":
		return "type", false
	case in.subtype != "" && in.subtype != "file_share" && in.subtype != "thread_broadcast":
		return "subtype", false
	case in.channelType == "im" || in.channelType == "" && strings.HasPrefix(in.channel, "D"):
		return "", true
	case z.cfg.Slack.Messages:
		return "", true
	}
	return "channel", false
}

// own says whether we have written it ourselves.
func (z *Zone) own(e *envelope) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	in := &e.inner
	return in.user != "" && (in.user == z.self.user || slices.Contains(e.self, in.user)) ||
		in.bot != "" && in.bot == z.self.bot || in.app != "" && in.app == e.app
}

// prompt is the text of a question as the other zone gets it: without the mention
// of us, and without Slack's escapes.
func (z *Zone) prompt(e *envelope) string {
	text := e.inner.text
	z.mu.Lock()
	ours := append(slices.Clone(e.self), z.self.user)
	z.mu.Unlock()
	for _, user := range ours {
		if user == "" {
			continue
		}
		text = strings.ReplaceAll(text, "<@"+user+">", " ")
		if before, after, ok := strings.Cut(text, "<@"+user+"|"); ok {
			if _, rest, ok := strings.Cut(after, ">"); ok {
				text = before + " " + rest
			}
		}
	}
	text = strings.TrimSpace(text)
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(text)
}
