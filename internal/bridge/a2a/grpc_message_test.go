package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/a2apb"
)

// TestGRPCMetadata: the version and the correlation id go with every call, and
// the credential as metadata.
func TestGRPCMetadata(t *testing.T) {
	agent := refusing(status.Error(codes.NotFound, "m"))
	for _, tt := range []struct {
		name string
		auth parley.Auth
		want map[string]string
	}{
		{"none", parley.Auth{}, nil},
		{"bearer", parley.Auth{Type: parley.AuthBearer}, map[string]string{"authorization": "Bearer s3cr3t"}},
		{"basic", parley.Auth{Type: parley.AuthBasic, User: "ann"}, map[string]string{"authorization": "Basic YW5uOnMzY3IzdA=="}},
		{"key", parley.Auth{Type: parley.AuthAPIKey}, map[string]string{"x-api-key": "s3cr3t"}},
		{"cookie", parley.Auth{Type: parley.AuthAPIKey, In: parley.InCookie, Header: "sid"}, map[string]string{"cookie": "sid=s3cr3t"}},
		{"header", parley.Auth{Type: parley.AuthHeader, Header: "X-Team-Key"}, map[string]string{"x-team-key": "s3cr3t"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rig := newGRPCRig(t, agent)
			rig.agent.Auth, rig.agent.Credential = tt.auth, parley.NewSecret([]byte("s3cr3t"))
			for _, vb := range []verb{verbSend, verbSubscribe, verbGet} {
				if _, err := rig.failure(vb); err != nil {
					t.Fatal(err)
				}
				md := agent.metadata()
				for key, want := range tt.want {
					if got := md.Get(key); len(got) != 1 || got[0] != want {
						t.Errorf("%v: %s is %q, want %q", vb, key, got, want)
					}
				}
				if tt.want == nil && (len(md.Get("authorization")) > 0 || len(md.Get("x-api-key")) > 0) {
					t.Errorf("%v: a credential was sent: %v", vb, md)
				}
				if v, c := md.Get("a2a-version"), md.Get("x-correlation-id"); len(v) != 1 || v[0] != "1.0" || len(c) != 1 || c[0] != "corr-1" {
					t.Errorf("%v: version %q, correlation id %q", vb, v, c)
				}
				if ua := md.Get("user-agent"); len(ua) != 1 || !strings.HasPrefix(ua[0], "parley/") {
					t.Errorf("%v: user agent %q", vb, ua)
				}
			}
		})
	}
}

// TestGRPCMetadataOdd: what metadata cannot carry is written so that it can,
// or refused before anything is sent.
func TestGRPCMetadataOdd(t *testing.T) {
	agent := refusing(status.Error(codes.NotFound, "m"))
	rig := newGRPCRig(t, agent)
	op := rig.op(verbGet, taskParams)
	op.task.CorrelationID = "Überweisung 7\t"
	if _, err := rig.carry(t.Context(), op, op.params); err != nil {
		t.Fatal(err)
	}
	if got := agent.metadata().Get("x-correlation-id"); len(got) != 1 || got[0] != "%C3%9Cberweisung 7%09" {
		t.Errorf("correlation id %q", got)
	}
	op.task.CorrelationID = ""
	if _, err := rig.carry(t.Context(), op, op.params); err != nil {
		t.Fatal(err)
	}
	if got := agent.metadata().Get("x-correlation-id"); len(got) != 1 || got[0] != op.task.ID {
		t.Errorf("correlation id %q without one of the run's", got)
	}
	before := agent.calls.Load()
	for name, change := range map[string]func(*parley.Agent){
		"query": func(a *parley.Agent) {
			a.Auth = parley.Auth{Type: parley.AuthAPIKey, In: parley.InQuery, Header: "key"}
		},
		"not ASCII":      func(a *parley.Agent) { a.Credential = parley.NewSecret([]byte("schlüssel")) },
		"reserved":       func(a *parley.Agent) { a.Auth = parley.Auth{Type: parley.AuthHeader, Header: "grpc-timeout"} },
		"not a key":      func(a *parley.Agent) { a.Auth = parley.Auth{Type: parley.AuthHeader, Header: "X+Key"} },
		"our version":    func(a *parley.Agent) { a.Auth = parley.Auth{Type: parley.AuthHeader, Header: "A2A-Version"} },
		"no credential":  func(a *parley.Agent) { a.Credential = parley.Secret{} },
		"a path":         func(a *parley.Agent) { a.URL = "http://scout.example/a2a" },
		"a user":         func(a *parley.Agent) { a.URL = "http://ann:pw@scout.example" },
		"another scheme": func(a *parley.Agent) { a.URL = "ftp://scout.example" },
		"no host":        func(a *parley.Agent) { a.URL = "http://" },
	} {
		rig.agent = parley.Agent{Name: "scout", URL: "http://scout.example:50051", Auth: parley.Auth{Type: parley.AuthBearer}, Credential: parley.NewSecret([]byte("s3cr3t"))}
		change(&rig.agent)
		_, _, err := rig.do(t.Context(), verbGet, taskParams)
		e, ok := errors.AsType[*parley.Error](err)
		if _, exchanged := errors.AsType[*bridge.ExchangeError](err); !ok || exchanged || e.Retryable {
			t.Errorf("%s: error %v, want one that nothing could be sent", name, err)
		} else if strings.Contains(e.Message, "s3cr3t") || strings.Contains(e.Message, "schlüssel") || strings.Contains(e.Message, "pw@") {
			t.Errorf("%s: the error repeats the credential: %s", name, e.Message)
		}
	}
	if n := agent.calls.Load(); n != before {
		t.Errorf("%d calls arrived", n-before)
	}
	rig.idle()
}

