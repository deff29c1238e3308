package a2a

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/internal/bridge/a2a/a2apb"
)

func withDetails(t *testing.T, c codes.Code, message string, details ...protoadapt.MessageV1) error {
	t.Helper()
	st, err := status.New(c, message).WithDetails(details...)
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

func reason(s string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Reason: s, Domain: a2aDomain, Metadata: map[string]string{"taskId": "t9"}}
}

// refusing is an agent that answers everything with err.
func refusing(err error) *grpcAgent {
	return &grpcAgent{
		send: func(context.Context, *a2apb.SendMessageRequest) (*a2apb.SendMessageResponse, error) { return nil, err },
		events: func(*a2apb.SendMessageRequest, grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
			return err
		},
		get:    func(context.Context, *a2apb.GetTaskRequest) (*a2apb.Task, error) { return nil, err },
		list:   func(context.Context, *a2apb.ListTasksRequest) (*a2apb.ListTasksResponse, error) { return nil, err },
		cancel: func(context.Context, *a2apb.CancelTaskRequest) (*a2apb.Task, error) { return nil, err },
		subscribe: func(*a2apb.SubscribeToTaskRequest, grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
			return err
		},
	}
}

// TestGRPCErrors: every error of A2A keeps its code whatever status carries it
// (1.0.0 and 1.0.1 differ, A2A 1.0 §5.4), and without its reason the status and
// the operation tell.
func TestGRPCErrors(t *testing.T) {
	every := []verb{verbSend, verbStream, verbGet, verbList, verbCancel, verbSubscribe}
	for _, tt := range []struct {
		name  string
		err   error
		verbs []verb
		want  int64
	}{
		{"task not found", withDetails(t, codes.NotFound, "m", reason("TASK_NOT_FOUND")), every, codeTaskNotFound},
		{"not cancelable", withDetails(t, codes.FailedPrecondition, "m", reason("TASK_NOT_CANCELABLE")), every, codeNotCancelable},
		{"no push 1.0.1", withDetails(t, codes.FailedPrecondition, "m", reason("PUSH_NOTIFICATION_NOT_SUPPORTED")), every, codePushNotSupported},
		{"no push 1.0.0", withDetails(t, codes.Unimplemented, "m", reason("PUSH_NOTIFICATION_NOT_SUPPORTED")), every, codePushNotSupported},
		{"unsupported 1.0.1", withDetails(t, codes.FailedPrecondition, "m", reason("UNSUPPORTED_OPERATION")), every, codeUnsupported},
		{"unsupported 1.0.0", withDetails(t, codes.Unimplemented, "m", reason("UNSUPPORTED_OPERATION")), every, codeUnsupported},
		{"content type", withDetails(t, codes.InvalidArgument, "m", reason("CONTENT_TYPE_NOT_SUPPORTED")), every, codeContentType},
		{"agent response", withDetails(t, codes.Internal, "m", reason("INVALID_AGENT_RESPONSE")), every, codeInvalidResponse},
		{"no extended card", withDetails(t, codes.FailedPrecondition, "m", reason("EXTENDED_AGENT_CARD_NOT_CONFIGURED")), every, codeNoExtendedCard},
		{"extension", withDetails(t, codes.FailedPrecondition, "m", reason("EXTENSION_SUPPORT_REQUIRED")), every, codeExtensionRequired},
		{"version 1.0.1", withDetails(t, codes.FailedPrecondition, "m", reason("VERSION_NOT_SUPPORTED")), every, codeVersionNotSupported},
		{"version 1.0.0", withDetails(t, codes.Unimplemented, "m", reason("VERSION_NOT_SUPPORTED")), every, codeVersionNotSupported},
		{"an odd status for a reason", withDetails(t, codes.Unavailable, "m", reason("TASK_NOT_FOUND")), every, codeTaskNotFound},
		{"somebody else's reason", withDetails(t, codes.NotFound, "m", &errdetails.ErrorInfo{Reason: "TASK_NOT_CANCELABLE", Domain: "example.org"}), every, codeTaskNotFound},

		{"NOT_FOUND", status.Error(codes.NotFound, "m"), every, codeTaskNotFound},
		{"INVALID_ARGUMENT", status.Error(codes.InvalidArgument, "m"), every, codeInvalidParams},
		{"INTERNAL", status.Error(codes.Internal, "m"), every, codeInternal},
		{"ABORTED", status.Error(codes.Aborted, "m"), every, codeInternal},
		{"DATA_LOSS", status.Error(codes.DataLoss, "m"), every, codeInternal},
		{"FAILED_PRECONDITION of a cancel", status.Error(codes.FailedPrecondition, "m"), []verb{verbCancel}, codeNotCancelable},
		{"FAILED_PRECONDITION", status.Error(codes.FailedPrecondition, "m"), []verb{verbSend, verbStream, verbGet, verbSubscribe}, codeUnsupported},
		{"UNIMPLEMENTED", status.Error(codes.Unimplemented, "m"), []verb{verbSend, verbGet, verbList, verbCancel}, codeMethodNotFound},
		{"UNIMPLEMENTED of a stream", status.Error(codes.Unimplemented, "m"), []verb{verbStream, verbSubscribe}, codeUnsupported},
		{"no such service", status.Error(codes.Unimplemented, "unknown service m"), every, codeMethodNotFound},
		{"UNKNOWN with details", withDetails(t, codes.Unknown, "m", &errdetails.DebugInfo{Detail: "trace"}), every, codeInternal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rig := newGRPCRig(t, refusing(tt.err))
			for _, vb := range tt.verbs {
				f, err := rig.failure(vb)
				if err != nil {
					t.Errorf("%v: %v", vb, err)
					continue
				}
				if f == nil || !f.hasCode || f.code != tt.want || !strings.HasSuffix(f.message, "m") || f.status != 0 {
					t.Errorf("%v: failure %+v, want the code %d", vb, f, tt.want)
				}
			}
		})
	}
}

