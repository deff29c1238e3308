package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley/internal/bus"
)

// A payload is one frame: a line of four words (version, process, number of the
// letter, "part/parts"), then a piece of the letter. A letter is JSON.
const (
	frameVersion = "p1"
	// maxPayload bounds one payload, in bytes: PostgreSQL takes 7,999.
	maxPayload = 7_900
	// maxLetter bounds one letter, in bytes: the largest record of progress, and
	// what JSON makes of it.
	maxLetter = 256 << 10
	// maxSenders bounds the processes whose unfinished letters are kept, unfinished
	// how long one waits for its next piece: its sender gives it up before.
	maxSenders = 1_024
	unfinished = 2 * notifyWithin
)

// letter is what one process tells the others at a time.
type letter struct {
	Messages []message `json:"m,omitempty"`
	// Groups are the memberships of the process, by subject; nil if the letter
	// does not tell them.
	Groups map[string][]string `json:"g,omitempty"`
	// Asks: everybody should tell theirs.
	Asks bool `json:"a,omitempty"`
}

// message is a [bus.Message]. A value that is no text stands in Bytes.
type message struct {
	Subject string            `json:"s"`
	Key     string            `json:"k,omitempty"`
	Text    string            `json:"t,omitempty"`
	Bytes   []byte            `json:"b,omitempty"`
	Header  map[string]string `json:"h,omitempty"`
	Headers []bus.Header      `json:"hs,omitempty"`
}

func wrap(m bus.Message) message {
	w := message{Subject: m.Subject, Key: m.Key, Header: m.Header, Headers: m.Headers}
	if utf8.Valid(m.Value) {
		w.Text = string(m.Value)
	} else {
		w.Bytes = m.Value
	}
	return w
}

func (w message) unwrap() bus.Message {
	m := bus.Message{Subject: w.Subject, Key: w.Key, Header: w.Header, Headers: w.Headers, Value: w.Bytes}
	if w.Text != "" {
		m.Value = []byte(w.Text)
	}
	return m
}

// frames cuts a letter into payloads.
func frames(process string, number int64, body string) []string {
	// What the first line may need: three numbers of at most 20 digits.
	room := maxPayload - len(frameVersion) - len(process) - 64
	var pieces []string
	for len(body) > room {
		cut := room
		for cut > 0 && !utf8.RuneStart(body[cut]) {
			cut--
		}
		pieces = append(pieces, body[:cut])
		body = body[cut:]
	}
	pieces = append(pieces, body)
	for i, piece := range pieces {
		pieces[i] = fmt.Sprintf("%s %s %d %d/%d\n%s", frameVersion, process, number, i+1, len(pieces), piece)
	}
	return pieces
}

// part is a letter of which the last piece is still to come.
type part struct {
	number      int64
	next, parts int
	body        strings.Builder
	// heard is when the last piece was.
	heard time.Time
}

// frame is one payload taken apart.
type frame struct {
	process     string
	number      int64
	part, parts int
	piece       string
}

func parseFrame(payload string) (f frame, ok bool) {
	head, piece, found := strings.Cut(payload, "\n")
	words := strings.Fields(head)
	if !found || len(words) != 4 || words[0] != frameVersion || len(words[1]) > 255 {
		return f, false
	}
	number, err := strconv.ParseInt(words[2], 10, 64)
	first, second, cut := strings.Cut(words[3], "/")
	at, err1 := strconv.Atoi(first)
	of, err2 := strconv.Atoi(second)
	if err != nil || !cut || err1 != nil || err2 != nil || at < 1 || at > of || of > maxLetter {
		return f, false
	}
	return frame{process: words[1], number: number, part: at, parts: of, piece: piece}, true
}

// whole gives the letter that ends with f; ok is false while pieces are
// missing, and for pieces whose first ones were not heard.
func (b *Bus) whole(f frame) (body string, ok bool) {
	if f.parts == 1 {
		return f.piece, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[f.process]
	if f.part == 1 {
		if p == nil && len(b.parts) >= maxSenders {
			return "", false
		}
		p = &part{number: f.number, next: 1, parts: f.parts}
		b.parts[f.process] = p
	}
	if p == nil || p.number != f.number || p.next != f.part || p.parts != f.parts || p.body.Len()+len(f.piece) > maxLetter {
		delete(b.parts, f.process)
		return "", false
	}
	p.body.WriteString(f.piece)
	p.heard = b.cfg.Now()
	p.next++
	if f.part < f.parts {
		return "", false
	}
	delete(b.parts, f.process)
	return p.body.String(), true
}

// take is called with every payload, one after another.
func (b *Bus) take(ctx context.Context, payload string) {
	f, ok := parseFrame(payload)
	if !ok {
		b.cfg.Logger.Debug("a notification that is none of ours was dropped", "bytes", len(payload))
		return
	}
	if f.process == b.cfg.Process {
		b.mu.Lock()
		b.heard = b.cfg.Now()
		if b.company.IsZero() {
			b.company = b.heard
		}
		maps.DeleteFunc(b.parts, func(_ string, p *part) bool { return b.heard.Sub(p.heard) >= unfinished }) // its sender has died
		b.mu.Unlock()
		b.readyOnce.Do(func() { close(b.ready) })
		return
	}
	b.mu.Lock()
	b.company = b.cfg.Now()
	b.mu.Unlock()
	body, ok := b.whole(f)
	if !ok {
		return
	}
	var l letter
	if err := json.Unmarshal([]byte(body), &l); err != nil {
		b.cfg.Logger.Warn("a letter of another process cannot be read; is its version another one?", "process", f.process, "error", err)
		return
	}
	if l.Groups != nil {
		b.hear(f.process, memberships(l.Groups))
	}
	if l.Asks {
		select {
		case b.announce <- struct{}{}:
		default:
		}
	}
	// What waits for one slow subscriber would keep this process from hearing
	// the others: it takes a place that is free, or is dropped.
	atOnce, cancel := context.WithCancel(ctx)
	cancel()
	for _, m := range l.Messages {
		b.received.Add(1)
		if err := b.deliver(atOnce, m.unwrap()); err != nil && ctx.Err() == nil {
			b.dropped.Add(1)
			b.cfg.Logger.Debug("hint not delivered", "subject", m.Subject, "key", m.Key, "error", err)
		}
	}
}

func memberships(groups map[string][]string) []membership {
	var all []membership
	for subject, names := range groups {
		for _, name := range names {
			all = append(all, membership{subject, name})
		}
	}
	return all
}

// servePresence tells the own memberships whenever they change and regularly,
// and asks for those of the others until the process hears itself: what was
// told before is not known here.
func (b *Bus) servePresence(ctx context.Context) {
	tick := time.NewTicker(presenceEvery)
	defer tick.Stop()
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for {
		b.tell(ctx, !b.hears())
		for again := false; !again; {
			select {
			case <-ctx.Done():
				b.farewell(ctx)
				return
			case <-tick.C:
				again = true
			case <-b.announce:
				again = true
			case <-ask.C:
				if again = !b.hears(); !again {
					ask.Stop()
				}
			}
		}
	}
}

// hears reports whether the process has heard itself.
func (b *Bus) hears() bool {
	select {
	case <-b.ready:
		return true
	default:
		return false
	}
}
