package verification

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/zone"
)

// Mode is how events come.
type Mode string

// The modes: Slack calls us, or we hold a WebSocket to Slack.
const (
	ModeHTTP   Mode = "http"
	ModeSocket Mode = "socket"
)

// Status is what a person sees while the answer is on its way.
type Status string

// The kinds of status: 👀 at the question, then ✅; the line of an assistant's
// thread; nothing.
const (
	StatusReaction  Status = "reaction"
	StatusAssistant Status = "assistant"
	StatusNone      Status = "none"
)

// Slack is how the app is reached and reaches Slack.
type Slack struct {
	Mode Mode
	// SigningSecret is required with ModeHTTP, AppToken with ModeSocket, BotToken
	// always.
	SigningSecret, BotToken, AppToken parley.Secret
	// APIURL is where the Web API is; default Slack's own. It is HTTPS, except on
	// loopback.
	APIURL string
	// Transport carries the calls; default a new [http.Transport]. Dial makes the
	// connections of Socket Mode; default a [net.Dialer].
	Transport http.RoundTripper
	Dial      DialFunc
	// Proxy is asked which proxy to go through, with the default Transport and in
	// Socket Mode; nil is none.
	Proxy func(*http.Request) (*url.URL, error)
	// Messages has every message in a channel of the app answered, not only those
	// that mention it.
	Messages bool
	// Bots has questions of other apps answered. Two apps that answer each other
	// never end.
	Bots bool
	// Status is what is shown meanwhile; default StatusReaction.
	Status Status
}

// Limits bound what people may ask for. Zero members are defaults.
type Limits struct {
	// Teams, Users and Channels are who may ask and where, by their ids; none is
	// all.
	Teams, Users, Channels []string
	// PerMinute is how many questions a user may ask in a minute; default 10.
	PerMinute int
	// Prompt is how many characters a question may have; default 4000.
	Prompt int
	// Files is how many files may come with a question; default 5, negative for none.
	// Types are their media types, such as image/png or text/*; none is those of
	// [DefaultTypes].
	Files int
	Types []string
	// ImageBytes and DocumentBytes bound one file; default 10 MB and 5 MB.
	ImageBytes, DocumentBytes int64
	// Concurrent is how many questions are worked on together; default 64. Backlog
	// is how many may wait; default 1000. Those above it get a text that says so,
	// and above twice as many Slack is asked to come again.
	Concurrent, Backlog int
	// Attempts is how often a question may be sent to the other zone; default 8.
	Attempts int
}

// Timing has the times of a [Zone]. Zero members are defaults.
type Timing struct {
	// Deadline is how long the other zone may take for an answer; default 120 s.
	Deadline time.Duration
	// Lease is how long a question waits for a process that has died; default 30 s,
	// at least 20 s.
	Lease time.Duration
	// Settle is how long a post whose outcome is unknown may take to appear; default
	// 5 s.
	Settle time.Duration
	// PostFor is how long posting an answer is tried; default an hour.
	PostFor time.Duration
	// Keep is how long the row of a question that has ended stays; default 24 h, at
	// least an hour, since Slack tells of a message again for that long.
	Keep time.Duration
	// Poll is how often is looked whether another process has stored or left
	// something; default 1 s.
	Poll time.Duration
	// Grace is how long Run lets questions go on when it has to stop; default 5 s.
	Grace time.Duration
}

// Config of a [Zone]. DB, Execution, Slack, Now, NewID and Random are required.
type Config struct {
	DB *store.DB
	// Alone says that no other process answers the questions of DB: what an earlier
	// one had at hand is then taken up at the start, and not after its lease.
	Alone     bool
	Execution Execution
	Slack     Slack
	Limits    Limits
	Timing    Timing
	// Profile says whether the bot token goes to the other zone; default
	// zone.ProfileRelaxed, with which it does not.
	Profile zone.Profile
	// Language of the texts: en, the default, or ja. Texts replace some of them, by
	// the names of [TextNames].
	Language string
	Texts    map[string]string
	// Now is the clock of this machine, which Slack's signatures are compared with.
	Now func() time.Time
	// NewID makes a UUID that nobody can guess.
	NewID func() string
	// Random gives a number of at least 0 and less than 1.
	Random func() float64
	// Logger gets what happens, without what people write; default none.
	Logger *slog.Logger
	// Metrics gets the metrics; nil for none.
	Metrics prometheus.Registerer
}

