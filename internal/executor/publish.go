package executor

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/records"
	"github.com/parley-project/parley/internal/store"
)

const (
	// publishAtOnce bounds the records of one Publisher that are on their way.
	publishAtOnce = 64
	// announcedMost and announcedBytes bound those that wait without having been
	// looked for, and their inputs.
	announcedMost  = 4096
	announcedBytes = 64 << 20
	// announceAtEnd is what a Publisher that ends has for those that wait.
	announceAtEnd = 2 * time.Second
)

// PublisherConfig is what a [Publisher] is made from. Take, Bus and Now are
// required.
type PublisherConfig struct {
	// Take gives open attempts to be announced, at most limit of them, and hides
	// them for a while: [store.DB.Publish].
	Take func(ctx context.Context, now time.Time, limit int) ([]store.Attempt, error)
	Bus  bus.Bus
	// Now gives the time that rows are compared with: [store.DB.Now].
	Now func() time.Time
	// Told: somebody publishes [bus.SubjectOpen] when there are open attempts.
	Told bool
	// Every is how often the store is looked at without having been asked; 0 is
	// never.
	Every time.Duration
	// Batch bounds the attempts of one look; default 500. Where several processes
	// publish to buses of their own, smaller ones share the tasks better.
	Batch  int
	Logger *slog.Logger
	// Failpoint is for crash tests, nil in production. It is called with
	// "P2.before-publish" when attempts were taken and none is on the bus yet; after
	// an error none gets there, as if the process had ended.
	Failpoint func(name string) error
}

// Publisher is transition P2 of protocol.md: every visible open attempt is
// announced on the bus. It may be repeated at will, and any number of
// publishers may share a store. It runs where tasks get onto the bus: with the
// executor, or with the bridge if the bus does not reach other processes.
type Publisher struct {
	cfg  PublisherConfig
	kick chan struct{}
	// announced are attempts that were inserted as such, bytes those of their inputs.
	announced chan store.Attempt
	bytes     atomic.Int64
	// announce, if set, is done in place of publish.
	announce func(ctx context.Context) error
}

// NewPublisher makes a Publisher.
func NewPublisher(cfg PublisherConfig) *Publisher {
	if cfg.Batch <= 0 {
		cfg.Batch = publishBatch
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Publisher{cfg: cfg, kick: make(chan struct{}, 1), announced: make(chan store.Attempt, announcedMost)}
}

// Announce puts an attempt on the bus that was inserted as announced. It does not
// wait, and may be called concurrently. What does not get there, because too many
// wait or Run has ended, is announced 5 s after its insertion by whoever looks.
func (p *Publisher) Announce(a store.Attempt) {
	size := int64(len(a.Input))
	if p.bytes.Add(size) <= announcedBytes {
		select {
		case p.announced <- a:
			return
		default:
		}
	}
	p.bytes.Add(-size)
}

// Soon asks for open attempts to be announced now. It does not wait, and may be
// called concurrently, also without Run.
func (p *Publisher) Soon() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Run announces until ctx ends: whenever it is asked, by Soon or by a message of
// [bus.SubjectOpen], and regularly. The error is that of the subscription.
func (p *Publisher) Run(ctx context.Context) error {
	if p.cfg.Told {
		stop, err := p.cfg.Bus.Subscribe(ctx, bus.SubjectOpen, "", func(context.Context, bus.Message) error {
			p.Soon()
			return nil
		})
		if err != nil {
			return err
		}
		defer stop()
	}
	var again <-chan time.Time
	if p.cfg.Every > 0 {
		tick := time.NewTicker(p.cfg.Every)
		defer tick.Stop()
		again = tick.C
	}
	p.Soon()
	for {
		select {
		case <-ctx.Done():
			p.publishAnnounced(ctx)
			return nil
		case a := <-p.announced:
			p.publishAnnounced(ctx, a)
			continue
		case <-p.kick:
		case <-again:
		}
		if err := p.announceOpen(ctx); err != nil && ctx.Err() == nil {
			p.cfg.Logger.Error("open attempts not published; that is tried again", "error", err)
		}
	}
}

// publishAnnounced puts announced attempts on the bus: rows, and those that wait
// behind them. When ctx has ended there is a little time left for that.
func (p *Publisher) publishAnnounced(ctx context.Context, rows ...store.Attempt) {
	if ctx.Err() != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceAtEnd)
		defer cancel()
		ctx = ending
	}
	for waiting := true; waiting && len(rows) < p.cfg.Batch; {
		select {
		case a := <-p.announced:
			rows = append(rows, a)
		default:
			waiting = false
		}
	}
	if err := p.publishAll(ctx, rows, p.cfg.Now().UTC().Truncate(time.Microsecond)); err != nil && ctx.Err() == nil {
		p.cfg.Logger.Error("attempts not published; that is tried again after 5 s", "error", err)
	}
	for i := range rows {
		p.bytes.Add(-int64(len(rows[i].Input)))
	}
}

