package kafka

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// fenceLook is how long after a member was fenced it is looked who has its instance id,
// and how long between two looks until it is known.
const fenceLook = time.Second

// fence stops the member: the brokers know its instance id by another member id.
func (g *group) fence(err error) {
	err = explain(err, "group "+g.name)
	g.note(err)
	if g.fenced.Swap(true) {
		return
	}
	g.bus.cfg.Logger.Warn("membership lost; it is looked whether another process has it", "group", g.name, "error", err)
	g.cancel() // the poller closes the client
	g.bus.mu.Lock()
	defer g.bus.mu.Unlock()
	if !g.bus.ending {
		g.bus.asking.Go(func() { g.bus.unfence(g, err) })
	}
}

// unfence joins a group anew once nobody is a member of it under this process's instance
// id. Not every member that was fenced has a successor: a coordinator that could not write
// a membership down, for want of replicas, takes it back, and from then on refuses the
// member id that it gave out, in all processes of a group at once; and a successor ends.
//
// The brokers do not say whose a membership is: client id and host stay those of who had
// the instance id first. But one that nobody uses ends with the session, be it this
// process's, or one of an earlier life of it; one that stays is another process's. To join
// while it lives would fence that in turn. The library would stay with its member id, so
// there is a new client.
func (b *Bus) unfence(g *group, why error) {
	wait := fenceLook
	for listed := time.Duration(0); ; {
		select {
		case <-b.ended:
			return
		case <-time.After(wait):
		}
		taken, err := b.instanceTaken(g.name)
		switch {
		case err != nil: // the brokers do not say
		case !taken:
			if b.replace(g) {
				return
			}
		case listed <= b.cfg.SessionTimeout:
			listed += fenceLook
		case wait == fenceLook:
			b.cfg.Logger.Error("another process has the membership; it is taken up again when that one has ended", "group", g.name, "error", why)
			wait = b.cfg.SessionTimeout
		}
	}
}

// instanceTaken reports whether somebody is a member of a group under this process's
// instance id.
func (b *Bus) instanceTaken(name string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
	defer cancel()
	g, err := b.describe(ctx, name)
	return slices.ContainsFunc(g.Members, func(m kadm.DescribedGroupMember) bool {
		return m.InstanceID != nil && *m.InstanceID == b.cfg.InstanceID
	}), err
}

// replace takes setup to let a group rejoin, and reports whether there is nothing left to
// do.
func (b *Bus) replace(g *group) bool {
	select {
	case b.setup <- struct{}{}:
	case <-b.ended:
		return true
	}
	defer b.unlock()
	if err := b.rejoin(g); err != nil {
		return false
	}
	b.cfg.Logger.Info("membership taken up again", "group", g.name)
	return true
}

// rejoin puts a new member in the place of one that was fenced, or hangs, with its feeds. What
// those have in hand ends, and counts for nothing. The caller holds setup.
func (b *Bus) rejoin(old *group) error {
	if b.closed || b.list()[old.name] != old {
		return nil // nobody subscribes any more
	}
	old.cancel()
	old.shut()
	old.tasks.Wait()
	old.mu.Lock()
	feeds, anchors, parts := maps.Clone(old.feeds), maps.Clone(old.anchors), make(map[string][]int32)
	for at := range old.parts {
		parts[at.topic] = append(parts[at.topic], at.partition)
	}
	old.mu.Unlock()
	old.end(old.drop(parts))
	g, err := b.newGroup(old.name)
	if err != nil {
		return err
	}
	b.set(old.name, g)
	for _, f := range feeds {
		if b.unplaced[f.topic] {
			g.keep(f)
			continue
		}
		begin := make(map[int32]int64)
		for at, offset := range anchors {
			if at.topic == f.topic {
				begin[at.partition] = offset
			}
		}
		g.add(f, begin)
	}
	return nil
}
