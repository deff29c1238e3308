// Package script is what the test agents do, whatever SDK they are built with:
// the text of the message says it. The same script is in ../../python/script.py
// and ../../node/script.mjs.
package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Part is a piece of content: one of Text, Data, Raw and URL.
type Part struct {
	Text       string
	Data       any
	Raw        []byte
	URL        string
	Name, Type string
}

// Out is one execution as an SDK has it. Its methods return the end of the
// execution as an error, such as after a cancel.
type Out interface {
	Begin() error
	Message(text string) error
	Status(state, text string) error
	Artifact(a Artifact) error
}

// Artifact is one artifact event.
type Artifact struct {
	Name         string
	Parts        []Part
	Append, Last bool
}

// Message is what was sent to the agent.
type Message struct {
	Text string
	Data any
	// Got describes the parts, for "got".
	Got string
	// Again: the task was there before, so the text is an answer.
	Again bool
}

// ErrCrash is what an executor returns that was asked to crash.
var ErrCrash = errors.New("asked to crash")

// Obey obeys one message.
func Obey(ctx context.Context, m Message, out Out, gates *Gates) error {
	if m.Again {
		return answer(m, out)
	}
	if object, ok := m.Data.(map[string]any); ok && m.Text == "" {
		m.Text, _ = object["do"].(string)
	}
	verb, rest, _ := strings.Cut(m.Text, " ")
	switch verb {
	case "message":
		return out.Message(rest)
	case "crash":
		return ErrCrash
	}
	if err := out.Begin(); err != nil {
		return err
	}
	x := execution{Out: out, gates: gates, verb: verb, rest: rest, message: m}
	return x.run(ctx)
}

func answer(m Message, out Out) error {
	parts := []Part{{Text: "answer: " + m.Text}}
	if m.Data != nil {
		parts = append(parts, Part{Data: m.Data})
	}
	return errors.Join(
		out.Status("working", "got it"),
		out.Artifact(Artifact{Name: "out", Parts: parts, Last: true}),
		out.Status("completed", ""),
	)
}

type execution struct {
	Out
	gates      *Gates
	verb, rest string
	message    Message
}

