package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/a2apb"
)

// TestGRPCAdapter has a whole conversation over gRPC, as the bridge holds it:
// send, stream, poll, look-up, answer and cancel, and errors.
func TestGRPCAdapter(t *testing.T) {
	agent := &longAgent{tasks: map[string]*a2apb.Task{}, refusal: withDetails(t, codes.InvalidArgument, "not this", reason("CONTENT_TYPE_NOT_SUPPORTED"))}
	rig := newGRPCRig(t, agent.serve())
	adapter := New(Options{Exchange: bridge.NewExchange(bridge.ExchangeConfig{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return rig.exchange.Dial(ctx, address, false)
		},
	})})
	defer adapter.Close()
	record := parley.Agent{
		Name: "scout", URL: "http://scout.example/", Protocol: parley.ProtocolJSONRPC,
		ProtocolConfig: json.RawMessage(`{"a2a":"1.0","binding":"GRPC","url":"scout.example:50051","stream":"on"}`),
	}
	task := parley.Task{ID: "task-1", ContextID: "c4", Input: json.RawMessage(`"Sum Q3"`), CorrelationID: "corr-1", Step: "step", Attempt: 1}
	ctx := t.Context()
	quiet := func(bridge.Report) {}

	out, err := adapter.Call(ctx, task, record, quiet)
	if err != nil || out.Disposition != bridge.Accepted || out.AgentTaskID != "t-msg-task-1" {
		t.Fatalf("call: %+v, %v", out, err)
	}
	at := bridge.AgentTask{ID: out.AgentTaskID, ContextID: out.ContextID, Endpoint: out.Endpoint, Version: out.Version}
	if out, err = adapter.Poll(ctx, task, record, at); err != nil || out.Disposition != bridge.Accepted {
		t.Errorf("poll: %+v, %v", out, err)
	}
	if out, err = adapter.Find(ctx, task, record); err != nil || out.Disposition != bridge.Accepted || out.AgentTaskID != at.ID {
		t.Errorf("find: %+v, %v", out, err)
	}
	if out, err = adapter.Subscribe(ctx, task, record, at); err != nil || out.Disposition != bridge.Accepted || out.Stream == nil {
		t.Fatalf("subscribe: %+v, %v", out, err)
	}
	var chunks []string
	listened := out.Stream.Listen(ctx, func(r bridge.Report) {
		if r.Chunk != nil {
			chunks = append(chunks, r.Chunk.Text)
		}
	})
	out.Stream.Close()
	if listened.Question == nil || len(chunks) != 1 || chunks[0] != "half" {
		t.Errorf("listen: %+v, chunks %q", listened, chunks)
	}
	out, err = adapter.Answer(ctx, task, record, bridge.TaskReply{At: at, Number: 1, Reply: parley.Reply{Text: "yes"}})
	if err != nil || out.Disposition != bridge.Answered || !strings.Contains(string(out.Result.Output), "done: yes") {
		t.Errorf("answer: %s, %+v, %v", out.Result.Output, out, err)
	}
	if out, err = adapter.Poll(ctx, task, record, at); err != nil || out.Disposition != bridge.Answered || out.Result.Outcome != parley.OutcomeOK {
		t.Errorf("last poll: %+v, %v", out, err)
	}
	if out, err = adapter.Poll(ctx, task, record, bridge.AgentTask{ID: "t-none"}); err != nil || out.Result.Err == nil || out.Result.Err.Code != parley.CodeNotFound && out.Result.Err.Code != parley.CodeOutcomeUnknown {
		t.Errorf("poll for an unknown task: %+v, %v", out, err)
	}
	second := task
	second.ID = "task-2"
	if out, err = adapter.Call(ctx, second, record, quiet); err != nil || out.Disposition != bridge.Accepted {
		t.Fatalf("second call: %+v, %v", out, err)
	}
	out, err = adapter.Cancel(ctx, second, record, bridge.AgentTask{ID: out.AgentTaskID, ContextID: out.ContextID, Endpoint: out.Endpoint, Version: out.Version})
	if err != nil || out.Disposition != bridge.Answered || out.Result.Outcome != parley.OutcomeCancelled {
		t.Errorf("cancel: %+v, %v", out, err)
	}
	third := task
	third.ID, third.Input = "task-3", json.RawMessage(`"refuse"`)
	out, err = adapter.Call(ctx, third, record, quiet)
	if err != nil || out.Disposition != bridge.Answered || out.Result.Err == nil || out.Result.Err.Code != parley.CodeAgentRejected ||
		!strings.Contains(out.Result.Err.Message, "gRPC Error -32005: not this") {
		t.Errorf("refused call: %+v, %v", out.Result.Err, err)
	}
	rig.idle()
}

// longAgent is an agent whose tasks wait for an answer before they complete.
type longAgent struct {
	refusal error // of an input that it does not want

	mu    sync.Mutex
	tasks map[string]*a2apb.Task
}

