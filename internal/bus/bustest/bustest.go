// Package bustest is the contract that every [bus.Bus] keeps while it is
// healthy. A bus may lose, repeat and delay messages when something fails;
// these cases make nothing fail.
package bustest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/bus"
)

// Case is one rule of the contract and how to find out whether a bus keeps it.
type Case struct {
	Name string
	// Rule is the sentence that is violated when Check fails.
	Rule string
	// Check uses a bus of its own, whose subjects nobody else uses.
	Check func(ctx context.Context, b bus.Bus) error
}

// patience is how long a case waits for what must happen, calm how long it
// waits for what must not.
const (
	patience = time.Minute
	calm     = 100 * time.Millisecond
)

// Run checks that the buses which open makes keep the contract. open registers
// the closing of its bus with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) bus.Bus) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Check(t.Context(), open(t)); err != nil {
				t.Errorf("%v\nviolated: %s", err, c.Rule)
			}
		})
	}
}

// Cases are the rules of the contract.
func Cases() []Case {
	return []Case{
		{"everything arrives", "What Publish has accepted arrives, with subject, key, value and header as they were.", everything},
		{"order of a key", "Messages of equal key arrive in the order in which they were published.", keyOrder},
		{"one of a key at a time", "Handlers of equal key never overlap, whoever of the group they belong to.", noOverlap},
		{"group shares", "Of a group exactly one member gets each message; another group gets it too.", groups},
		{"no group gets all", "Each subscription without a group gets every message.", broadcast},
		{"only from now on", "A subscription gets nothing that was published before it, and nothing of other subjects.", fromNowOn},
		{"errors do not repeat", "A message is acknowledged when its handler returns, also with an error: it does not come again.", errorsAcknowledge},
		{"stop waits", "The last handler has returned before stop does, and none begins afterwards.", stopWaits},
		{"stop again", "stop may be called again.", stopAgain},
		{"publish is bounded", "Publish blocks no longer than its context, whatever a subscriber does.", publishBounded},
		{"a member may leave", "When a member of a group stops, or a subscription without a group, the others get what is published afterwards.", memberLeaves},
		{"a group comes again", "When the last member of a group has stopped, who subscribes to it again gets what is published afterwards.", comesAgain},
	}
}

// Subjects are those that the cases use, for a bus that has to know them
// beforehand.
func Subjects() []string {
	var all []string
	for _, name := range []string{
		"everything", "order", "overlap", "groups", "broadcast", "now", "other", "errors", "stop", "again", "full", "leave",
		"back", "deferred",
	} {
		all = append(all, "bustest."+name)
	}
	return all
}

// inbox collects what a handler gets.
type inbox struct {
	mu   sync.Mutex
	got  []bus.Message
	more chan struct{}
}

func newInbox() *inbox { return &inbox{more: make(chan struct{}, 1)} }

func (i *inbox) handle(_ context.Context, m bus.Message) error {
	i.mu.Lock()
	i.got = append(i.got, m)
	i.mu.Unlock()
	select {
	case i.more <- struct{}{}:
	default:
	}
	return nil
}

func (i *inbox) all() []bus.Message {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]bus.Message(nil), i.got...)
}

// wait gives the messages once there are n.
func (i *inbox) wait(n int) ([]bus.Message, error) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		if got := i.all(); len(got) >= n {
			return got, nil
		}
		select {
		case <-i.more:
		case <-limit.C:
			return nil, fmt.Errorf("%d of %d messages arrived within %v", len(i.all()), n, patience)
		}
	}
}

// exactly gives the messages once there are n, and fails if more come.
func (i *inbox) exactly(n int) ([]bus.Message, error) {
	if _, err := i.wait(n); err != nil {
		return nil, err
	}
	time.Sleep(calm)
	got := i.all()
	if len(got) != n {
		return nil, fmt.Errorf("%d messages arrived, %d were published", len(got), n)
	}
	return got, nil
}

// numbered publishes n messages whose values are 0 to n-1, spread over keys.
func numbered(ctx context.Context, b bus.Bus, subject string, n, keys int) error {
	for i := range n {
		m := bus.Message{Subject: subject, Key: fmt.Sprintf("key-%d", i%keys), Value: fmt.Append(nil, i)}
		if err := publish(ctx, b, m); err != nil {
			return err
		}
	}
	return nil
}

func publish(ctx context.Context, b bus.Bus, m bus.Message) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := b.Publish(ctx, m); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

func within(f func()) error {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return errors.New("it did not return")
	}
}