// failure sends vb to an agent that refuses.
func (r *grpcRig) failure(vb verb) (*failure, error) {
	params := taskParams
	switch vb {
	case verbSend, verbStream:
		params = sendParams
	case verbList:
		params = `{}`
	}
	if !vb.streams() {
		_, f, err := r.do(r.t.Context(), vb, params)
		return f, err
	}
	s, reply, err := r.begin(r.t.Context(), vb, params)
	if err != nil {
		return nil, err
	}
	if s != nil {
		s.close()
		return nil, nil
	}
	_, f, err := r.open(r.op(vb, params), reply.Body)
	return f, err
}

// TestGRPCErrorData: the agent's message and details are kept, in the form that
// JSON-RPC has for them.
func TestGRPCErrorData(t *testing.T) {
	rig := newGRPCRig(t, refusing(withDetails(t, codes.NotFound, "no such task", reason("TASK_NOT_FOUND"),
		&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)})))
	f, err := rig.failure(verbGet)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org","metadata":{"taskId":"t9"}},` +
		`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"3s"}]`
	if string(f.data) != want || f.message != "no such task" || f.retryAfter != 3*time.Second {
		t.Errorf("failure %+v\ndata %s\nwant %s", f, f.data, want)
	}
}

// TestGRPCDispositions: what the agent's own words leave behind where they are
// no error of A2A. NotSent is only what executed nothing for sure.
func TestGRPCDispositions(t *testing.T) {
	wait := &errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)}
	for _, tt := range []struct {
		name      string
		err       error
		d         bridge.Disposition
		code      parley.Code
		retryable bool
		wait      time.Duration
	}{
		{"UNAVAILABLE", status.Error(codes.Unavailable, "m"), bridge.Lost, parley.CodeAgentUnavailable, true, 0},
		{"UNAVAILABLE, later", withDetails(t, codes.Unavailable, "m", wait), bridge.Lost, parley.CodeAgentUnavailable, true, 3 * time.Second},
		{"DEADLINE_EXCEEDED", status.Error(codes.DeadlineExceeded, "m"), bridge.Lost, parley.CodeTimeout, true, 0},
		{"CANCELLED", status.Error(codes.Canceled, "m"), bridge.Lost, parley.CodeAgentUnavailable, true, 0},
		{"UNKNOWN", status.Error(codes.Unknown, "m"), bridge.Lost, parley.CodeAgentUnavailable, true, 0},
		{"RESOURCE_EXHAUSTED", status.Error(codes.ResourceExhausted, "m"), bridge.Answered, parley.CodeAgentUnavailable, true, 0},
		{"a quota", withDetails(t, codes.ResourceExhausted, "m", &errdetails.QuotaFailure{}), bridge.NotSent, parley.CodeAgentUnavailable, true, 0},
		{"a quota, later", withDetails(t, codes.ResourceExhausted, "m", wait), bridge.NotSent, parley.CodeAgentUnavailable, true, 3 * time.Second},
		{"PERMISSION_DENIED", status.Error(codes.PermissionDenied, "m"), bridge.Answered, parley.CodeAgentRejected, false, 0},
		{"UNAUTHENTICATED", status.Error(codes.Unauthenticated, "m"), bridge.Answered, parley.CodeAgentRejected, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rig := newGRPCRig(t, refusing(tt.err))
			for _, vb := range []verb{verbSend, verbStream} {
				_, err := rig.failure(vb)
				x := left(t, err, tt.d, tt.code, tt.retryable)
				if x.RetryAfter != tt.wait || !strings.Contains(x.Err.Message, ": m") {
					t.Errorf("%v: after %v: %s", vb, x.RetryAfter, x.Err.Message)
				}
			}
		})
	}
}

