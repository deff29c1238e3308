// Command agent10 is a test agent built with github.com/a2aproject/a2a-go/v2:
// JSON-RPC, REST and gRPC of A2A 1.0, and 0.3 beside it when asked.
package main

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	a2agrpc0 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	a2agrpc1 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/push"
	"github.com/a2aproject/a2a-go/v2/a2asrv/taskstore"
	"google.golang.org/grpc"

	"github.com/parley-project/parley/interop/a2a/internal/script"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "agent10:", err)
		os.Exit(1)
	}
}

func run() error {
	o, err := script.Start()
	if err != nil {
		return err
	}
	agent := &executor{log: o.Log, gates: o.Gates, refuses: make(map[a2a.TaskID]bool)}
	tasks := &taskstore.InMemoryStoreConfig{Authenticator: func(context.Context) (string, error) { return "anybody", nil }}
	if o.NoList {
		tasks.Authenticator = nil
	}
	handler := a2asrv.NewHandler(agent,
		a2asrv.WithPushNotifications(push.NewInMemoryStore(), push.NewHTTPPushSender(&push.HTTPSenderConfig{AllowPrivateNetworks: true})),
		a2asrv.WithTaskStore(taskstore.NewInMemory(tasks)),
	)
	card := makeCard(o)
	mux := http.NewServeMux()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle("/rest/", http.StripPrefix("/rest", a2asrv.NewRESTHandler(handler)))
	server := grpc.NewServer()
	a2agrpc1.NewHandler(handler).RegisterWith(server)
	where := map[string]string{"jsonrpc": o.Own + "/rpc", "rest": o.Own + "/rest", "grpc": o.GRPC.Addr().String()}
	if o.Dual {
		mux.Handle("/rpc03", a2av0.NewJSONRPCHandler(handler))
		mux.Handle("/rest03/", http.StripPrefix("/rest03", a2av0.NewRESTHandler(handler)))
		a2agrpc0.NewHandler(handler).RegisterWith(server)
		mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewAgentCardHandler(a2av0.NewStaticAgentCardProducer(card)))
		where["jsonrpc03"] = o.Own + "/rpc03"
	} else {
		mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card))
	}
	go func() { _ = server.Serve(o.GRPC) }()
	return o.Serve(mux, where)
}

func makeCard(o script.Options) *a2a.AgentCard {
	interfaces := []*a2a.AgentInterface{
		a2a.NewAgentInterface(o.Base()+"/rpc", a2a.TransportProtocolJSONRPC),
		a2a.NewAgentInterface(o.Base()+"/rest", a2a.TransportProtocolHTTPJSON),
		a2a.NewAgentInterface(o.GRPC.Addr().String(), a2a.TransportProtocolGRPC),
	}
	if o.Dual {
		interfaces = append(interfaces,
			&a2a.AgentInterface{URL: o.Base() + "/rpc03", ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: "0.3"})
	}
	modes := []string{"text/plain", "application/json"}
	return &a2a.AgentCard{
		Name: "go 1.0", Description: "a scripted agent", Version: "1", SupportedInterfaces: interfaces,
		Capabilities:      a2a.AgentCapabilities{Streaming: true, PushNotifications: true},
		DefaultInputModes: modes, DefaultOutputModes: modes,
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
func (e *executor) Execute(ctx context.Context, x *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		m := script.Message{Again: x.StoredTask != nil}
		var texts, got []string
		for _, p := range x.Message.Parts {
			switch c := p.Content.(type) {
			case a2a.Text:
				texts, got = append(texts, string(c)), append(got, "text")
			case a2a.Data:
				m.Data, got = c.Value, append(got, "data")
			case a2a.Raw:
				got = append(got, script.Described(script.Part{Raw: c, Name: p.Filename, Type: p.MediaType}))
			case a2a.URL:
				got = append(got, script.Described(script.Part{URL: string(c), Name: p.Filename, Type: p.MediaType}))
			}
		}
		m.Text, m.Got = strings.Join(texts, "\n"), strings.Join(got, ", ")
		e.log.Write(script.Entry{What: "execute", Message: x.Message.ID, Task: string(x.TaskID), Context: x.ContextID, Text: m.Text})
		if strings.HasPrefix(m.Text, "refuse-cancel") {
			e.mu.Lock()
			e.refuses[x.TaskID] = true
			e.mu.Unlock()
		}
		o := &out{x: x, yield: yield}
		if err := script.Obey(ctx, m, o, e.gates); err != nil && !o.ended {
			yield(nil, err)
		}
	}
}

// Cancel implements a2asrv.AgentExecutor.
func (e *executor) Cancel(_ context.Context, x *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		e.log.Write(script.Entry{What: "cancel", Task: string(x.TaskID), Context: x.ContextID})
		e.mu.Lock()
		refuses := e.refuses[x.TaskID]
		e.mu.Unlock()
		if refuses {
			yield(nil, a2a.NewError(a2a.ErrTaskNotCancelable, "asked to refuse"))
			return
		}
		yield(a2a.NewStatusUpdateEvent(x, a2a.TaskStateCanceled, nil), nil)
	}
}

// out is one execution.
type out struct {
	x     *a2asrv.ExecutorContext
	yield func(a2a.Event, error) bool
	ended bool
}

func (o *out) emit(e a2a.Event) error {
	if o.ended || !o.yield(e, nil) {
		o.ended = true
		return context.Canceled
	}
	return nil
}

// Begin implements script.Out.
func (o *out) Begin() error { return o.emit(a2a.NewSubmittedTask(o.x, o.x.Message)) }

// Message implements script.Out.
func (o *out) Message(text string) error {
	m := a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(text))
	m.ContextID = o.x.ContextID
	return o.emit(m)
}

// Status implements script.Out.
func (o *out) Status(state, text string) error {
	var m *a2a.Message
	if text != "" {
		m = a2a.NewMessageForTask(a2a.MessageRoleAgent, o.x, a2a.NewTextPart(text))
	}
	return o.emit(a2a.NewStatusUpdateEvent(o.x, states()[state], m))
}

func states() map[string]a2a.TaskState {
	return map[string]a2a.TaskState{
		"working": a2a.TaskStateWorking, "completed": a2a.TaskStateCompleted, "failed": a2a.TaskStateFailed,
		"rejected": a2a.TaskStateRejected, "input-required": a2a.TaskStateInputRequired,
		"auth-required": a2a.TaskStateAuthRequired,
	}
}

// Artifact implements script.Out.
func (o *out) Artifact(a script.Artifact) error {
	var parts []*a2a.Part
	for _, p := range a.Parts {
		parts = append(parts, part(p))
	}
	event := a2a.NewArtifactEvent(o.x, parts...)
	event.Artifact.ID, event.Artifact.Name = a2a.ArtifactID(a.Name), a.Name
	event.Append, event.LastChunk = a.Append, a.Last
	return o.emit(event)
}

func part(p script.Part) *a2a.Part {
	var out *a2a.Part
	switch {
	case p.Data != nil:
		return a2a.NewDataPart(p.Data)
	case p.Raw != nil:
		out = a2a.NewRawPart(p.Raw)
	case p.URL != "":
		out = a2a.NewFileURLPart(a2a.URL(p.URL), p.Type)
	default:
		return a2a.NewTextPart(p.Text)
	}
	out.Filename, out.MediaType = p.Name, p.Type
	return out
}