// TestGRPCRenew: after UNAUTHENTICATED, which executed nothing, the call is made
// once more with what Renew gives, and not a third time.
func TestGRPCRenew(t *testing.T) {
	agent := refusing(nil)
	tokens := 0
	answer := func(ctx context.Context) error {
		if got := agent.metadata().Get("authorization"); got[0] != "Bearer new" || tokens > 1 {
			return status.Error(codes.Unauthenticated, "expired")
		}
		return nil
	}
	agent.get = func(ctx context.Context, _ *a2apb.GetTaskRequest) (*a2apb.Task, error) {
		return workingTask(), answer(ctx)
	}
	rig := newGRPCRig(t, agent)
	inner := rig.exchange
	rig.use(bridge.NewExchange(bridge.ExchangeConfig{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return inner.Dial(ctx, address, false)
		},
		Renew: func(_ context.Context, a parley.Agent) (parley.Agent, error) {
			tokens++
			a.Credential = parley.NewSecret([]byte("new"))
			return a, nil
		},
	}))
	rig.agent.Auth = parley.Auth{Type: parley.AuthBearer, Secret: "file:token"}
	rig.agent.Credential = parley.NewSecret([]byte("old"))
	if result, f, err := rig.do(t.Context(), verbGet, taskParams); result != workingJSON || f != nil || err != nil {
		t.Errorf("%s, failure %v, error %v", result, f, err)
	}
	if n := agent.calls.Load(); n != 2 || tokens != 1 {
		t.Errorf("%d calls, %d renewals", n, tokens)
	}
	_, _, err := rig.do(t.Context(), verbGet, taskParams)
	left(t, err, bridge.Answered, parley.CodeAgentRejected, false)
	if n := agent.calls.Load(); n != 4 || tokens != 2 {
		t.Errorf("after a second refusal: %d calls, %d renewals", n, tokens)
	}
	// An agent that had begun to answer was refused by somebody else.
	agent.cancel = func(ctx context.Context, _ *a2apb.CancelTaskRequest) (*a2apb.Task, error) {
		return nil, errors.Join(grpc.SendHeader(ctx, metadata.Pairs("x-begun", "yes")), status.Error(codes.Unauthenticated, "expired"))
	}
	_, _, err = rig.do(t.Context(), verbCancel, taskParams)
	left(t, err, bridge.Answered, parley.CodeAgentRejected, false)
	if n := agent.calls.Load(); n != 5 || tokens != 2 {
		t.Errorf("after a late refusal: %d calls, %d renewals", n, tokens)
	}
}

// TestGRPCTarget reads the addresses that cards and records have.
func TestGRPCTarget(t *testing.T) {
	for _, tt := range []struct {
		url, own, address string
		secure            bool
	}{
		{"http://a.example:50051", "", "a.example:50051", false},
		{"https://a.example:50051/", "", "a.example:50051", true},
		{"http://a.example", "", "a.example:80", false},
		{"https://a.example", "", "a.example:443", true},
		{"a.example:50051", "a.example:50051", "a.example:50051", true},
		{"a.example:50051", "http://a.example:8000", "a.example:50051", false},
		{"a.example:50051", "https://a.example", "a.example:50051", true},
		{"localhost:50051", "localhost:50051", "localhost:50051", false},
		{"127.0.0.1:50051", "", "127.0.0.1:50051", false},
		{"[::1]:50051", "", "[::1]:50051", false},
		{"localhost:50051", "https://a.example", "localhost:50051", true},
		{"a.example", "", "a.example:443", true},
		{"HTTPS://a.example:1", "", "a.example:1", true},
	} {
		got, fault := grpcTargetOf(operation{to: Endpoint{URL: tt.url}, agent: parley.Agent{URL: tt.own}})
		if fault != "" || got.address != tt.address || got.secure != tt.secure {
			t.Errorf("%s of %q: %s secure=%t %q, want %s secure=%t", tt.url, tt.own, got.address, got.secure, fault, tt.address, tt.secure)
		}
	}
}

