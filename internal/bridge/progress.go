package bridge

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/parley-project/parley/internal/bus"
)

// maxReported bounds the chunks that one record of progress carries, in bytes of
// JSON: the run keeps events of at most 64 KiB, and of a record that is larger
// none of the chunks that do not fit.
const maxReported = 56 << 10

// maxChunks bounds the chunks of one record, which may be empty.
const maxChunks = 1024

// The types of progress records.
const (
	progressAccepted = "accepted"
	progressState    = "progress"
	progressChunk    = "chunk"
)

// progressRecord is what goes out on [bus.SubjectProgress]. A lost one costs
// nothing: whatever decides anything is in the attempt's row.
type progressRecord struct {
	Run     string    `json:"run"`
	TaskID  string    `json:"task_id"`
	Step    string    `json:"step"`
	Attempt int       `json:"attempt"`
	Type    string    `json:"type"`
	At      time.Time `json:"at"`

	State       string  `json:"state,omitempty"`
	Text        string  `json:"text,omitempty"`
	AgentTaskID string  `json:"agent_task_id,omitempty"`
	ContextID   string  `json:"context_id,omitempty"`
	Chunks      []Chunk `json:"chunks,omitempty"`
	// DroppedBytes is how much came too fast to be passed on.
	DroppedBytes int `json:"dropped_bytes,omitempty"`
}

// reporter passes on what an agent says while it works, at most one record for each
// interval: what comes in between is gathered, up to maxReported.
type reporter struct {
	b *Bridge
	// base is what all records of one attempt have in common.
	base progressRecord

	mu sync.Mutex // protects what follows
	// state and text are the newest ones, chunks all that fit in.
	state, text   string
	chunks        []Chunk
	size, dropped int
	// told are the artifacts of which something was heard; past is the one that is
	// being passed on as it was before, if there is one.
	told map[string]bool
	past *string
	// last is when sent records were passed on; timer passes on the next.
	last   time.Time
	sent   int
	timer  *time.Timer
	closed bool
	late   sync.WaitGroup // of the timer's function
}

func newReporter(c *call) *reporter {
	return &reporter{b: c.b, base: progressRecord{Run: c.row.Run, TaskID: c.row.ID, Step: c.row.Step, Attempt: c.row.Attempt}}
}

// take gathers r and passes on what is due.
func (p *reporter) take(r Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.gather(r)
	if p.timer != nil {
		return // however late it is, it takes this along
	}
	p.flushDue()
}

// flushDue passes on what was gathered, now or as soon as it is due: two records are
// as much as what is passed on in two intervals.
func (p *reporter) flushDue() {
	state, chunks := p.pending()
	records := 0
	for _, any := range []bool{state, chunks} {
		if any {
			records++
		}
	}
	wait := p.last.Add(time.Duration(max(p.sent, records)) * reports).Sub(p.b.cfg.Now())
	if p.sent == 0 || wait <= 0 {
		p.flush()
		return
	}
	p.late.Add(1)
	p.timer = time.AfterFunc(wait, p.flushLater)
}

// pending reports of which kinds records wait.
func (p *reporter) pending() (state, chunks bool) {
	return p.state != "" || p.text != "", len(p.chunks) > 0 || p.dropped > 0
}

func (p *reporter) gather(r Report) {
	if r.State != "" {
		p.state = stateWord(r.State)
	}
	if r.Text != "" {
		p.text = r.Text
	}
	if r.Chunk == nil {
		return
	}
	k := *r.Chunk
	if !p.isNews(&k, r.Past) {
		return
	}
	n := len(k.Text) + len(k.Data) + len(k.Name) + len(k.Artifact)
	size := chunkFrame + quotedLen(k.Text) + len(k.Data) + quotedLen(k.Name) + quotedLen(k.Artifact)
	if p.size > 0 && p.size+size > maxReported {
		p.dropped += n
		return
	}
	i := len(p.chunks) - 1
	more := i >= 0 && k.Append && k.Data == nil && p.chunks[i].Data == nil && p.chunks[i].Artifact == k.Artifact
	switch {
	case more:
		p.chunks[i].Text += k.Text
		p.chunks[i].Last = k.Last
	case len(p.chunks) < maxChunks:
		p.chunks = append(p.chunks, k)
	default:
		p.dropped += n
		return
	}
	p.size += size
}

// isNews notes of which artifact there is a chunk. One of the past is no news where
// something of its artifact was heard before, but for the rest of what was begun.
func (p *reporter) isNews(k *Chunk, past bool) bool {
	begun := p.past != nil && *p.past == k.Artifact && k.Append
	news := !past || begun || !p.told[k.Artifact]
	if p.past = nil; past && news {
		p.past = &k.Artifact
	}
	if p.told == nil {
		p.told = map[string]bool{}
	}
	if len(p.told) < maxChunks {
		p.told[k.Artifact] = true
	}
	return news
}

// chunkFrame is what a chunk has in JSON besides its values, in bytes.
const chunkFrame = 80

// quotedLen is how long s is as a JSON string, in bytes: control characters and
// those that mean something in HTML are written as six.
func quotedLen(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20, c == '<', c == '>', c == '&':
			n += 5
		case c == '"', c == '\\':
			n++
		}
	}
	return n
}

// accepted tells under which name the agent works on the task.
func (p *reporter) accepted(at AgentTask) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.publish(progressRecord{Type: progressAccepted, AgentTaskID: at.ID, ContextID: at.ContextID})
	}
}

func (p *reporter) flushLater() {
	defer p.late.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if !p.closed {
		p.flushDue()
	}
}

// flush passes on what was gathered.
func (p *reporter) flush() {
	state, chunks := p.pending()
	p.last, p.sent = p.b.cfg.Now(), 0
	if state {
		p.publish(progressRecord{Type: progressState, State: p.state, Text: p.text})
		p.sent++
	}
	if chunks {
		p.publish(progressRecord{Type: progressChunk, Chunks: p.chunks, DroppedBytes: p.dropped})
		p.sent++
	}
	p.state, p.text, p.chunks, p.size, p.dropped = "", "", nil, 0, 0
}

func (p *reporter) publish(r progressRecord) {
	r.Run, r.TaskID, r.Step, r.Attempt = p.base.Run, p.base.TaskID, p.base.Step, p.base.Attempt
	r.At = p.b.now()
	v, err := json.Marshal(r)
	if err == nil {
		err = p.hand(bus.Message{Subject: bus.SubjectProgress, Key: r.Run, Value: v})
	}
	if err != nil {
		p.b.log.Debug("progress not published", "run", r.Run, "task_id", r.TaskID, "error", err)
	}
}

// hand gives a record away. Neither a full bus nor a slow store may hold the
// adapter up for long.
func (p *reporter) hand(m bus.Message) error {
	wait, take := reports/5, p.b.cfg.Bus.Publish
	if p.b.cfg.Progress != nil {
		wait, take = reportWithin, p.b.cfg.Progress
	}
	ctx, cancel := context.WithTimeout(p.b.hard, wait)
	defer cancel()
	return take(ctx, m)
}

// close passes on what is left. Nothing is taken afterwards.
func (p *reporter) close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		p.flush()
		if p.timer != nil && p.timer.Stop() {
			p.late.Done()
		}
	}
	p.mu.Unlock()
	p.late.Wait()
}
