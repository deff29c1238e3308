package server

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley/internal/store"
)

const (
	// peersEvery is how often a process says by what it finds the others of its database,
	// and looks what they say.
	peersEvery = 5 * time.Second
	// peersWithin bounds each question, goodbyeWithin the last word of a process that ends.
	peersWithin, goodbyeWithin = 3 * time.Second, time.Second

	// peersCheck is its name in /readyz.
	peersCheck = "peers"
)

// peers compares the bus of this process with those of the others of its database:
// whoever uses another one is not heard, and tasks stay open without a word.
type peers struct {
	// apart says that others use another bus.
	apart atomic.Bool

	seen []store.Process // others, at the last look
	told []string        // the other buses that the log knows of
}

// watchPeers compares until ctx ends.
func (s *Server) watchPeers(ctx context.Context) error {
	me := &store.Process{ID: newToken(), Name: s.process}
	tick := time.NewTicker(peersEvery)
	defer tick.Stop()
	for {
		s.lookAtPeers(ctx, me)
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeWithin)
		defer cancel()
		if err := s.db.ForgetProcess(last, me.ID); err != nil {
			s.log.Debug("the other processes do not hear that this one ends", "error", err)
		}
		return nil
	}
}

// lookAtPeers compares once. What cannot be asked now stays as it was, also by which bus
// this process finds the others: whether database and bus answer is said elsewhere.
func (s *Server) lookAtPeers(ctx context.Context, me *store.Process) {
	if where, err := s.whereabouts(ctx); err == nil && where != "" {
		me.Bus = where
	}
	if me.Bus == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, peersWithin)
	defer cancel()
	err := s.db.NoteProcess(ctx, *me, s.db.Now())
	var all []store.Process
	if err == nil {
		all, err = s.db.Processes(ctx, s.db.Now())
	}
	if err != nil {
		s.log.Debug("the buses of the other processes are not known anew", "error", err)
		return
	}
	apart := s.peers.compare(*me, all)
	s.peers.apart.Store(len(apart) > 0)
	var buses, names []string
	for _, p := range apart {
		buses, names = append(buses, p.Bus), append(names, p.Name)
	}
	slices.Sort(buses)
	buses = slices.Compact(buses)
	switch {
	case slices.ContainsFunc(buses, func(b string) bool { return !slices.Contains(s.peers.told, b) }):
		s.log.Warn("processes of this database use another bus than this one: neither hears the other, and tasks can stay open; "+
			"give all of them the same brokers and topics (bus.kafka), or stop those that are not to be there",
			"event", "peers", "bus", me.Bus, "processes", names, "others", buses)
	case len(buses) == 0 && len(s.peers.told) > 0:
		s.log.Info("all processes of the database use one bus again", "event", "peers")
	}
	s.peers.told = buses
}

// compare gives those of all that use another bus than this process, and did so at the
// last look: while addresses come to lead to another cluster, processes see that at
// different times.
func (p *peers) compare(me store.Process, all []store.Process) (apart []store.Process) {
	var seen []store.Process
	for _, other := range all {
		if other.Bus == me.Bus {
			continue
		}
		seen = append(seen, other)
		if slices.Contains(p.seen, other) {
			apart = append(apart, other)
		}
	}
	p.seen = seen
	return apart
}

// whereabouts says by what this process finds the others; "" if that is not known.
func (s *Server) whereabouts(ctx context.Context) (string, error) {
	if s.kafka == nil {
		return "notifications of the database", nil
	}
	ctx, cancel := context.WithTimeout(ctx, peersWithin)
	defer cancel()
	return s.kafka.Whereabouts(ctx)
}
