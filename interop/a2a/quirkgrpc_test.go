package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge/a2a/a2apb"
)

// dial opens a connection to an agent's gRPC server, past Parley.
func dial(t *testing.T, address string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestQuirkGRPC calls without a version, and has an executor throw: the servers
// say different things. A run names the version, and fails with the code that it
// fails with over JSON-RPC too.
func TestQuirkGRPC(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for k, want := range map[kind]string{
		go10: "without a version OK, crash Internal", python10: "without a version OK, crash Unknown",
		js10: "without a version FailedPrecondition, crash OK",
	} {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			r, a := k.routes()[2], sharedAgent(t, k)
			agent := a2apb.NewA2AServiceClient(dial(t, a.where["grpc"]))
			send := func(ctx context.Context, text string) string {
				_, err := agent.SendMessage(ctx, &a2apb.SendMessageRequest{Message: &a2apb.Message{
					MessageId: unique("grpc"), Role: a2apb.Role_ROLE_USER,
					Parts: []*a2apb.Part{{Content: &a2apb.Part_Text{Text: text}}},
				}})
				return status.Code(err).String()
			}
			versioned := metadata.AppendToOutgoingContext(t.Context(), "a2a-version", "1.0")
			if code := send(versioned, "echo one"); code != "OK" {
				t.Errorf("with a version %s", code)
			}
			if got := fmt.Sprintf("without a version %s, crash %s", send(t.Context(), "echo one"), send(versioned, "crash")); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			name := w.register(t, registration{url: r.url(a), config: r.pins(nil)})
			if o := done(t, w.call(t, name, "echo one")); o.Text != "one" {
				t.Errorf("output %s", o.raw)
			}
			e := failed(t, w.call(t, name, "crash"))
			if wantEnd := r.crashed("nonblocking", false); ending(e) != wantEnd {
				t.Errorf("ended as %s, want %s: %+v", ending(e), wantEnd, e)
			}
		})
	}
}

// rawBytes passes messages as bytes.
type rawBytes struct{}

func (rawBytes) Name() string                  { return "proto" }
func (rawBytes) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawBytes) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(b)
	return nil
}

// lengthed is a field of protobuf that has bytes, fewer than 128.
func lengthed(number byte, b []byte) []byte {
	return append([]byte{number<<3 | 2, byte(len(b))}, b...)
}

// TestQuirkGRPC03 sends over gRPC of A2A 0.3 without a word on waiting: Python
// takes it for a wish not to wait, unlike over JSON-RPC; Go waits. Parley does
// not speak it, and says so when such an agent is registered.
func TestQuirkGRPC03(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for k, waits := range map[kind]bool{python03: false, go03: true} {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			a, key := sharedAgent(t, k), unique("hold")
			message := append(lengthed(1, []byte(unique("msg"))), 4<<3, 1) // message_id, role
			message = append(message, lengthed(5, lengthed(1, []byte("hold "+key)))...)
			request := lengthed(1, message)
			var answer []byte
			answered := make(chan error, 1)
			conn := dial(t, a.where["grpc03"], grpc.WithDefaultCallOptions(grpc.ForceCodec(rawBytes{})))
			go func() { answered <- conn.Invoke(t.Context(), "/a2a.v1.A2AService/SendMessage", &request, &answer) }()
			if waits {
				eventually(t, "the message to arrive", func() bool { return strings.Contains(a.everything(t), key) })
				a.release(t, key)
			}
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
			a.release(t, key)
			if done := bytes.Contains(answer, []byte("held "+key)); done != waits {
				t.Errorf("waited %v, want %v: %q", done, waits, answer)
			}
			config := json.RawMessage(`{"a2a":"0.3","binding":"GRPC"}`)
			_, err := w.AddAgent(t.Context(), parley.AgentSpec{
				Name: &key, URL: new("http://" + a.where["grpc03"]), Protocol: new(parley.ProtocolJSONRPC), ProtocolConfig: config,
			})
			if err == nil || !strings.Contains(err.Error(), "only A2A 1.0 is spoken here") {
				t.Errorf("registering gives %v", err)
			}
		})
	}
}

// TestQuirkREST asks over HTTP+JSON: subscriptions are taken with two methods,
// answers have two labels, and errors one form. Parley subscribes with GET.
func TestQuirkREST(t *testing.T) {
	t.Parallel()
	for k, media := range map[kind]string{
		go10: "application/json", python10: "application/a2a+json", js10: "application/a2a+json",
	} {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			r, a := k.routes()[1], sharedAgent(t, k)
			never(t, r, "POST to subscribe", func(s spoken) bool {
				return s.verb == http.MethodPost && strings.HasSuffix(s.path, ":subscribe")
			})
			do := func(method, path string) *http.Response {
				req, err := http.NewRequestWithContext(t.Context(), method, r.url(a)+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("A2A-Version", "1.0")
				req.Header.Set("Content-Type", "application/json")
				resp, err := pastParley().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				return resp
			}
			key := unique("rest")
			id := k.routes()[0].leave(t, a, "hold "+key).ID
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				resp := do(method, "/tasks/"+id+":subscribe")
				if got := (reply{header: resp.Header}).media(); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
					t.Errorf("%s to subscribe gives %d %s", method, resp.StatusCode, got)
				}
				_ = resp.Body.Close()
			}
			a.release(t, key)
			if got := readAll(t, do(http.MethodGet, "/tasks/"+id)); got.media() != media || got.status != http.StatusOK { //nolint:bodyclose // readAll does
				t.Errorf("a task comes as %d %s, want %s", got.status, got.media(), media)
			}
			answer := readAll(t, do(http.MethodGet, "/tasks/nobody")) //nolint:bodyclose // readAll does
			var body struct {
				Error struct {
					Code            int
					Status, Message string
					Details         []struct{ Reason string }
				}
			}
			if err := json.Unmarshal([]byte(answer.body), &body); err != nil || answer.status != 404 || body.Error.Code != 404 ||
				body.Error.Status != "NOT_FOUND" || len(body.Error.Details) != 1 || body.Error.Details[0].Reason != "TASK_NOT_FOUND" {
				t.Errorf("error %d %s", answer.status, answer.body)
			}
		})
	}
}

// TestUnwritableList gives Go's agent a data part that is a list: from then
// on its list of tasks fails over gRPC, whoever asks. A run whose answer is lost
// is found all the same.
func TestUnwritableList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	routes := go10.routes()
	a := ownAgent(t, go10, setup{})
	routes[0].mail(t, a, "", map[string]any{"parts": []any{map[string]any{"text": "data"}, map[string]any{"data": []int{1, 2}}}})
	agent := a2apb.NewA2AServiceClient(dial(t, a.where["grpc"]))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "a2a-version", "1.0")
	if _, err := agent.ListTasks(ctx, &a2apb.ListTasksRequest{}); status.Code(err) != codes.Internal {
		t.Errorf("the list of tasks: %v", err)
	}
	url, lost := routes[2].loseAnswer(t, a)
	name := w.register(t, registration{url: url, config: routes[2].pins(nil), policy: parley.OutcomeLookup})
	run := w.call(t, name, "echo once")
	if o := done(t, run); o.Text != "once" || lost() != 1 {
		t.Errorf("output %s, %d answers were lost", o.raw, lost())
	}
	if executions, _ := a.entries(t, run.ID); len(executions) != 1 {
		t.Errorf("executed %d times", len(executions))
	}
}
