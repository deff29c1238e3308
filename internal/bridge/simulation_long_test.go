package bridge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/store"
)

// TestSimulationLong is TestSimulation with agents that work for long, tell,
// ask people and can be asked: connections break before and behind each
// request, requests arrive after their connection died, streams break, people
// answer when they like, while bridges die and commits are in doubt.
func TestSimulationLong(t *testing.T) {
	for seed := range *simulationSeeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			inBubble(t, func(r *rig) { simulateLong(r, uint64(seed)) })
		})
	}
}

func simulateLong(r *rig, seed uint64) {
	c := &chance{rnd: rand.New(rand.NewPCG(seed, 11))}
	calm := false
	r.ledger.fault = func(op, _ string) fault {
		if calm || op == "P16" || !c.of(8) {
			return noFault
		}
		return fault(1 + c.n(3))
	}
	d := newDesk()
	d.asks, d.works = c.of(70), time.Duration(1+c.n(8))*time.Second
	shaky := &shakyDesk{desk: d, c: c, r: r}
	r.staffed = shaky
	policies := []parley.OutcomePolicy{parley.OutcomeFail, parley.OutcomeLookup, parley.OutcomeResend}
	var ids []string
	for i := range 30 {
		ids = append(ids, r.task("long", i, func(a *store.Attempt) {
			a.Policy.OutcomeUnknown = policies[c.n(3)]
			a.Policy.Silence = 2 * time.Minute
		}))
	}
	stormy(r, c, ids)
	calm, shaky.calm = true, true
	last := r.staff("last", d, nil)
	for _, name := range []string{"b", "c"} {
		r.ledger.declareDead(name)
	}
	for range 600 {
		r.people(c, ids)
		r.wait(time.Second)
	}
	for _, id := range ids {
		a := r.settled(id, 30*time.Minute) // L1
		if a.Result.Outcome == parley.OutcomeOK && d.executed(id) == 0 {
			r.t.Errorf("%s: an answer that nobody gave", id)
		}
		limit := 1
		if a.Policy.OutcomeUnknown == parley.OutcomeResend {
			limit += a.Orphanings
		}
		if n := d.executed(id); n > limit {
			r.t.Errorf("I1: %s (policy %s, %d orphanings) was executed %d times:\n%s",
				id, a.Policy.OutcomeUnknown, a.Orphanings, n, strings.Join(r.ledger.trace[id], "\n"))
		}
	}
	last.stop()
}

// people answer some of the questions that stand.
func (r *rig) people(c *chance, ids []string) {
	for _, id := range ids {
		if a := r.ledger.row(id); a.Question != nil && a.Reply == nil && c.of(40) {
			r.ledger.reply(id, parley.Reply{Text: "2026"})
			if c.of(50) {
				r.hint(id)
			}
		}
	}
}

// shakyDesk is a desk behind a network that does anything.
type shakyDesk struct {
	*desk
	c    *chance
	r    *rig
	calm bool
}

func (s *shakyDesk) Call(ctx context.Context, task parley.Task, agent parley.Agent, p bridge.Progress) (bridge.Outcome, error) {
	switch s.c.n(6) {
	case 0:
		return notSent(), nil
	case 1:
		_, _ = s.desk.Call(ctx, task, agent, p)
		return lost(), nil
	case 2:
		after := time.Duration(s.c.n(5000)) * time.Millisecond
		s.r.wg.Go(func() {
			time.Sleep(after)
			_, _ = s.desk.Call(ctx, task, agent, p)
		})
		return lost(), nil
	}
	return s.desk.Call(ctx, task, agent, p)
}

func (s *shakyDesk) Poll(ctx context.Context, task parley.Task, agent parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	if s.c.of(20) {
		return lost(), nil
	}
	return s.desk.Poll(ctx, task, agent, at)
}

func (s *shakyDesk) Find(ctx context.Context, task parley.Task, agent parley.Agent) (bridge.Outcome, error) {
	if s.c.of(20) {
		return lost(), nil
	}
	return s.desk.Find(ctx, task, agent)
}

func (s *shakyDesk) Subscribe(ctx context.Context, task parley.Task, agent parley.Agent, at bridge.AgentTask) (bridge.Outcome, error) {
	if s.c.of(30) {
		return lost(), nil
	}
	out, err := s.desk.Subscribe(ctx, task, agent, at)
	if out.Stream != nil && s.c.of(50) {
		out.Stream = brittleStream{out.Stream, time.Duration(s.c.n(3000)) * time.Millisecond}
	}
	return out, err
}

// brittleStream breaks after a while.
type brittleStream struct {
	bridge.Stream
	after time.Duration
}

func (s brittleStream) Listen(ctx context.Context, progress bridge.Progress) bridge.Outcome {
	ctx, cancel := context.WithTimeout(ctx, s.after)
	defer cancel()
	return s.Stream.Listen(ctx, progress)
}

func (s *shakyDesk) Answer(ctx context.Context, task parley.Task, agent parley.Agent, reply bridge.TaskReply) (bridge.Outcome, error) {
	switch s.c.n(6) {
	case 0:
		return notSent(), nil
	case 1:
		_, _ = s.desk.Answer(ctx, task, agent, reply)
		return lost(), nil
	case 2:
		return lost(), nil
	}
	return s.desk.Answer(ctx, task, agent, reply)
}
