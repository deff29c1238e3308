package bridge

import (
	"sync"
	"time"

	"github.com/parley-project/parley/internal/store"
)

// permission is the send guard of one call (protocol.md §4.3), asked directly before
// its first byte. That may be long after the call was begun: a card, an access token
// or a connection took its time, and somebody may have cancelled meanwhile.
type permission struct {
	c     *call
	claim store.Claim
	task  string

	mu sync.Mutex // protects what follows; a batch asks for all of its calls
	// began is the start of the newest write, or look, that showed the claim to be ours.
	began   time.Time
	refused bool
}

// permit gives the permission of the call that is about to be sent.
func (c *call) permit() *permission {
	return &permission{c: c, claim: c.row.Claim, task: c.row.ID, began: c.began}
}

// given reports whether bytes may leave now. Once refused it stays so.
func (p *permission) given() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = p.refused || !p.c.b.leads(p.claim.Inc) || !p.fresh() || !p.c.mayLeave()
	return !p.refused
}

func (p *permission) wasRefused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// fresh reports whether the claim was known to be ours a moment ago: one that was
// written too long ago is looked at anew. In doubt it is not.
func (p *permission) fresh() bool {
	b := p.c.b
	now := b.cfg.Now()
	if age(p.began, now) < claimWindow {
		return true
	}
	rows, err := b.cfg.Ledger.Claim(b.hard, p.claim, []store.ClaimRequest{{TaskID: p.task, Token: p.claim.Token}}, b.now())
	if err != nil || len(rows) == 0 {
		return false
	}
	if rows[0].CancelRequested {
		p.c.requestCancel()
	}
	p.began = now
	return true
}

// mayLeave reports whether somebody still wants the call to be sent, and notes that
// bytes of it may leave from now on.
func (c *call) mayLeave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	may := c.phase == phaseSending && c.unwantedLocked() == nil
	c.leaving = c.leaving || may
	return may
}
