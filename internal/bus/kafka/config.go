// Package kafka is the bus over Apache Kafka, between the processes of one
// platform and beside peers of the existing one, whose topics and records it
// keeps to.
//
// Offsets wait for nothing: a record is acknowledged when its handler has
// returned, since what it stands for is in the store (design.md, promise 1).
// [Bus.SubscribeDeferred] is for who has no store.
package kafka

import (
	"context"
	"crypto/tls"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
)

// The mechanisms of [SASL], as Kafka names them.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
	OAuthBearer = "OAUTHBEARER"
)

// SASL is how a process proves who it is.
type SASL struct {
	// Mechanism is one of the constants above.
	Mechanism string
	// User is for PLAIN and SCRAM.
	User string
	// Secret gives the password of PLAIN and SCRAM, the token of OAUTHBEARER. It is
	// asked for each connection, concurrently, and has 10 seconds.
	Secret func(context.Context) (string, error)
}

// String gives the mechanism and the user.
func (s SASL) String() string { return strings.TrimSpace(s.Mechanism + " " + s.User) }

// Config says how to reach Kafka and what to use there. Brokers is needed; the
// zero value of every other member is its default.
type Config struct {
	// Brokers are addresses (host:port) to begin with; the others are learnt.
	Brokers []string
	// Topics names the topic of each subject; subjects that it leaves out have
	// those of [DefaultTopics]. No topic may stand for two subjects.
	Topics map[string]string
	// Used are the subjects whose topics CreateTopics makes and CheckTopics looks at;
	// nil is all of them, some of which may not be needed.
	Used []string
	// Written are the subjects that this process publishes: CheckTopics looks whether it
	// may. Nobody asks for that at the start otherwise, as who listens does.
	Written []string
	// InstanceID names this process and stays over its restarts, so that its
	// partitions are its own again at once (static membership). No two processes
	// that run at a time may have the same. Empty: membership ends with the
	// process.
	InstanceID string
	// SASL is the login, nil for none.
	SASL *SASL
	// TLS gives what encrypts, for each connection anew; nil does not encrypt. The
	// server's name is that of each broker's address unless it is set.
	TLS func() (*tls.Config, error)
	// Compression of what is published: "none" (the default) or "gzip"; old peers
	// can read no other (formats.md).
	Compression string
	// MaxRecord bounds key, value and header of a record in bytes; default 900
	// KiB. A larger one is refused with the code limit.
	MaxRecord int
	// Linger is how long a record may wait for others to travel with; default 2
	// ms, negative for none.
	Linger time.Duration
	// PublishTimeout bounds each Publish beside its context; default 15 s. A
	// record that was not confirmed by then may have been accepted.
	PublishTimeout time.Duration
	// SessionTimeout is how long a member of a group may be silent until its
	// partitions move; default 10 s.
	SessionTimeout time.Duration
	// CommitInterval is the least time between two commits of a group's offsets;
	// default 200 ms.
	CommitInterval time.Duration
	// LagInterval is how often the ends of the partitions of this process are asked
	// for, of which the lag is reckoned; default 10 s.
	LagInterval time.Duration
	// Lookback is how far back a group begins that has no offsets, with tasks and
	// results: somebody may still be waiting for what becomes of them. Everything
	// else it begins with what is published from then on, since a request or a hint
	// that is old must not be acted upon again. Default 0: tasks and results, too.
	Lookback time.Duration
	// Workers bounds the handlers of one subscription that run at a time in this
	// process; default 8.
	Workers int
	// OpenRecords bounds the records of one partition that have been received and
	// not acknowledged; default 16,384. Up to one fetch (500 records) more may be
	// there for a moment.
	OpenRecords int
	// OpenBytes bounds the bytes of such records of one group; default 64 MiB. Of what
	// waits for one who listens without a group, both bound it.
	OpenBytes int64
	// Logger gets what goes wrong in the background; default none.
	Logger *slog.Logger
	// Now is the clock of [State], and measures pauses; default time.Now.
	Now func() time.Time
	// Dialer opens connections, below TLS; default that of net with 10 s.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
}

// DefaultTopics are the topics of the subjects: those of the existing platform
// (formats.md), and ours.
func DefaultTopics() map[string]string {
	return map[string]string{
		bus.SubjectTasks:          "orchestrator.tasks.http",
		bus.SubjectResults:        "results.topic",
		bus.SubjectMonitoring:     "workflow.monitoring.updates",
		bus.SubjectStartRequests:  "workflow.execution.requests",
		bus.SubjectCancelRequests: "workflow.cancellation.requests",
		bus.SubjectRuns:           "parley.runs",
		bus.SubjectProgress:       "parley.progress",
		bus.SubjectHint:           "parley.hints",
		bus.SubjectCancel:         "parley.cancels",
		bus.SubjectChanged:        "parley.changes",
		bus.SubjectDeadLetters:    "agent.tasks.dlq",
	}
}