// TestGRPCEncode: what protobuf cannot hold as it is does not go out as
// something else.
func TestGRPCEncode(t *testing.T) {
	b := newGRPC(grpcOptions{Exchange: bridge.NewExchange(bridge.ExchangeConfig{})})
	defer b.close()
	data := func(v string) string {
		return `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":` + v + `}]}}`
	}
	for _, fine := range []string{`42`, `-7`, `0.1`, `1e300`, `9007199254740992`, `1000000000000000000000`, `"9007199254740993"`, `"\\\""`, `"a\"9007199254740993"`, `{"a":[null,true,{}]}`, `[]`} {
		op := operation{verb: verbSend, to: Endpoint{Version: V10}, params: []byte(data(fine))}
		if got, err := b.encode(op); err != nil || !bytes.Equal(got, op.params) {
			t.Errorf("%s: %s, %v", fine, got, err)
		}
	}
	for _, bad := range []string{`9007199254740993`, `-9007199254740993`, `1e400`, `1` + strings.Repeat("0", 400), `123456789012345678901234567890`} {
		if _, err := b.encode(operation{verb: verbSend, to: Endpoint{Version: V10}, params: []byte(data(bad))}); err == nil {
			t.Errorf("%s was taken", limited(bad))
		} else if len(err.Error()) > 1000 || strings.Contains(err.Error(), "\u00a0") {
			t.Errorf("%s: the error is %q", limited(bad), err)
		}
	}
	for name, op := range map[string]operation{
		"0.3":            {verb: verbSend, to: Endpoint{Version: V03}, params: []byte(`{}`)},
		"no operation":   {verb: 0, to: Endpoint{Version: V10}, params: []byte(`{}`)},
		"unknown member": {verb: verbGet, to: Endpoint{Version: V10}, params: []byte(`{"id":"t9","extra":1}`)},
		"no JSON":        {verb: verbGet, to: Endpoint{Version: V10}, params: []byte(`{"id":`)},
	} {
		if _, err := b.encode(op); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestGRPCUnusable: a message that is none is an answer that cannot be used, not
// a connection that broke.
func TestGRPCUnusable(t *testing.T) {
	m, _ := grpcMethodOf(verbGet)
	field := func(num protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), value)
	}
	deep := []byte{}
	for range 2000 { // Value.list_value of ListValue.values
		deep = field(1, field(6, deep))
	}
	inMetadata := func(value []byte) []byte { // an entry of Struct.fields in Task.metadata
		return field(6, field(1, append(field(1, []byte("k")), field(2, value)...)))
	}
	for name, raw := range map[string][]byte{
		"cut":             {0x0a, 10, 'x'},
		"not UTF-8":       field(1, []byte{0xff}),
		"deep":            inMetadata(field(6, deep)),
		"many":            bytes.Repeat(field(5, nil), maxMessages+1),
		"an empty value":  inMetadata(nil),
		"not a number":    inMetadata(protowire.AppendFixed64(protowire.AppendTag(nil, 2, protowire.Fixed64Type), 0x7ff8000000000001)),
		"no such instant": mustMarshal(t, &a2apb.Task{Status: &a2apb.TaskStatus{Timestamp: &timestamppb.Timestamp{Seconds: 1 << 60}}}),
	} {
		if text, err := m.unpack(raw); err == nil {
			t.Errorf("%s: %s", name, limited(string(text)))
		}
	}
	// Fields of a later version are passed over, and enough fits.
	later := append(mustMarshal(t, workingTask()), field(1000, []byte("new"))...)
	if text, err := m.unpack(later); err != nil || string(text) != workingJSON {
		t.Errorf("a later version: %s, %v", text, err)
	}
	many := &structpb.ListValue{}
	for range 10_000 {
		many.Values = append(many.Values, structpb.NewNullValue())
	}
	if _, err := m.unpack(mustMarshal(t, &a2apb.Task{Id: "t9", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewListValue(many)}}})); err != nil {
		t.Errorf("10,000 values: %v", err)
	}
}

func mustMarshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestGRPCEmptyValue: over the wire, too, a message that has no JSON is
// Answered.
func TestGRPCEmptyValue(t *testing.T) {
	empty := &a2apb.Task{Id: "t9", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"k": {}}}}
	rig := newGRPCRig(t, &grpcAgent{get: func(context.Context, *a2apb.GetTaskRequest) (*a2apb.Task, error) { return empty, nil }})
	_, _, err := rig.do(t.Context(), verbGet, taskParams)
	x := left(t, err, bridge.Answered, parley.CodeAgentError, true)
	if !strings.Contains(x.Err.Message, "lf.a2a.v1.Task") || strings.Contains(x.Err.Message, "\u00a0") {
		t.Errorf("the error is %q", x.Err.Message)
	}
}

// TestGRPCLocal: errors that grpc-go makes of an answer on this side are not
// taken for the agent's, which could say that nothing was executed.
func TestGRPCLocal(t *testing.T) {
	const unpackable = `grpc: Decompressor is not installed for grpc-encoding "br"`
	for _, tt := range []struct {
		code          codes.Code
		message       string
		head, ended   bool
		wantDisposion bridge.Disposition
	}{
		{codes.Unimplemented, unpackable, true, true, bridge.Lost},
		{codes.Unimplemented, unpackable, true, false, bridge.Lost},
		{codes.Internal, "unexpected EOF", true, true, bridge.Lost},
		{codes.Unimplemented, "grpc: not here", false, true, 0}, // the agent's words
	} {
		c := &grpcCall{trace: &grpcTrace{}, outer: t.Context(), inner: t.Context()}
		c.method, _ = grpcMethodOf(verbSend)
		c.trace.sent.Store(true)
		c.trace.head.Store(tt.head)
		c.trace.end.Store(tt.ended)
		_, err := c.judge(status.Error(tt.code, tt.message))
		var got bridge.Disposition
		if x, ok := errors.AsType[*bridge.ExchangeError](err); ok {
			got = x.Disposition
		}
		if got != tt.wantDisposion {
			t.Errorf("%s (head %t, end %t): %v", tt.message, tt.head, tt.ended, err)
		}
	}
}

// FuzzGRPCUnpack: whatever an agent sends is refused or becomes JSON that the
// reader takes.
func FuzzGRPCUnpack(f *testing.F) {
	f.Add(mustMarshal(f, workingTask()), uint8(verbGet))
	f.Add(mustMarshal(f, statusEvent(a2apb.TaskState_TASK_STATE_FAILED, "x")), uint8(verbStream))
	f.Add(mustMarshal(f, &a2apb.SendMessageResponse{Payload: &a2apb.SendMessageResponse_Task{Task: workingTask()}}), uint8(verbSend))
	b := newGRPC(grpcOptions{Exchange: bridge.NewExchange(bridge.ExchangeConfig{})})
	f.Cleanup(b.close)
	f.Fuzz(func(t *testing.T, raw []byte, vb uint8) {
		m, ok := grpcMethodOf(verb(vb))
		if !ok {
			return
		}
		text, err := m.unpack(raw)
		if err != nil {
			return
		}
		if !json.Valid(text) {
			t.Fatalf("no JSON: %s", text)
		}
		if result, failed, err := b.open(operation{verb: verb(vb)}, text); err == nil && (failed != nil || !bytes.Equal(result, text)) {
			t.Fatalf("opened as %s, %v", result, failed)
		}
	})
}

func BenchmarkGRPCMessages(b *testing.B) {
	m, _ := grpcMethodOf(verbSend)
	params := fmt.Appendf(nil, `{"message":{"messageId":"msg-task-1","role":"ROLE_USER","parts":[{"text":"%s"}]}}`, strings.Repeat("word ", 190))
	answer := mustMarshal(b, &a2apb.SendMessageResponse{Payload: &a2apb.SendMessageResponse_Task{Task: &a2apb.Task{
		Id: "t9", ContextId: "c4", Status: &a2apb.TaskStatus{State: a2apb.TaskState_TASK_STATE_COMPLETED},
		Artifacts: []*a2apb.Artifact{{ArtifactId: "a1", Parts: []*a2apb.Part{{Content: &a2apb.Part_Text{Text: strings.Repeat("word ", 180)}}}}},
	}}})
	b.Run("pack", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.pack(params); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unpack", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.unpack(answer); err != nil {
				b.Fatal(err)
			}
		}
	})
}
