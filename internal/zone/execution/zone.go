package execution

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley/internal/zone"
)

// What Config leaves open.
const (
	// DefaultSyncLimit lets callers have an answer before boto3 gives up after 60
	// seconds and asks again (zones.md §0, 4).
	DefaultSyncLimit   = 50 * time.Second
	DefaultPollAfter   = 2 * time.Second
	DefaultMaxBody     = 10_000_000
	DefaultMaxInFlight = 256
	// MaxSyncLimit is how long AgentCore lets a synchronous request take.
	MaxSyncLimit = 15 * time.Minute
)

const (
	// startLimit bounds how long the start of a task may take, since the caller's
	// going away does not end it.
	startLimit = 30 * time.Second
	// bodyLimit bounds how long a body may take to come.
	bodyLimit = time.Minute
	// readers is how many bodies are read at a time; others wait.
	readers = 64
	// undecidedFor is when to try again whom nobody could decide about: issuers are
	// asked again no sooner.
	undecidedFor = 10 * time.Second
	// believed is up to which length of a body memory is taken before it comes.
	believed = 1 << 20
)

// Config is what a Zone is made of.
type Config struct {
	Work    Work
	Profile zone.Profile
	// SyncLimit is how long a request waits for its task before it is answered as
	// accepted; 0 is DefaultSyncLimit, more than MaxSyncLimit counts as that.
	SyncLimit time.Duration
	// PollAfter is when callers are told to ask again; 0 is DefaultPollAfter.
	PollAfter time.Duration
	// MaxBody and MaxResponse bound requests and responses, in bytes; 0 is
	// DefaultMaxBody, more than zone.MaxPayload counts as that.
	MaxBody, MaxResponse int
	// MaxFile bounds the file in a result, in bytes; 0 is zone.DefaultMaxFile.
	MaxFile int
	// MaxInFlight is how many tasks are waited for at a time, and how many are asked
	// for; others are told that the zone is overloaded. 0 is DefaultMaxInFlight.
	MaxInFlight int
	// Card is the agent card; nil is a card that says as little as a card may.
	Card json.RawMessage
	// Authorize says whether a caller may call; its error is for the log, and with
	// zoneauth.ErrUnavailable in it the caller is told to try again. nil lets
	// everybody.
	Authorize func(*http.Request) error
	// NewID makes UUIDs: ids of tasks whose request has none, and correlation ids.
	NewID func() string
	// Now is the clock.
	Now    func() time.Time
	Logger *slog.Logger
}

// A Zone serves the contract. It has no goroutines of its own.
type Zone struct {
	cfg   Config
	codec *zone.Codec

	slots   chan struct{} // one for each execute_task that is served
	looks   chan struct{} // one for each other request
	reading chan struct{} // one for each body that is read
	serving atomic.Int64  // tasks that are being started or waited for

	draining atomic.Bool
	drain    func()
	// onDrain has f called when drain is, unless what it returns is called before.
	onDrain func(f func()) (stop func() bool)

	ping struct {
		sync.Mutex
		busy  bool
		since time.Time
	}
}

// New returns a Zone.
func New(cfg Config) *Zone {
	if cfg.SyncLimit <= 0 {
		cfg.SyncLimit = DefaultSyncLimit
	}
	cfg.SyncLimit = min(cfg.SyncLimit, MaxSyncLimit)
	if cfg.PollAfter <= 0 {
		cfg.PollAfter = DefaultPollAfter
	}
	cfg.MaxBody = limit(cfg.MaxBody, DefaultMaxBody)
	cfg.MaxResponse = limit(cfg.MaxResponse, DefaultMaxBody)
	cfg.MaxFile = limit(cfg.MaxFile, zone.DefaultMaxFile)
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = DefaultMaxInFlight
	}
	if cfg.Card == nil {
		cfg.Card = json.RawMessage(minimalCard)
	}
	z := &Zone{
		cfg: cfg, codec: zone.NewCodec(cfg.Profile),
		slots: make(chan struct{}, cfg.MaxInFlight), looks: make(chan struct{}, cfg.MaxInFlight), reading: make(chan struct{}, readers),
	}
	z.ping.since = cfg.Now()
	drained, drain := context.WithCancel(context.Background())
	z.drain, z.onDrain = drain, func(f func()) func() bool { return context.AfterFunc(drained, f) }
	return z
}

const minimalCard = `{"name":"execution zone","description":"executes tasks of a verification zone","version":"1","protocolVersion":"0.3.0","url":"","capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"execute_task","name":"execute_task","description":"answers a question","tags":[]}]}`

func limit(n, otherwise int) int {
	if n <= 0 {
		n = otherwise
	}
	return min(n, zone.MaxPayload)
}

// Drain is for when the process is about to stop: from now on new tasks are refused,
// and everybody who waits is told that the task was accepted. Results may still be
// asked for.
func (z *Zone) Drain() {
	z.draining.Store(true)
	z.drain()
}
