package kafka

import (
	"context"
	"maps"
	"time"
)

// fenceLook is how long after a member was fenced it is looked who has its instance id,
// and how long between two looks while the brokers do not say.
const fenceLook = time.Second

// fence stops the member: the brokers know its instance id by another member id. That
// is for good if another process has it.
func (g *group) fence(err error) {
	err = explain(err, "group "+g.name)
	g.note(err)
	if g.fenced.Swap(true) {
		return
	}
	g.bus.cfg.Logger.Warn("membership lost; it is looked who has it", "group", g.name, "error", err)
	g.cancel() // the poller closes the client
	g.bus.mu.Lock()
	defer g.bus.mu.Unlock()
	if !g.bus.ending {
		g.bus.asking.Go(func() { g.bus.unfence(g, err) })
	}
}

// unfence joins a group anew whose member was fenced though no other process has its
// instance id: a coordinator that could not write a membership down, for want of
// replicas, takes it back, and from then on refuses the member id that it gave out. All
// members of a group can be fenced so at once. The library would stay with that id, so
// there is a new client.
func (b *Bus) unfence(g *group, why error) {
	for {
		select {
		case <-b.ended:
			return
		case <-time.After(fenceLook):
		}
		other, err := b.instanceHolder(g.name)
		if err != nil {
			continue
		}
		if other != "" {
			b.cfg.Logger.Error("membership lost to another process", "group", g.name, "at", other, "error", why)
			return
		}
		select {
		case b.setup <- struct{}{}:
		case <-b.ended:
			return
		}
		err = b.rejoin(g)
		b.unlock()
		if err == nil {
			b.cfg.Logger.Info("membership taken up again", "group", g.name)
			return
		}
	}
}

// instanceHolder says where the process is that is a member of a group under this
// one's instance id, or gives "" if there is none but this one.
func (b *Bus) instanceHolder(name string) (host string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
	defer cancel()
	described, err := b.admin.DescribeGroups(ctx, name)
	if err == nil {
		err = described[name].Err
	}
	if err != nil {
		return "", err
	}
	for _, m := range described[name].Members {
		if m.InstanceID != nil && *m.InstanceID == b.cfg.InstanceID && m.ClientID != b.self {
			return m.ClientHost, nil
		}
	}
	return "", nil
}

// rejoin puts a new member in the place of one that was fenced, with its feeds. What
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