func (p *Publisher) announceOpen(ctx context.Context) error {
	if p.announce != nil {
		return p.announce(ctx)
	}
	return p.publish(ctx)
}

func (p *Publisher) publish(ctx context.Context) error {
	for {
		now := p.cfg.Now().UTC().Truncate(time.Microsecond)
		rows, err := p.cfg.Take(ctx, now, p.cfg.Batch)
		if err != nil {
			return err
		}
		if p.cfg.Failpoint != nil && len(rows) > 0 {
			if err := p.cfg.Failpoint("P2.before-publish"); err != nil {
				return err
			}
		}
		if err := p.publishAll(ctx, rows, now); err != nil {
			return err
		}
		if len(rows) < p.cfg.Batch {
			return nil
		}
	}
}

// publishAll announces rows, many at a time: on a bus between processes each
// takes its time. It gives the first error; what was not announced is given
// again by the store after a while.
func (p *Publisher) publishAll(ctx context.Context, rows []store.Attempt, now time.Time) error {
	var g errgroup.Group
	g.SetLimit(publishAtOnce)
	for i := range rows {
		g.Go(func() error { return p.publishOne(ctx, &rows[i], now) })
	}
	return g.Wait()
}

func (p *Publisher) publishOne(ctx context.Context, a *store.Attempt, now time.Time) error {
	var m bus.Message
	var err error
	size := int64(len(a.Input))
	if apart := a.InputApart; apart != nil {
		size = apart.Size
	} else {
		if m, err = taskRecord(a, a.Input, now); err == nil {
			err = p.cfg.Bus.Publish(ctx, m)
		}
		if code := parley.CodeOf(err); code != parley.CodeLimit && code != parley.CodeInvalid {
			return err
		}
	}
	// An input that is no object, is kept apart, or is too large for a record is
	// read from the store alone.
	if m, err = taskRecord(a, nil, now); err != nil {
		return err
	}
	m.Header[bus.HeaderBytes] = strconv.FormatInt(size, 10)
	return p.cfg.Bus.Publish(ctx, m)
}

// taskRecord is an AgentTask of formats.md. Bridges of ours only look at the row
// that task_id names.
func taskRecord(a *store.Attempt, input json.RawMessage, now time.Time) (bus.Message, error) {
	v, err := records.AgentTask{
		RunID: a.Run, TaskID: a.ID, AgentName: a.Agent, Input: input, CorrelationID: a.CorrelationID, At: now,
	}.Encode()
	header := map[string]string{bus.HeaderTask: "1", bus.HeaderCorrelation: a.CorrelationID, bus.HeaderIdempotency: a.ID}
	if a.Policy.OnOpen != "" {
		header[bus.HeaderOnOpen] = string(a.Policy.OnOpen)
	}
	a.Trace.Into(header)
	if !a.ScheduledAt.IsZero() {
		turn := a.ScheduledAt.Add(-time.Duration(a.Urgency) * parley.PriorityWait)
		header[bus.HeaderTurn] = strconv.FormatInt(turn.UnixMicro(), 10)
	}
	return bus.Message{Subject: bus.SubjectTasks, Key: a.Run, Value: v, Header: header}, err
}
