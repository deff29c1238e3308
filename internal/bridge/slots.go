package bridge

// slotSet is what a call has of a slot.
type slotSet uint8

// The two halves of a slot: the agent's, and the bridge's.
const (
	slotOwn slotSet = 1 << iota
	slotShared
)

// occupyLocked takes both halves of a slot.
func (b *Bridge) occupyLocked(l *lane) {
	l.inFlight++
	b.inFlight++
}

// vacateLocked gives a slot back; own and shared say which halves of it.
func (b *Bridge) vacateLocked(l *lane, own, shared bool) {
	if own {
		l.inFlight--
	}
	if shared {
		b.inFlight--
	}
	l.patience = deferFirst
	if b.waiting.Len() > 0 {
		nudge(b.dispatch)
	}
}

// vacateLocked gives back what the call still has of its slot.
func (c *call) vacateLocked() {
	own := c.slots&slotOwn != 0
	if own {
		c.lane.pace.note(c.b.cfg.Now(), c.lane.queue.Len() > 0)
	}
	c.b.vacateLocked(c.lane, own, c.slots&slotShared != 0)
	c.slots = 0
}

// settlesLocked counts the call among those that settle, or no more.
func (c *call) settlesLocked(yes bool) {
	b := c.b
	switch {
	case yes && !c.settles:
		b.settling++
	case !yes && c.settles:
		b.settling--
		if b.waiting.Len() > 0 && b.settling == settlingMost-1 {
			nudge(b.dispatch)
		}
	}
	c.settles = yes
}

// unslot gives back what a task does not need while it is only followed.
func (c *call) unslot() {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if !c.follows {
		c.follows = true
		b.following++
	}
	own := c.slots&slotOwn != 0 && !c.lane.capacity
	if own {
		c.lane.pace.note(b.cfg.Now(), c.lane.queue.Len() > 0)
	}
	b.vacateLocked(c.lane, own, c.slots&slotShared != 0)
	c.slots &^= slotShared
	if own {
		c.slots &^= slotOwn
	}
}