// TestGRPCQuotaLate: an agent that had begun to answer has executed something,
// whatever it says about quotas.
func TestGRPCQuotaLate(t *testing.T) {
	quota := withDetails(t, codes.ResourceExhausted, "m", &errdetails.QuotaFailure{})
	rig := newGRPCRig(t, &grpcAgent{send: func(ctx context.Context, _ *a2apb.SendMessageRequest) (*a2apb.SendMessageResponse, error) {
		if err := grpc.SendHeader(ctx, metadata.Pairs("x-begun", "yes")); err != nil {
			return nil, err
		}
		return nil, quota
	}})
	_, _, err := rig.do(t.Context(), verbSend, sendParams)
	left(t, err, bridge.Answered, parley.CodeAgentUnavailable, true)
}

// TestGRPCRefusalStatus: statuses of identity come with the HTTP status that
// means the same, and with the agent's words for the reader.
func TestGRPCRefusalStatus(t *testing.T) {
	for c, want := range map[codes.Code]int{codes.Unauthenticated: 401, codes.PermissionDenied: 403} {
		rig := newGRPCRig(t, refusing(status.Error(c, "who are you")))
		op := rig.op(verbSend, sendParams)
		reply, err := rig.carry(t.Context(), op, op.params)
		x := left(t, err, bridge.Answered, parley.CodeAgentRejected, false)
		if x.Status != want || reply.Status != want {
			t.Errorf("%v: status %d and %d, want %d", c, x.Status, reply.Status, want)
		}
		if _, f, err := rig.open(op, reply.Body); err != nil || f == nil || f.message != "who are you" {
			t.Errorf("%v: failure %+v, error %v", c, f, err)
		}
	}
}

// TestGRPCSecrets: an agent that repeats the credential does not get it into
// errors.
func TestGRPCSecrets(t *testing.T) {
	rig := newGRPCRig(t, refusing(status.Error(codes.Unavailable, "bad token s3cr3t-value")))
	rig.agent.Auth = parley.Auth{Type: parley.AuthBearer}
	rig.agent.Credential = parley.NewSecret([]byte("s3cr3t-value"))
	_, _, err := rig.do(t.Context(), verbSend, sendParams)
	x := left(t, err, bridge.Lost, parley.CodeAgentUnavailable, true)
	if all, _ := json.Marshal(x.Err); strings.Contains(string(all), "s3cr3t") {
		t.Errorf("the error repeats the credential: %s", all)
	}
}

// TestGRPCUnknownDetail: details of a kind that nobody here knows are named.
func TestGRPCUnknownDetail(t *testing.T) {
	st := status.New(codes.NotFound, "m").Proto()
	st.Details = append(st.Details, mustAny(t, reason("TASK_NOT_FOUND")))
	st.Details[0].TypeUrl = "type.googleapis.com/acme.Odd"
	rig := newGRPCRig(t, refusing(status.ErrorProto(st)))
	f, err := rig.failure(verbGet)
	if err != nil || string(f.data) != `[{"@type":"type.googleapis.com/acme.Odd"}]` || f.code != codeTaskNotFound {
		t.Errorf("failure %+v (%s), error %v", f, f.data, err)
	}
}
