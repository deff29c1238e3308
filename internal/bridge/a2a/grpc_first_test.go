package a2a

import (
	"testing"

	"google.golang.org/grpc"

	"github.com/parley-project/parley/internal/bridge/a2a/a2apb"
)

// TestGRPCFirstEvent: the first event of a stream, which may be all that it
// has, is never taken for a sign that it has begun.
func TestGRPCFirstEvent(t *testing.T) {
	rig := newGRPCRig(t, &grpcAgent{
		events: func(_ *a2apb.SendMessageRequest, s grpc.ServerStreamingServer[a2apb.StreamResponse]) error {
			return s.Send(&a2apb.StreamResponse{Payload: &a2apb.StreamResponse_Task{Task: workingTask()}})
		},
	})
	for i := range 4000 { // it was lost in one of some hundred
		s, _, err := rig.begin(t.Context(), verbStream, sendParams)
		if err != nil {
			t.Fatal(err)
		}
		all, err := drain(t.Context(), s)
		s.close()
		if err != nil || len(all) != 1 {
			t.Fatalf("stream %d: %d events, %v", i, len(all), err)
		}
	}
}
