package execution

import (
	"context"
	"net/http"

	"github.com/parley-project/parley/internal/zone"
)

// invokeA2A is POST / of the A2A contract: a request of the contract as it is, or
// in a message of A2A over JSON-RPC.
func (z *Zone) invokeA2A(w http.ResponseWriter, r *http.Request) {
	z.receive(w, r, func(ctx context.Context, body []byte, correlation string) ([]byte, int) {
		inner, envelope := z.codec.Unwrap(body)
		if envelope == nil {
			return z.answer(ctx, body, correlation), http.StatusOK
		}
		return z.answerIn(ctx, envelope, inner, correlation)
	})
}

// invokeREST is POST message:send of A2A over HTTP+JSON.
func (z *Zone) invokeREST(version string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		z.receive(w, r, func(ctx context.Context, body []byte, correlation string) ([]byte, int) {
			inner, envelope := z.codec.UnwrapREST(body, version)
			return z.answerIn(ctx, envelope, inner, correlation)
		})
	}
}

func (z *Zone) answerIn(ctx context.Context, envelope *zone.Envelope, inner []byte, correlation string) ([]byte, int) {
	if inner == nil {
		return envelope.Fault(correlation)
	}
	return envelope.Wrap(z.answer(ctx, inner, correlation), z.cfg.NewID()), http.StatusOK
}
