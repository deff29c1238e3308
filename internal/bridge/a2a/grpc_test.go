package a2a

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/a2apb"
)

func workingTask() *a2apb.Task {
	return &a2apb.Task{Id: "t9", ContextId: "c4", Status: &a2apb.TaskStatus{
		State:     a2apb.TaskState_TASK_STATE_WORKING,
		Timestamp: timestamppb.New(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)),
	}}
}

const workingJSON = `{"id":"t9","contextId":"c4","status":{"state":"TASK_STATE_WORKING","timestamp":"2026-11-20T10:00:00Z"}}`

// TestGRPCVerbs sends every operation that has one answer: the agent gets what
// the params say, and the reader gets the JSON of the 1.0 dialect.
func TestGRPCVerbs(t *testing.T) {
	var got proto.Message
	agent := &grpcAgent{
		send: func(_ context.Context, r *a2apb.SendMessageRequest) (*a2apb.SendMessageResponse, error) {
			got = r
			return &a2apb.SendMessageResponse{Payload: &a2apb.SendMessageResponse_Task{Task: workingTask()}}, nil
		},
		get: func(_ context.Context, r *a2apb.GetTaskRequest) (*a2apb.Task, error) {
			got = r
			return &a2apb.Task{
				Id: "t9", Status: &a2apb.TaskStatus{State: a2apb.TaskState_TASK_STATE_COMPLETED},
				Artifacts: []*a2apb.Artifact{{ArtifactId: "a1", Parts: []*a2apb.Part{
					{Content: &a2apb.Part_Text{Text: "42 <b>"}},
					{Content: &a2apb.Part_Raw{Raw: []byte{0, 255}}, MediaType: "image/png", Filename: "x.png"},
					{Content: &a2apb.Part_Data{Data: structpb.NewNumberValue(42)}},
				}}},
			}, nil
		},
		list: func(_ context.Context, r *a2apb.ListTasksRequest) (*a2apb.ListTasksResponse, error) {
			got = r
			return &a2apb.ListTasksResponse{Tasks: []*a2apb.Task{workingTask()}, PageSize: 10, TotalSize: 1}, nil
		},
		cancel: func(_ context.Context, r *a2apb.CancelTaskRequest) (*a2apb.Task, error) {
			got = r
			return &a2apb.Task{Id: "t9", Status: &a2apb.TaskStatus{State: a2apb.TaskState_TASK_STATE_CANCELED}}, nil
		},
	}
	rig := newGRPCRig(t, agent)
	for _, tt := range []struct {
		verb         verb
		params, want string
		asked        proto.Message
	}{
		{
			verbSend, `{"tenant":"acme",` + sendParams[1:], `{"task":` + workingJSON + `}`,
			&a2apb.SendMessageRequest{
				Tenant: "acme",
				Message: &a2apb.Message{
					MessageId: "msg-task-1", Role: a2apb.Role_ROLE_USER,
					Parts: []*a2apb.Part{{Content: &a2apb.Part_Text{Text: "Sum Q3"}}},
				},
				Configuration: &a2apb.SendMessageConfiguration{ReturnImmediately: true},
			},
		},
		{
			verbGet, `{"id":"t9","historyLength":0}`,
			`{"id":"t9","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a1","parts":[{"text":"42 <b>"},{"raw":"AP8=","filename":"x.png","mediaType":"image/png"},{"data":42}]}]}`,
			&a2apb.GetTaskRequest{Id: "t9", HistoryLength: new(int32)},
		},
		{
			verbList, `{"contextId":"c4","pageSize":10,"statusTimestampAfter":"2026-11-20T09:00:00Z"}`,
			`{"tasks":[` + workingJSON + `],"pageSize":10,"totalSize":1}`,
			&a2apb.ListTasksRequest{ContextId: "c4", PageSize: new(int32(10)), StatusTimestampAfter: timestamppb.New(time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC))},
		},
		{verbCancel, taskParams, `{"id":"t9","status":{"state":"TASK_STATE_CANCELED"}}`, &a2apb.CancelTaskRequest{Id: "t9"}},
	} {
		result, f, err := rig.do(t.Context(), tt.verb, tt.params)
		if err != nil || f != nil {
			t.Errorf("%v: failure %v, error %v", tt.verb, f, err)
			continue
		}
		if diff := cmp.Diff(tt.want, result); diff != "" {
			t.Errorf("%v: result (-want +got):\n%s", tt.verb, diff)
		}
		if !proto.Equal(tt.asked, got) {
			t.Errorf("%v: the agent got %v, want %v", tt.verb, got, tt.asked)
		}
	}
	if n := rig.dials.Load(); n != 1 {
		t.Errorf("%d connections for one agent", n)
	}
}

