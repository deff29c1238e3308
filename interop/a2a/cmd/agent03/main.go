// Command agent03 is a test agent built with github.com/a2aproject/a2a-go:
// JSON-RPC and gRPC of A2A 0.3.
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2agrpc"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"
	"github.com/a2aproject/a2a-go/a2asrv/push"
	"google.golang.org/grpc"

	"github.com/parley-project/parley/interop/a2a/internal/script"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "agent03:", err)
		os.Exit(1)
	}
}

func run() error {
	o, err := script.Start()
	if err != nil {
		return err
	}
	agent := &executor{log: o.Log, gates: o.Gates, refuses: make(map[a2a.TaskID]bool)}
	handler := a2asrv.NewHandler(agent,
		a2asrv.WithPushNotifications(push.NewInMemoryStore(), push.NewHTTPPushSender(nil)))
	mux := http.NewServeMux()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(makeCard(o)))
	server := grpc.NewServer()
	a2agrpc.NewHandler(handler).RegisterWith(server)
	go func() { _ = server.Serve(o.GRPC) }()
	return o.Serve(mux, map[string]string{"jsonrpc03": o.Own + "/rpc", "grpc03": o.GRPC.Addr().String()})
}

func makeCard(o script.Options) *a2a.AgentCard {
	modes := []string{"text/plain", "application/json"}
	return &a2a.AgentCard{
		Name: "go 0.3", Description: "a scripted agent", Version: "1", ProtocolVersion: "0.3.0",
		URL: o.Base() + "/rpc", PreferredTransport: a2a.TransportProtocolJSONRPC,
		AdditionalInterfaces: []a2a.AgentInterface{{URL: o.GRPC.Addr().String(), Transport: a2a.TransportProtocolGRPC}},
		Capabilities:         a2a.AgentCapabilities{Streaming: true, PushNotifications: true},
		DefaultInputModes:    modes, DefaultOutputModes: modes,
		Skills: []a2a.AgentSkill{{ID: "script", Name: "script", Description: "obeys the text", Tags: []string{"test"}}},
	}
}

type executor struct {
	log   *script.Log
	gates *script.Gates

	mu      sync.Mutex
	refuses map[a2a.TaskID]bool
}

// Execute implements a2asrv.AgentExecutor.
func (e *executor) Execute(ctx context.Context, x *a2asrv.RequestContext, queue eventqueue.Queue) error {
	m := read(x.Message.Parts)
	m.Again = x.StoredTask != nil
	e.log.Write(script.Entry{What: "execute", Message: x.Message.ID, Task: string(x.TaskID), Context: x.ContextID, Text: m.Text})
	if strings.HasPrefix(m.Text, "refuse-cancel") {
		e.mu.Lock()
		e.refuses[x.TaskID] = true
		e.mu.Unlock()
	}
	return script.Obey(ctx, m, &out{ctx: ctx, x: x, queue: queue}, e.gates)
}

func read(parts a2a.ContentParts) (m script.Message) {
	var texts, got []string
	for _, p := range parts {
		switch p := p.(type) {
		case a2a.TextPart:
			texts, got = append(texts, p.Text), append(got, "text")
		case a2a.DataPart:
			m.Data, got = p.Data, append(got, "data")
		case a2a.FilePart:
			switch f := p.File.(type) {
			case a2a.FileBytes:
				raw, _ := base64.StdEncoding.DecodeString(f.Bytes)
				got = append(got, script.Described(script.Part{Raw: raw, Name: f.Name, Type: f.MimeType}))
			case a2a.FileURI:
				got = append(got, script.Described(script.Part{URL: f.URI, Name: f.Name, Type: f.MimeType}))
			}
		}
	}
	m.Text, m.Got = strings.Join(texts, "\n"), strings.Join(got, ", ")
	return m
}

// Cancel implements a2asrv.AgentExecutor.
func (e *executor) Cancel(ctx context.Context, x *a2asrv.RequestContext, queue eventqueue.Queue) error {
	e.log.Write(script.Entry{What: "cancel", Task: string(x.TaskID), Context: x.ContextID})
	e.mu.Lock()
	refuses := e.refuses[x.TaskID]
	e.mu.Unlock()
	if refuses {
		return a2a.NewError(a2a.ErrTaskNotCancelable, "asked to refuse")
	}
	event := a2a.NewStatusUpdateEvent(x, a2a.TaskStateCanceled, nil)
	event.Final = true
	return queue.Write(ctx, event)
}

// out is one execution.
type out struct {
	ctx   context.Context
	x     *a2asrv.RequestContext
	queue eventqueue.Queue
}

// Begin implements script.Out.
func (o *out) Begin() error { return o.queue.Write(o.ctx, a2a.NewSubmittedTask(o.x, o.x.Message)) }

// Message implements script.Out.
func (o *out) Message(text string) error {
	m := a2a.NewMessage(a2a.MessageRoleAgent, a2a.TextPart{Text: text})
	m.ContextID = o.x.ContextID
	return o.queue.Write(o.ctx, m)
}

// Status implements script.Out.
func (o *out) Status(state, text string) error {
	var m *a2a.Message
	if text != "" {
		m = a2a.NewMessageForTask(a2a.MessageRoleAgent, o.x, a2a.TextPart{Text: text})
	}
	event := a2a.NewStatusUpdateEvent(o.x, a2a.TaskState(state), m)
	event.Final = event.Status.State.Terminal() || event.Status.State == a2a.TaskStateInputRequired
	return o.queue.Write(o.ctx, event)
}

// Artifact implements script.Out.
func (o *out) Artifact(a script.Artifact) error {
	event := a2a.NewArtifactEvent(o.x)
	for _, p := range a.Parts {
		event.Artifact.Parts = append(event.Artifact.Parts, part(p))
	}
	event.Artifact.ID, event.Artifact.Name = a2a.ArtifactID(a.Name), a.Name
	event.Append, event.LastChunk = a.Append, a.Last
	return o.queue.Write(o.ctx, event)
}

func part(p script.Part) a2a.Part {
	meta := a2a.FileMeta{Name: p.Name, MimeType: p.Type}
	switch {
	case p.Data != nil:
		data, _ := p.Data.(map[string]any)
		return a2a.DataPart{Data: data}
	case p.Raw != nil:
		return a2a.FilePart{File: a2a.FileBytes{FileMeta: meta, Bytes: base64.StdEncoding.EncodeToString(p.Raw)}}
	case p.URL != "":
		return a2a.FilePart{File: a2a.FileURI{FileMeta: meta, URI: p.URL}}
	}
	return a2a.TextPart{Text: p.Text}
}
