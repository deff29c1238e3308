package a2a_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // the details of errors
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/parley-project/parley/internal/bridge/a2a/a2apb"
	"github.com/parley-project/parley/internal/bridge/adaptertest"
)

// grpcAgents is gRPC of A2A 1.0 (§10), with agents in memory and the statuses of
// a release.
func grpcAgents(in adaptertest.Release) adaptertest.Binding {
	fraction := regexp.MustCompile(`(T\d\d:\d\d:\d\d)\.000Z`)
	broke := regexp.MustCompile(`the connection broke: [^;]*;`)
	return adaptertest.Binding{
		Name: "GRPC", Label: "gRPC",
		Place: func(u string) (string, error) {
			at, err := url.Parse(u)
			if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.User != nil || at.RawQuery != "" {
				return "", &adaptertest.UnsayableError{Rule: "gRPC has addresses of its own, see TestGRPCTarget", Detail: u}
			}
			return at.Scheme + "://" + at.Host, nil
		},
		Agent: func(turns []adaptertest.Turn) (adaptertest.BindingAgent, error) {
			return newTypedAgent(turns, in)
		},
		Text: func(s string) string {
			s = strings.Replace(s, "authentication handshake failed: ", "", 1)
			return broke.ReplaceAllString(fraction.ReplaceAllString(s, "${1}Z"), "the connection broke;")
		},
	}
}

// typedAgent is an agent over gRPC that does what a dialogue has it do.
type typedAgent struct {
	a2apb.UnimplementedA2AServiceServer
	release adaptertest.Release
	turns   []*typedTurn
	said    []adaptertest.Said
	want    []string

	start   sync.Once
	lis     *bufconn.Listener
	server  *grpc.Server
	serving sync.WaitGroup

	mu    sync.Mutex
	got   []string
	conns []net.Conn
}

// typedTurn is one call: messages and what happens between them, and how it ends.
type typedTurn struct {
	method string
	// head: the stream begins, also if nothing follows but a status.
	head  bool
	steps []typedStep
	end   error
}

// typedStep is one thing that happens: a message, a pause, or a break.
type typedStep struct {
	message proto.Message
	pause   time.Duration
	broken  string
}

const typedOnly = "messages of gRPC are protobuf, which has no place for it"

func newTypedAgent(turns []adaptertest.Turn, in adaptertest.Release) (adaptertest.BindingAgent, error) {
	a := &typedAgent{release: in}
	for _, t := range turns {
		request, response := typesOf(t.Method)
		if err := protojson.Unmarshal(t.Params, request); err != nil {
			return nil, &adaptertest.UnsayableError{Rule: typedOnly, Detail: "request: " + err.Error()}
		}
		a.want = append(a.want, typedRequest(t.Method, headOf(t.Request), request))
		turn := &typedTurn{method: t.Method}
		if err := a.translate(turn, &t, response); err != nil {
			return nil, err
		}
		a.turns = append(a.turns, turn)
	}
	return a, nil
}

// typesOf gives the messages of an operation.
func typesOf(method string) (request, response proto.Message) {
	switch method {
	case "SendMessage":
		return &a2apb.SendMessageRequest{}, &a2apb.SendMessageResponse{}
	case "SendStreamingMessage":
		return &a2apb.SendMessageRequest{}, &a2apb.StreamResponse{}
	case "GetTask":
		return &a2apb.GetTaskRequest{}, &a2apb.Task{}
	case "ListTasks":
		return &a2apb.ListTasksRequest{}, &a2apb.ListTasksResponse{}
	case "CancelTask":
		return &a2apb.CancelTaskRequest{}, &a2apb.Task{}
	}
	return &a2apb.SubscribeToTaskRequest{}, &a2apb.StreamResponse{}
}

// headOf gives what of a request over HTTP is metadata of gRPC.
func headOf(request string) metadata.MD {
	head, _, _ := strings.Cut(request, "\n\n")
	md := metadata.MD{}
	for line := range strings.SplitSeq(head, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			if name = ":authority"; !strings.Contains(value, ":") {
				value += ":80"
			}
		}
		md.Append(name, value)
	}
	return md
}