func statusEvent(state a2apb.TaskState, text string) *a2apb.StreamResponse {
	return &a2apb.StreamResponse{Payload: &a2apb.StreamResponse_StatusUpdate{StatusUpdate: &a2apb.TaskStatusUpdateEvent{
		TaskId: "t9", ContextId: "c4", Status: &a2apb.TaskStatus{State: state, Message: &a2apb.Message{
			MessageId: "m", Role: a2apb.Role_ROLE_AGENT, Parts: []*a2apb.Part{{Content: &a2apb.Part_Text{Text: text}}},
		}},
	}}}
}

// TestGRPCStream reads a stream to the agent's end, both of a send and of a
// subscription.
func TestGRPCStream(t *testing.T) {
	script := func(s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
		return errors.Join(
			s.Send(&a2apb.StreamResponse{Payload: &a2apb.StreamResponse_Task{Task: workingTask()}}),
			s.Send(&a2apb.StreamResponse{Payload: &a2apb.StreamResponse_ArtifactUpdate{ArtifactUpdate: &a2apb.TaskArtifactUpdateEvent{
				TaskId: "t9", ContextId: "c4", Append: true, LastChunk: true,
				Artifact: &a2apb.Artifact{ArtifactId: "a1", Parts: []*a2apb.Part{{Content: &a2apb.Part_Text{Text: "chunk"}}}},
			}}}),
			s.Send(statusEvent(a2apb.TaskState_TASK_STATE_COMPLETED, "done")),
		)
	}
	rig := newGRPCRig(t, &grpcAgent{
		events: func(_ *a2apb.SendMessageRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
			return script(s)
		},
		subscribe: func(_ *a2apb.SubscribeToTaskRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
			return script(s)
		},
	})
	want := []string{
		`{"task":` + workingJSON + `}`,
		`{"artifactUpdate":{"taskId":"t9","contextId":"c4","artifact":{"artifactId":"a1","parts":[{"text":"chunk"}]},"append":true,"lastChunk":true}}`,
		`{"statusUpdate":{"taskId":"t9","contextId":"c4","status":{"state":"TASK_STATE_COMPLETED","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"done"}]}}}}`,
	}
	for vb, params := range map[verb]string{verbStream: sendParams, verbSubscribe: taskParams} {
		s, _, err := rig.begin(t.Context(), vb, params)
		if err != nil {
			t.Fatalf("%v: %v", vb, err)
		}
		got, err := drain(t.Context(), s)
		if err != nil {
			t.Errorf("%v: %v", vb, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: events (-want +got):\n%s", vb, diff)
		}
		for _, text := range got {
			if result, f, err := rig.open(rig.op(vb, params), []byte(text)); string(result) != text || f != nil || err != nil {
				t.Errorf("%v: open of an event gives %s, %v, %v", vb, result, f, err)
			}
		}
		if _, err := s.next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("%v: after the end: %v", vb, err)
		}
		s.close()
		s.close()
	}
}

// TestGRPCStreamRefused: an agent without streams answers with a status, which
// is a reply and no stream.
func TestGRPCStreamRefused(t *testing.T) {
	rig := newGRPCRig(t, &grpcAgent{
		events: func(*a2apb.SendMessageRequest, grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
			return status.Error(codes.Unimplemented, "no streams here")
		},
	})
	s, reply, err := rig.begin(t.Context(), verbStream, sendParams)
	if s != nil || err != nil {
		t.Fatalf("stream %v, error %v", s, err)
	}
	_, f, err := rig.open(rig.op(verbStream, sendParams), reply.Body)
	if err != nil || f == nil || f.code != codeUnsupported || f.message != "no streams here" {
		t.Errorf("failure %+v, error %v", f, err)
	}
	rig.idle()
}

// lateHeads tells of heads only when until is closed.
type lateHeads struct {
	grpcWatch
	until chan struct{}
}