func (a *longAgent) serve() *grpcAgent {
	text := func(s string) []*a2apb.Part { return []*a2apb.Part{{Content: &a2apb.Part_Text{Text: s}}} }
	find := func(id string) (*a2apb.Task, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if task := a.tasks[id]; task != nil {
			return task, nil
		}
		return nil, status.Error(codes.NotFound, "no such task")
	}
	put := func(task *a2apb.Task) *a2apb.Task {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.tasks[task.GetId()] = task
		return task
	}
	return &grpcAgent{
		send: func(_ context.Context, r *a2apb.SendMessageRequest) (*a2apb.SendMessageResponse, error) {
			m := r.GetMessage()
			task := &a2apb.Task{Id: "t-" + m.GetMessageId(), ContextId: "c4", History: []*a2apb.Message{m}, Status: &a2apb.TaskStatus{State: a2apb.TaskState_TASK_STATE_WORKING}}
			switch {
			case m.GetParts()[0].GetText() == "refuse":
				return nil, a.refusal
			case m.GetTaskId() != "":
				task.Id = m.GetTaskId()
				task.Status.State = a2apb.TaskState_TASK_STATE_COMPLETED
				task.Artifacts = []*a2apb.Artifact{{ArtifactId: "a1", Parts: text("done: " + m.GetParts()[0].GetText())}}
			}
			return &a2apb.SendMessageResponse{Payload: &a2apb.SendMessageResponse_Task{Task: put(task)}}, nil
		},
		get: func(_ context.Context, r *a2apb.GetTaskRequest) (*a2apb.Task, error) { return find(r.GetId()) },
		list: func(_ context.Context, r *a2apb.ListTasksRequest) (*a2apb.ListTasksResponse, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			out := &a2apb.ListTasksResponse{}
			for _, task := range a.tasks {
				if task.GetContextId() == r.GetContextId() {
					out.Tasks = append(out.Tasks, task)
				}
			}
			return out, nil
		},
		cancel: func(_ context.Context, r *a2apb.CancelTaskRequest) (*a2apb.Task, error) {
			return put(&a2apb.Task{Id: r.GetId(), ContextId: "c4", Status: &a2apb.TaskStatus{State: a2apb.TaskState_TASK_STATE_CANCELED}}), nil
		},
		subscribe: func(r *a2apb.SubscribeToTaskRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
			task, err := find(r.GetId())
			if err != nil {
				return err
			}
			asks := &a2apb.TaskStatus{State: a2apb.TaskState_TASK_STATE_INPUT_REQUIRED, Message: &a2apb.Message{MessageId: "q", Role: a2apb.Role_ROLE_AGENT, Parts: text("go on?")}}
			return errors.Join(
				s.Send(&a2apb.StreamResponse{Payload: &a2apb.StreamResponse_Task{Task: task}}),
				s.Send(&a2apb.StreamResponse{Payload: &a2apb.StreamResponse_ArtifactUpdate{ArtifactUpdate: &a2apb.TaskArtifactUpdateEvent{
					TaskId: r.GetId(), ContextId: "c4", Artifact: &a2apb.Artifact{ArtifactId: "a1", Parts: text("half")},
				}}}),
				s.Send(&a2apb.StreamResponse{Payload: &a2apb.StreamResponse_StatusUpdate{StatusUpdate: &a2apb.TaskStatusUpdateEvent{TaskId: r.GetId(), ContextId: "c4", Status: asks}}}),
			)
		},
	}
}

// TestGRPCNewState: a state that the definition does not have yet is a number
// without a name. It is no success, and nothing that goes on.
func TestGRPCNewState(t *testing.T) {
	agent := &grpcAgent{send: func(context.Context, *a2apb.SendMessageRequest) (*a2apb.SendMessageResponse, error) {
		return &a2apb.SendMessageResponse{Payload: &a2apb.SendMessageResponse_Task{Task: &a2apb.Task{
			Id: "t1", Status: &a2apb.TaskStatus{State: a2apb.TaskState(99)},
		}}}, nil
	}}
	rig := newGRPCRig(t, agent)
	adapter := New(Options{Exchange: rig.exchange})
	defer adapter.Close()
	record := parley.Agent{Name: "scout", URL: "http://scout.example", ProtocolConfig: json.RawMessage(`{"a2a":"1.0","binding":"GRPC"}`)}
	task := parley.Task{ID: "task-1", Input: json.RawMessage(`"Sum Q3"`)}
	out, err := adapter.Call(t.Context(), task, record, nil)
	if err != nil || out.Disposition != bridge.Answered || out.Result.Outcome != parley.OutcomeError || out.Result.Err.Message != "Task state: unknown" {
		t.Errorf("%+v, %v", out, err)
	}
}