// typedRequest writes a request down. What HTTP needs besides is left out.
func typedRequest(method string, head metadata.MD, request proto.Message) string {
	var b strings.Builder
	b.WriteString(method + "\n")
	for _, name := range slices.Sorted(maps.Keys(head)) {
		switch name {
		case ":authority", "a2a-version", "authorization", "x-api-key", "x-correlation-id", "traceparent", "tracestate":
			fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(head[name], ", "))
		}
	}
	text, err := protojson.Marshal(request)
	if err != nil {
		return err.Error()
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return err.Error()
	}
	b.Write(compact.Bytes())
	return b.String()
}

// translate says in gRPC what t has the agent do.
func (a *typedAgent) translate(turn *typedTurn, t *adaptertest.Turn, response proto.Message) error {
	switch {
	case t.Fault != "":
		return turn.fail(t)
	case t.Result != nil && streams(t.Method):
		return &adaptertest.UnsayableError{Rule: "a call of gRPC that streams is answered with a stream or with a status"}
	case t.Result != nil:
		return turn.say(t.Result, response)
	case t.Error != nil:
		return a.refuse(turn, t, t.Error)
	case t.Events == nil:
		return &adaptertest.UnsayableError{Rule: "an answer of HTTP that is nothing of A2A is no answer of gRPC", Detail: t.Head}
	}
	turn.head = true
	for _, e := range t.Events {
		var err error
		switch {
		case e.Odd:
			return &adaptertest.UnsayableError{Rule: typedOnly, Detail: "an event that is not whole, or no JSON"}
		case e.Result != nil:
			err = turn.say(e.Result, response)
		case e.Error != nil:
			return a.refuse(turn, t, e.Error)
		case e.Break != "" || e.Pause > 0:
			turn.steps = append(turn.steps, typedStep{pause: e.Pause, broken: e.Break})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// say adds a message.
func (turn *typedTurn) say(result json.RawMessage, response proto.Message) error {
	m := response.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal(result, m); err != nil {
		return &adaptertest.UnsayableError{Rule: typedOnly, Detail: err.Error()}
	}
	turn.steps = append(turn.steps, typedStep{message: m})
	return nil
}

// fail adds a fault.
func (turn *typedTurn) fail(t *adaptertest.Turn) error {
	step := typedStep{broken: t.Fault}
	switch {
	case t.Fault == adaptertest.FaultLarge && t.Method == "ListTasks":
		step = typedStep{message: &a2apb.ListTasksResponse{NextPageToken: strings.Repeat("x", 2<<20)}}
	case t.Count > 0:
		return &adaptertest.UnsayableError{Rule: "what is half sent over HTTP is a frame of gRPC", Detail: t.Fault}
	case t.Fault != adaptertest.FaultCut && t.Fault != adaptertest.FaultReset && t.Fault != adaptertest.FaultHang:
		return &adaptertest.UnsayableError{Rule: "the fault is one of HTTP/1.1", Detail: t.Fault}
	}
	turn.steps = append(turn.steps, step)
	return nil
}

// refuse ends a call with a status.
func (a *typedAgent) refuse(turn *typedTurn, t *adaptertest.Turn, e *adaptertest.RPCError) error {
	s, err := e.Status(a.release)
	if err != nil {
		return err
	}
	if t.Status != 200 && t.Status != s.HTTP {
		return &adaptertest.UnsayableError{Rule: "there is one status, and no other one beside it", Detail: fmt.Sprintf("%d and %d", t.Status, e.Code)}
	}
	said := adaptertest.Said{From: e, Code: s.Code, Details: s.Details}
	var c codes.Code
	switch s.Name {
	case "UNAUTHENTICATED":
		c, said.HTTP = codes.Unauthenticated, 401
	case "PERMISSION_DENIED":
		c, said.HTTP = codes.PermissionDenied, 403
	default:
		if err := c.UnmarshalJSON([]byte(`"` + s.Name + `"`)); err != nil {
			return err
		}
	}
	if c == codes.Unimplemented && streams(t.Method) {
		said.Code = -32004 // A2A 1.0.0 says so with the same status
	}
	p := status.New(c, s.Message).Proto()
	for _, d := range s.Details {
		one := &anypb.Any{}
		if err := protojson.Unmarshal(d, one); err != nil {
			return &adaptertest.UnsayableError{Rule: typedOnly, Detail: "detail: " + err.Error()}
		}
		p.Details = append(p.Details, one)
	}
	turn.end = status.FromProto(p).Err()
	a.said = append(a.said, said)
	return nil
}

func streams(method string) bool {
	return method == "SendStreamingMessage" || method == "SubscribeToTask"
}

// Dial implements [adaptertest.BindingAgent].
func (a *typedAgent) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	a.start.Do(func() {
		a.lis = bufconn.Listen(64 << 10)
		a.server = grpc.NewServer()
		a2apb.RegisterA2AServiceServer(a.server, a)
		a.serving.Go(func() { _ = a.server.Serve(keeping{a.lis, a}) })
	})
	return a.lis.DialContext(ctx)
}

// keeping is a listener that keeps its connections, so that they can be cut.
type keeping struct {
	net.Listener
	a *typedAgent
}

// Accept implements [net.Listener].
func (k keeping) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err == nil {
		k.a.mu.Lock()
		k.a.conns = append(k.a.conns, c)
		k.a.mu.Unlock()
	}
	return c, err
}

// Close implements [adaptertest.BindingAgent].
func (a *typedAgent) Close() {
	if a.server != nil {
		a.server.Stop()
	}
	a.serving.Wait()
}

// Got implements [adaptertest.BindingAgent].
func (a *typedAgent) Got() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.got
}