func (w lateHeads) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.InHeader); ok {
		<-w.until
	}
	w.grpcWatch.HandleRPC(ctx, s)
}

// TestGRPCFirstEvent: the first event is not taken for the status of an agent
// without streams, however late the watch is told that the stream has begun.
func TestGRPCFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGRPCRig(t, &grpcAgent{
			subscribe: func(_ *a2apb.SubscribeToTaskRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
				return s.Send(statusEvent(a2apb.TaskState_TASK_STATE_WORKING, "one"))
			},
		})
		until := make(chan struct{})
		rig.conns.watch = lateHeads{until: until}
		s, reply, err := rig.begin(t.Context(), verbSubscribe, taskParams)
		close(until)
		if s == nil {
			t.Fatalf("no stream: %s, %v", reply.Body, err)
		}
		defer s.close()
		if all, err := drain(t.Context(), s); err != nil || len(all) != 1 {
			t.Errorf("events %q, %v", all, err)
		}
	})
}

// idle asserts that no call holds a connection.
func (r *grpcRig) idle() {
	r.t.Helper()
	r.conns.mu.Lock()
	defer r.conns.mu.Unlock()
	for _, c := range r.conns.all {
		if c.users != 0 {
			r.t.Errorf("%d calls hold the connection", c.users)
		}
	}
}

