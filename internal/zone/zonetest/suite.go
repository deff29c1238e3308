// Package zonetest is the contract suite of the zone connection: one table of
// requests and the responses that they must have, which every Transport carries in
// the same way. It serves the real Execution Zone, with a [Work] that does what the
// text of a task says.
package zonetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/execution"
)

// Token is the bot token of the requests of the suite. It may be in no response, in
// no line of any log, and in nothing that a Work gets.
const Token = "xoxb-1111-2222-ThisIsTheTokenOfTheSuite"

// Secret is Token as a task has it.
func Secret() parley.Secret { return parley.NewSecret([]byte(Token)) }

// Card is the agent card of the zones of the suite.
const Card = `{"name":"zone of the suite","skills":[]}`

// Open returns the Transport under test, which carries requests to POST /invocations
// of h. What it opens it closes with t.
type Open func(t *testing.T, h http.Handler) zone.Transport

// Rig is one Execution Zone of the suite.
type Rig struct {
	Zone *execution.Zone
	Work *Work
	Log  *Log
}

// NewRig returns a Rig. Its ids are 00000000-0000-4000-8000-000000000001 and so on.
func NewRig(set func(*execution.Config)) *Rig {
	r := &Rig{Work: &Work{}, Log: &Log{}}
	cfg := execution.Config{
		Work: r.Work, Profile: zone.ProfileRelaxed, SyncLimit: time.Minute,
		NewID: IDs(), Now: time.Now, Logger: slog.New(slog.NewJSONHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if set != nil {
		set(&cfg)
	}
	r.Zone = execution.New(cfg)
	return r
}

// IDs returns a function that makes UUIDs, the same ones each time.
func IDs() func() string {
	var n atomic.Int64
	return func() string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n.Add(1)) }
}

// Log keeps what is logged.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String gives what was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Run holds a Transport to the contract: every case of the table, exact to the byte.
func Run(t *testing.T, open Open) {
	t.Helper()
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			c.run(t, func(t *testing.T, z *execution.Zone) zone.Transport { return open(t, z.Handler()) })
		})
	}
}

// RunA2A is Run for a Transport that carries requests to the A2A routes of h.
func RunA2A(t *testing.T, open Open) {
	t.Helper()
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			c.run(t, func(t *testing.T, z *execution.Zone) zone.Transport { return open(t, z.A2AHandler()) })
		})
	}
}

func (c Case) run(t *testing.T, open func(*testing.T, *execution.Zone) zone.Transport) {
	rig := NewRig(func(cfg *execution.Config) {
		if c.Profile != "" {
			cfg.Profile = c.Profile
		}
		if c.SyncLimit > 0 {
			cfg.SyncLimit = c.SyncLimit
		}
		cfg.MaxBody, cfg.Card = 1<<20, json.RawMessage(Card)
	})
	tr := open(t, rig.Zone)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, s := range c.Steps {
		switch s.Do {
		case DoFinish:
			rig.Work.Finish()
		case DoDrain:
			rig.Zone.Drain()
		}
		got, info, err := tr.Call(ctx, []byte(s.Send), zone.Meta{CorrelationID: "corr-of-the-header"})
		if err != nil {
			t.Fatalf("step %d: %v", i+1, err)
		}
		if info.Attempts != 1 {
			t.Errorf("step %d: %d attempts", i+1, info.Attempts)
		}
		if s.Want != "" && !matches(s.Want, string(got)) {
			t.Errorf("step %d: %.300q\n got %.2000s\nwant %.2000s", i+1, s.Send, got, s.Want)
		}
		if s.Starts > 0 && rig.Work.Starts() != s.Starts {
			t.Errorf("step %d: %d tasks were begun, not %d", i+1, rig.Work.Starts(), s.Starts)
		}
		for name, text := range map[string]string{"response": string(got), "log": rig.Log.String()} {
			if strings.Contains(text, Token) {
				t.Errorf("step %d: the token is in the %s", i+1, name)
			}
		}
		if strings.Contains(string(got), "secret-of-the-inside") {
			t.Errorf("step %d: the cause is in the response: %s", i+1, got)
		}
	}
}

// matches compares a response with the one that must come, in which $any stands for
// some text without quotes.
func matches(want, got string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), `\$any`, `[^"]+`)
	return regexp.MustCompile(`\A` + pattern + `\z`).MatchString(got)
}