// Want implements [adaptertest.BindingAgent].
func (a *typedAgent) Want() []string { return a.want }

// Said implements [adaptertest.BindingAgent].
func (a *typedAgent) Said() []adaptertest.Said { return a.said }

// play answers one call; send takes its messages.
func (a *typedAgent) play(ctx context.Context, method string, request proto.Message, send func(proto.Message) error) error {
	md, _ := metadata.FromIncomingContext(ctx)
	a.mu.Lock()
	n := len(a.got)
	a.got = append(a.got, typedRequest(method, md, request))
	a.mu.Unlock()
	if n >= len(a.turns) || a.turns[n].method != method {
		return status.Error(codes.Aborted, "not in the dialogue")
	}
	if a.turns[n].head {
		if err := grpc.SendHeader(ctx, nil); err != nil {
			return err
		}
	}
	for _, s := range a.turns[n].steps {
		time.Sleep(s.pause)
		switch {
		case s.broken == adaptertest.FaultHang:
			<-ctx.Done()
			return ctx.Err()
		case s.broken != "":
			time.Sleep(time.Millisecond) // until everything before it has arrived
			a.mu.Lock()
			for _, c := range a.conns {
				_ = c.Close()
			}
			a.mu.Unlock()
			<-ctx.Done()
			return ctx.Err()
		case s.message != nil:
			if err := send(s.message); err != nil {
				return err
			}
		}
	}
	return a.turns[n].end
}

// one answers a call with one message.
func one[T proto.Message](a *typedAgent, ctx context.Context, method string, request proto.Message) (T, error) {
	var answer T
	err := a.play(ctx, method, request, func(m proto.Message) error {
		answer = m.(T)
		return nil
	})
	return answer, err
}

func (a *typedAgent) SendMessage(ctx context.Context, r *a2apb.SendMessageRequest) (*a2apb.SendMessageResponse, error) {
	return one[*a2apb.SendMessageResponse](a, ctx, "SendMessage", r)
}

func (a *typedAgent) GetTask(ctx context.Context, r *a2apb.GetTaskRequest) (*a2apb.Task, error) {
	return one[*a2apb.Task](a, ctx, "GetTask", r)
}

func (a *typedAgent) ListTasks(ctx context.Context, r *a2apb.ListTasksRequest) (*a2apb.ListTasksResponse, error) {
	return one[*a2apb.ListTasksResponse](a, ctx, "ListTasks", r)
}

func (a *typedAgent) CancelTask(ctx context.Context, r *a2apb.CancelTaskRequest) (*a2apb.Task, error) {
	return one[*a2apb.Task](a, ctx, "CancelTask", r)
}

func (a *typedAgent) SendStreamingMessage(r *a2apb.SendMessageRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
	return a.play(s.Context(), "SendStreamingMessage", r, func(m proto.Message) error { return s.Send(m.(*a2apb.StreamResponse)) })
}

func (a *typedAgent) SubscribeToTask(r *a2apb.SubscribeToTaskRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
	return a.play(s.Context(), "SubscribeToTask", r, func(m proto.Message) error { return s.Send(m.(*a2apb.StreamResponse)) })
}