// TestGRPCStreamEnds: whatever ends a stream after it has begun says nothing
// about the task, but for the agent's own error.
func TestGRPCStreamEnds(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	rig := newGRPCRig(t, &grpcAgent{
		subscribe: func(r *a2apb.SubscribeToTaskRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
			if err := s.Send(statusEvent(a2apb.TaskState_TASK_STATE_WORKING, "one")); err != nil {
				return err
			}
			switch r.GetId() {
			case "fails":
				return status.Error(codes.Internal, "the model is gone")
			case "expires":
				return status.Error(codes.Unauthenticated, "expired")
			}
			select {
			case <-s.Context().Done():
			case <-hold:
			}
			return s.Context().Err()
		},
	})
	opened := func(t *testing.T, id string) eventSource {
		s, _, err := rig.begin(t.Context(), verbSubscribe, `{"id":"`+id+`"}`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.next(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	t.Run("by the agent's error", func(t *testing.T) {
		s := opened(t, "fails")
		defer s.close()
		event, err := s.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, f, err := rig.open(rig.op(verbSubscribe, taskParams), event)
		if err != nil || f == nil || f.code != codeInternal || f.message != "the model is gone" {
			t.Errorf("failure %+v, error %v", f, err)
		}
		if _, err := s.next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("after the error: %v", err)
		}
	})
	t.Run("by a lost identity", func(t *testing.T) {
		s := opened(t, "expires")
		defer s.close()
		_, err := s.next(t.Context())
		left(t, err, bridge.Lost, parley.CodeAgentRejected, false)
	})
	t.Run("by close", func(t *testing.T) {
		s := opened(t, "goes on")
		var wg sync.WaitGroup
		wg.Go(s.close)
		_, err := s.next(t.Context())
		wg.Wait()
		left(t, err, bridge.Lost, parley.CodeCancelled, false)
	})
	t.Run("by the context of next", func(t *testing.T) {
		s := opened(t, "goes on")
		defer s.close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.next(ctx)
		left(t, err, bridge.Lost, parley.CodeCancelled, false)
	})
	t.Run("by close of the binding", func(t *testing.T) {
		s := opened(t, "goes on")
		defer s.close()
		rig.close()
		_, err := s.next(t.Context())
		left(t, err, bridge.Lost, parley.CodeAgentUnavailable, true)
		_, _, err = rig.do(t.Context(), verbGet, taskParams)
		left(t, err, bridge.NotSent, parley.CodeAgentUnavailable, true)
	})
	rig.idle()
}

// TestGRPCStreamOutlives: the context of the opening does not end a stream, and
// the agent's timeout does not either.
func TestGRPCStreamOutlives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGRPCRig(t, &grpcAgent{
			subscribe: func(_ *a2apb.SubscribeToTaskRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
				if _, ok := s.Context().Deadline(); ok {
					return status.Error(codes.Internal, "a stream was sent with a deadline")
				}
				err := s.Send(statusEvent(a2apb.TaskState_TASK_STATE_WORKING, "one"))
				time.Sleep(time.Hour)
				return errors.Join(err, s.Send(statusEvent(a2apb.TaskState_TASK_STATE_COMPLETED, "two")))
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		s, reply, err := rig.begin(ctx, verbSubscribe, taskParams)
		cancel()
		if s == nil {
			t.Fatalf("no stream: %s, %v", reply.Body, err)
		}
		defer s.close()
		if all, err := drain(t.Context(), s); err != nil || len(all) != 2 {
			t.Errorf("%d events, %v", len(all), err)
		}
	})
}

// TestGRPCTimes: what an exchange that takes too long has left behind.
func TestGRPCTimes(t *testing.T) {
	slow := func(ctx context.Context, _ *a2apb.SendMessageRequest) (*a2apb.SendMessageResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	silent := func(_ *a2apb.SendMessageRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
		<-s.Context().Done()
		return s.Context().Err()
	}
	bubble := func(name string, f func(t *testing.T, rig *grpcRig)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newGRPCRig(t, &grpcAgent{send: slow, events: silent})) })
		})
	}
	bubble("the agent's timeout", func(t *testing.T, rig *grpcRig) {
		rig.agent.Timeout = 7 * time.Second
		begun := time.Now()
		_, _, err := rig.do(t.Context(), verbSend, sendParams)
		x := left(t, err, bridge.Lost, parley.CodeTimeout, true)
		if took := time.Since(begun); took != 7*time.Second || limitOf(x) != "exchange" || !strings.Contains(x.Err.Message, "7s") {
			t.Errorf("after %v: %v (limit %q)", took, x, limitOf(x))
		}
	})
	bubble("a stream that does not begin", func(t *testing.T, rig *grpcRig) {
		rig.agent.Timeout = 7 * time.Second
		begun := time.Now()
		_, _, err := rig.begin(t.Context(), verbStream, sendParams)
		left(t, err, bridge.Lost, parley.CodeTimeout, true)
		if took := time.Since(begun); took != 7*time.Second {
			t.Errorf("after %v", took)
		}
		rig.idle()
	})
	bubble("the time of the attempt", func(t *testing.T, rig *grpcRig) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := rig.do(ctx, verbSend, sendParams)
		if x := left(t, err, bridge.Lost, parley.CodeTimeout, true); limitOf(x) != "attempt_timeout" {
			t.Errorf("limit %q", limitOf(x))
		}
	})
	bubble("given up", func(t *testing.T, rig *grpcRig) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, _, err := rig.do(ctx, verbSend, sendParams)
		left(t, err, bridge.Lost, parley.CodeCancelled, false)
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begun := time.Now()
		_, _, err = rig.begin(ctx, verbStream, sendParams)
		left(t, err, bridge.Lost, parley.CodeCancelled, false)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("after %v", took)
		}
	})
	bubble("given up before", func(t *testing.T, rig *grpcRig) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := rig.do(ctx, verbSend, sendParams)
		left(t, err, bridge.NotSent, parley.CodeCancelled, false)
	})
}

// tardy is a context whose timer has not fired at its deadline, which is over.
type tardy struct{ context.Context } //nolint:containedctx // it is one

func (tardy) Deadline() (time.Time, bool) { return time.Now(), true }

// TestGRPCDeadlineAnswered: the agent is told the time that it has; when it
// answers that this is up, and does so before the timer on this side, the error
// is the same as if it had said nothing.
func TestGRPCDeadlineAnswered(t *testing.T) {
	rig := newGRPCRig(t, &grpcAgent{})
	late := tardy{t.Context()}
	for limit, c := range map[string]*grpcCall{
		"exchange":        {outer: t.Context(), inner: late},
		"attempt_timeout": {outer: late, inner: late},
	} {
		c.op, c.timeout, c.trace = rig.op(verbSend, sendParams), 7*time.Second, &grpcTrace{}
		c.method, _ = grpcMethodOf(verbSend)
		c.trace.sent.Store(true)
		c.trace.end.Store(true)
		_, err := c.judge(status.Error(codes.DeadlineExceeded, "context deadline exceeded"))
		if x := left(t, err, bridge.Lost, parley.CodeTimeout, true); limitOf(x) != limit {
			t.Errorf("%v: limit %q, want %q", x, limitOf(x), limit)
		}
	}
}