// DefaultTypes are the media types of files that may come with a question.
func DefaultTypes() []string {
	return []string{
		"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/*", "application/json",
		"application/vnd.openxmlformats-officedocument.wordprocessingml.document",
		"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
		"application/vnd.openxmlformats-officedocument.presentationml.presentation",
	}
}

const (
	// slackTimeout bounds one call of the Web API.
	slackTimeout = 10 * time.Second
	minLease     = 2 * slackTimeout
	minKeep      = time.Hour
)

func (c *Config) setDefaults() {
	s, l, t := &c.Slack, &c.Limits, &c.Timing
	s.Mode, s.Status = cmp.Or(s.Mode, ModeHTTP), cmp.Or(s.Status, StatusReaction)
	s.APIURL = cmp.Or(s.APIURL, "https://slack.com/api/")
	if !strings.HasSuffix(s.APIURL, "/") {
		s.APIURL += "/"
	}
	l.PerMinute, l.Prompt, l.Files = cmp.Or(l.PerMinute, 10), cmp.Or(l.Prompt, 4000), cmp.Or(l.Files, 5)
	l.ImageBytes, l.DocumentBytes = cmp.Or(l.ImageBytes, 10_000_000), cmp.Or(l.DocumentBytes, 5_000_000)
	l.Concurrent, l.Backlog, l.Attempts = cmp.Or(l.Concurrent, 64), cmp.Or(l.Backlog, 1000), cmp.Or(l.Attempts, 8)
	if len(l.Types) == 0 {
		l.Types = DefaultTypes()
	}
	t.Deadline, t.Lease, t.Settle = cmp.Or(t.Deadline, 120*time.Second), cmp.Or(t.Lease, 30*time.Second), cmp.Or(t.Settle, 5*time.Second)
	t.PostFor, t.Keep, t.Grace = cmp.Or(t.PostFor, time.Hour), cmp.Or(t.Keep, 24*time.Hour), cmp.Or(t.Grace, 5*time.Second)
	t.Poll = cmp.Or(t.Poll, time.Second)
	c.Profile, c.Language = cmp.Or(c.Profile, zone.ProfileRelaxed), cmp.Or(c.Language, "en")
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func (c *Config) check() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	s, l, t := &c.Slack, &c.Limits, &c.Timing
	wrong(c.DB == nil || c.Execution == nil || c.Now == nil || c.NewID == nil || c.Random == nil, "DB, Execution, Now, NewID and Random are required")
	wrong(s.Mode != ModeHTTP && s.Mode != ModeSocket, "slack.mode is %q: it is http or socket", s.Mode)
	wrong(s.Mode == ModeHTTP && s.SigningSecret.IsZero(), "slack.signing_secret is missing: without it anybody could ask as anybody")
	wrong(s.Mode == ModeSocket && s.AppToken.IsZero(), "slack.app_token is missing, which Socket Mode needs")
	wrong(s.BotToken.IsZero(), "slack.bot_token is missing, which answers are posted with")
	wrong(s.Status != StatusReaction && s.Status != StatusAssistant && s.Status != StatusNone, "slack.status is %q: it is reaction, assistant or none", s.Status)
	wrong(!safeURL(s.APIURL), "slack.api_url must be an HTTPS URL, since the tokens go there")
	wrong(min(l.PerMinute, l.Prompt, l.Concurrent, l.Backlog, l.Attempts) < 1 || min(l.ImageBytes, l.DocumentBytes) < 1, "limits are at least 1")
	wrong(t.Lease < minLease, "the lease is at least %v, longer than a call of Slack takes", minLease)
	wrong(t.Keep < minKeep, "questions are kept for at least %v, since Slack tells of them again", minKeep)
	wrong(min(t.Deadline, t.Settle, t.PostFor, t.Poll, t.Grace) < 0, "times are not negative")
	wrong(c.Profile != zone.ProfileStrict && c.Profile != zone.ProfileRelaxed, "profile is %q: it is strict or relaxed", c.Profile)
	if err := errors.Join(errs...); err != nil {
		return parley.Errorf(parley.CodeInvalid, "the Verification Zone cannot start: %w", err)
	}
	return nil
}

// safeURL says whether tokens may go to a URL.
func safeURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil {
		return false
	}
	if u.Scheme == "https" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}