// shared says whether peers of the existing platform read a subject.
func shared(subject string) bool {
	switch subject {
	case bus.SubjectTasks, bus.SubjectResults, bus.SubjectMonitoring, bus.SubjectStartRequests, bus.SubjectCancelRequests:
		return true
	}
	return false
}

// awaited says whether somebody may wait for what becomes of a record that lies
// there already.
func awaited(subject string) bool {
	return subject == bus.SubjectTasks || subject == bus.SubjectResults
}

// instanceID is what Kafka takes.
var instanceID = regexp.MustCompile(`^[A-Za-z0-9._-]{0,249}$`)

// orDefault gives v, or def if v is the zero value.
func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// complete checks a configuration and fills in the defaults.
func complete(c Config) (Config, error) {
	if len(c.Brokers) == 0 {
		return c, parley.Errorf(parley.CodeInvalid, "no Kafka broker is named: set bus.kafka.brokers to host:port addresses")
	}
	var err error
	if c.Brokers, err = addresses(c.Brokers); err != nil {
		return c, err
	}
	topics := DefaultTopics()
	maps.Copy(topics, c.Topics)
	c.Topics = topics
	owner := make(map[string]string)
	for _, subject := range slices.Sorted(maps.Keys(topics)) {
		topic := topics[subject]
		if topic == "" {
			return c, parley.Errorf(parley.CodeInvalid, "bus.kafka.topics: %s has no topic", subject)
		}
		if other := owner[topic]; other != "" {
			return c, parley.Errorf(parley.CodeInvalid, "bus.kafka.topics: %s and %s both use the topic %s; give each its own", other, subject, topic)
		}
		owner[topic] = subject
	}
	c.Compression = orDefault(c.Compression, "none")
	if c.Compression != "none" && c.Compression != "gzip" {
		return c, parley.Errorf(parley.CodeInvalid, "bus.kafka.compression: %q is not none or gzip, which is all that old peers can read", c.Compression)
	}
	if !instanceID.MatchString(c.InstanceID) {
		return c, parley.Errorf(parley.CodeInvalid, "bus.kafka.instance_id: %q must have letters, digits, '.', '_' and '-' only, at most 249", c.InstanceID)
	}
	if err := checkSASL(c.SASL); err != nil {
		return c, err
	}
	if c.Lookback < 0 {
		return c, parley.Errorf(parley.CodeInvalid, "bus.kafka.lookback: %v is negative; 0 begins with what is published from now on", c.Lookback)
	}
	c.MaxRecord = orDefault(c.MaxRecord, 900<<10)
	c.Linger = max(orDefault(c.Linger, 2*time.Millisecond), 0)
	c.PublishTimeout = orDefault(c.PublishTimeout, 15*time.Second)
	c.SessionTimeout = orDefault(c.SessionTimeout, 10*time.Second)
	c.CommitInterval = orDefault(c.CommitInterval, 200*time.Millisecond)
	c.LagInterval = orDefault(c.LagInterval, 10*time.Second)
	c.Workers = orDefault(c.Workers, 8)
	c.OpenRecords = orDefault(c.OpenRecords, 16_384)
	c.OpenBytes = orDefault(c.OpenBytes, 64<<20)
	c.Logger = orDefault(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Dialer == nil {
		c.Dialer = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	return c, nil
}

// usualPort is that of a broker which is named without one.
const usualPort = "9092"

// addresses gives brokers as they are dialed, by which they are told from those that other
// brokers name.
func addresses(brokers []string) ([]string, error) {
	all := make([]string, len(brokers))
	for i, broker := range brokers {
		host, port, err := net.SplitHostPort(broker)
		if _, bad := netip.ParseAddr(strings.Trim(broker, "[]")); bad == nil || !strings.Contains(broker, ":") {
			host, port, err = strings.Trim(broker, "[]"), usualPort, nil
		}
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || broker == "" || strings.ContainsAny(host, "/@ ") {
			return nil, parley.Errorf(parley.CodeInvalid, "bus.kafka.brokers: %q is no address; write host:port, such as kafka:%s", broker, usualPort)
		}
		all[i] = net.JoinHostPort(host, port)
	}
	return all, nil
}

func checkSASL(s *SASL) error {
	switch {
	case s == nil:
		return nil
	case s.Mechanism == OAuthBearer:
		if s.Secret == nil {
			return parley.Errorf(parley.CodeInvalid, "bus.kafka.sasl: oauthbearer needs a token; set bus.kafka.sasl.token")
		}
		return nil
	case s.Mechanism == Plain || s.Mechanism == ScramSHA256 || s.Mechanism == ScramSHA512:
		if s.User == "" || s.Secret == nil {
			return parley.Errorf(parley.CodeInvalid, "bus.kafka.sasl: %s needs a user and a password; set bus.kafka.sasl.user and bus.kafka.sasl.password",
				strings.ToLower(s.Mechanism))
		}
		return nil
	}
	return parley.Errorf(parley.CodeInvalid, "bus.kafka.sasl: %q is not one of plain, scram-sha-256, scram-sha-512 and oauthbearer", s.Mechanism)
}
