package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/a2apb"
)

// grpcAgent is an agent whose every operation a test may write.
type grpcAgent struct {
	a2apb.UnimplementedA2AServiceServer
	send      func(context.Context, *a2apb.SendMessageRequest) (*a2apb.SendMessageResponse, error)
	events    func(*a2apb.SendMessageRequest, grpc.ServerStreamingServer[a2apb.StreamResponse]) error
	get       func(context.Context, *a2apb.GetTaskRequest) (*a2apb.Task, error)
	list      func(context.Context, *a2apb.ListTasksRequest) (*a2apb.ListTasksResponse, error)
	cancel    func(context.Context, *a2apb.CancelTaskRequest) (*a2apb.Task, error)
	subscribe func(*a2apb.SubscribeToTaskRequest, grpc.ServerStreamingServer[a2apb.StreamResponse]) error

	calls atomic.Int64
	mu    sync.Mutex
	last  metadata.MD // of the last call
}

func (a *grpcAgent) seen(ctx context.Context) {
	a.calls.Add(1)
	md, _ := metadata.FromIncomingContext(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = md
}

func (a *grpcAgent) metadata() metadata.MD {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

func (a *grpcAgent) SendMessage(ctx context.Context, r *a2apb.SendMessageRequest) (*a2apb.SendMessageResponse, error) {
	a.seen(ctx)
	return a.send(ctx, r)
}

func (a *grpcAgent) SendStreamingMessage(r *a2apb.SendMessageRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
	a.seen(s.Context())
	return a.events(r, s)
}

func (a *grpcAgent) GetTask(ctx context.Context, r *a2apb.GetTaskRequest) (*a2apb.Task, error) {
	a.seen(ctx)
	return a.get(ctx, r)
}

func (a *grpcAgent) ListTasks(ctx context.Context, r *a2apb.ListTasksRequest) (*a2apb.ListTasksResponse, error) {
	a.seen(ctx)
	return a.list(ctx, r)
}

func (a *grpcAgent) CancelTask(ctx context.Context, r *a2apb.CancelTaskRequest) (*a2apb.Task, error) {
	a.seen(ctx)
	return a.cancel(ctx, r)
}

func (a *grpcAgent) SubscribeToTask(r *a2apb.SubscribeToTaskRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
	a.seen(s.Context())
	return a.subscribe(r, s)
}

// grpcRig is a binding and an agent that it reaches in memory.
type grpcRig struct {
	*grpcBinding
	t     *testing.T
	agent parley.Agent
	dials atomic.Int64
	// dialer opens the connections of the rig, and counts them.
	dialer func(ctx context.Context, network, address string) (net.Conn, error)
}

// newGRPCRig serves agent in memory until the test ends.
func newGRPCRig(t *testing.T, agent *grpcAgent, opts ...grpc.ServerOption) *grpcRig {
	t.Helper()
	lis := bufconn.Listen(64 << 10)
	server := grpc.NewServer(opts...)
	a2apb.RegisterA2AServiceServer(server, agent)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(lis) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return dialGRPCRig(t, lis.DialContext, bridge.ExchangeConfig{})
}

// dialGRPCRig makes a binding whose connections dial opens.
func dialGRPCRig(t *testing.T, dial func(context.Context) (net.Conn, error), cfg bridge.ExchangeConfig) *grpcRig {
	t.Helper()
	r := &grpcRig{t: t, agent: parley.Agent{Name: "scout", URL: "http://scout.example:50051"}}
	r.dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		r.dials.Add(1)
		return dial(ctx)
	}
	cfg.DialContext = r.dialer
	r.use(bridge.NewExchange(cfg))
	return r
}

// use replaces the binding by one over x.
func (r *grpcRig) use(x *bridge.Exchange) {
	r.grpcBinding = newGRPC(grpcOptions{Exchange: x})
	r.t.Cleanup(x.Close)
	r.t.Cleanup(r.close)
}

// op makes an operation of r's agent.
func (r *grpcRig) op(vb verb, params string) operation {
	return operation{
		verb: vb, to: Endpoint{URL: r.agent.URL, Binding: BindingGRPC, Version: V10, Streaming: true},
		task:  parley.Task{ID: "task-1", CorrelationID: "corr-1", Step: "step", Attempt: 1},
		agent: r.agent, id: "task-1", params: []byte(params),
	}
}

// do encodes, carries and opens, as the adapter does.
func (r *grpcRig) do(ctx context.Context, vb verb, params string) (string, *failure, error) {
	op := r.op(vb, params)
	body, err := r.encode(op)
	if err != nil {
		return "", nil, err
	}
	reply, err := r.carry(ctx, op, body)
	if err != nil {
		return "", nil, err
	}
	result, f, err := r.open(op, reply.Body)
	return string(result), f, err
}

// begin encodes and opens a stream.
func (r *grpcRig) begin(ctx context.Context, vb verb, params string) (eventSource, bridge.Reply, error) {
	op := r.op(vb, params)
	body, err := r.encode(op)
	if err != nil {
		return nil, bridge.Reply{}, err
	}
	return r.stream(ctx, op, body)
}

// drain reads a stream to its end and gives its events.
func drain(ctx context.Context, s eventSource) ([]string, error) {
	var all []string
	for {
		event, err := s.next(ctx)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, string(event))
	}
}

// left asserts what an exchange has left behind, and gives its error.
func left(t *testing.T, err error, d bridge.Disposition, code parley.Code, retryable bool) *bridge.ExchangeError {
	t.Helper()
	x, ok := errors.AsType[*bridge.ExchangeError](err)
	if !ok {
		t.Fatalf("error %v, want an ExchangeError", err)
	}
	if x.Disposition != d || x.Err.Code != code || x.Err.Retryable != retryable {
		t.Errorf("left %v %s retryable=%t (%s), want %v %s %t", x.Disposition, x.Err.Code, x.Err.Retryable, x.Err.Message, d, code, retryable)
	}
	if x.Err.Agent != "scout" || x.Err.Step != "step" || x.Err.Attempt != 1 {
		t.Errorf("the error is about %q %q %d", x.Err.Agent, x.Err.Step, x.Err.Attempt)
	}
	return x
}

func limitOf(x *bridge.ExchangeError) string {
	var d struct {
		Limit string `json:"limit"`
	}
	_ = json.Unmarshal(x.Err.Details, &d)
	return d.Limit
}

const (
	sendParams = `{"message":{"messageId":"msg-task-1","role":"ROLE_USER","parts":[{"text":"Sum Q3"}]},"configuration":{"returnImmediately":true}}`
	taskParams = `{"id":"t9"}`
	// grpcPatience is for what must not happen, and for what must happen soon.
	grpcPatience = 10 * time.Second
)

func mustAny(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