func (x execution) run(ctx context.Context) error {
	switch x.verb {
	case "late-crash":
		if err := x.Status("working", "about to crash"); err != nil {
			return err
		}
		return ErrCrash
	case "ask":
		return x.Status("input-required", or(x.rest, "how many?"))
	case "reject":
		return x.Status("rejected", or(x.rest, "asked to reject"))
	case "auth":
		return x.auth(ctx)
	}
	if err := x.Status("working", map[string]string{"hold": "waiting", "stuck": "for ever"}[x.verb]); err != nil {
		return err
	}
	switch x.verb {
	case "echo":
		return x.done(Part{Text: x.rest})
	case "fail":
		return x.Status("failed", or(x.rest, "asked to fail"))
	case "data":
		return x.done(Part{Data: x.message.Data})
	case "got":
		return x.done(Part{Text: x.message.Got})
	case "file":
		return x.file()
	case "slow":
		return x.slow(ctx)
	case "chunks":
		return x.chunks(ctx)
	case "drip":
		return x.drip(ctx)
	case "big":
		n, _ := strconv.Atoi(x.rest)
		return x.done(Part{Text: strings.Repeat("x", n)})
	case "hold", "refuse-cancel":
		if err := x.gates.Wait(ctx, x.rest); err != nil {
			return err
		}
		return x.done(Part{Text: "held " + x.rest})
	case "stuck":
		<-ctx.Done()
		return ctx.Err()
	}
	return x.Status("failed", "no such command: "+x.verb)
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// Described is what "got" says of a file: its bytes, or else its URL.
func Described(p Part) string {
	if p.URL != "" {
		return fmt.Sprintf("url %s %s %s", p.URL, p.Name, p.Type)
	}
	return fmt.Sprintf("raw %d %s %s", len(p.Raw), p.Name, p.Type)
}

// done ends the task with an artifact of parts.
func (x execution) done(parts ...Part) error {
	if err := x.Artifact(Artifact{Name: "out", Parts: parts, Last: true}); err != nil {
		return err
	}
	return x.Status("completed", "")
}

func (x execution) file() error {
	part := Part{Raw: []byte("hello, file\n"), Name: "hello.txt", Type: "text/plain"}
	if x.rest == "url" {
		part = Part{URL: "https://files.example/a.txt", Name: "a.txt", Type: "text/plain"}
	}
	return x.done(Part{Text: "one file"}, part)
}

func (x execution) auth(ctx context.Context) error {
	if err := x.Status("auth-required", "sign in elsewhere"); err != nil {
		return err
	}
	if err := x.gates.Wait(ctx, x.rest); err != nil {
		return err
	}
	if err := x.Status("working", ""); err != nil {
		return err
	}
	return x.done(Part{Text: "signed in"})
}

func (x execution) slow(ctx context.Context) error {
	ms, _ := strconv.Atoi(x.rest)
	for quarter := 1; quarter <= 4; quarter++ {
		if err := sleep(ctx, time.Duration(ms)*time.Millisecond/4); err != nil {
			return err
		}
		if quarter == 4 {
			break
		}
		if err := x.Status("working", fmt.Sprintf("%d/4", quarter)); err != nil {
			return err
		}
	}
	return x.done(Part{Text: "slow " + x.rest})
}

func (x execution) chunks(ctx context.Context) error {
	count, _ := strconv.Atoi(x.rest)
	for i := range count {
		a := Artifact{Name: "out", Parts: []Part{{Text: fmt.Sprintf("%d ", i)}}, Append: i > 0, Last: i == count-1}
		if err := x.Artifact(a); err != nil {
			return err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return x.Status("completed", "")
}

func (x execution) drip(ctx context.Context) error {
	number, key, _ := strings.Cut(x.rest, " ")
	count, _ := strconv.Atoi(number)
	for i := range count {
		if err := x.Artifact(Artifact{Name: "out", Parts: []Part{{Text: fmt.Sprintf("%d ", i)}}, Append: i > 0}); err != nil {
			return err
		}
	}
	if err := x.gates.Wait(ctx, key); err != nil {
		return err
	}
	if err := x.Artifact(Artifact{Name: "out", Parts: []Part{{Text: "end"}}, Append: true, Last: true}); err != nil {
		return err
	}
	return x.Status("completed", "")
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Gates is what executions wait at until somebody opens it by its key.
type Gates struct {
	mu    sync.Mutex
	gates map[string]chan struct{}
}

// Open lets everybody through who waits for key, or will.
func (g *Gates) Open(key string) {
	gate := g.gate(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-gate:
	default:
		close(gate)
	}
}

// Wait waits until the gate is open, or ctx ends.
func (g *Gates) Wait(ctx context.Context, key string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-g.gate(key):
		return nil
	}
}

func (g *Gates) gate(key string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gates == nil {
		g.gates = make(map[string]chan struct{})
	}
	if g.gates[key] == nil {
		g.gates[key] = make(chan struct{})
	}
	return g.gates[key]
}

// Log has every execution, one JSON object a line, in a file that outlives us.
type Log struct {
	Path string
	mu   sync.Mutex
}

// Entry is a line of a Log.
type Entry struct {
	At      int64  `json:"at"`
	PID     int    `json:"pid"`
	What    string `json:"what"`
	Message string `json:"message"`
	Task    string `json:"task"`
	Context string `json:"context"`
	Text    string `json:"text"`
}

// Write adds an entry; its time and process are filled in.
func (l *Log) Write(e Entry) {
	e.At, e.PID = time.Now().UnixMilli(), os.Getpid()
	e.Text = e.Text[:min(len(e.Text), 200)]
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.OpenFile(l.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}
