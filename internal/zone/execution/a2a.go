package execution

import (
	"context"
	"errors"
	"net/http"

	"github.com/parley-project/parley/internal/zone"
)

// invokeA2A is POST / of the A2A contract: a request of the contract as it is, or
// in a message of A2A over JSON-RPC.
func (z *Zone) invokeA2A(w http.ResponseWriter, r *http.Request) {
	z.receive(w, r, func(ctx context.Context, body []byte, with beside) ([]byte, int) {
		inner, envelope := z.codec.Unwrap(body)
		if envelope == nil {
			return z.answer(ctx, body, with), http.StatusOK
		}
		return z.answerIn(ctx, envelope, inner, with)
	})
}

// invokeREST is POST message:send of A2A over HTTP+JSON.
func (z *Zone) invokeREST(version string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		z.receive(w, r, func(ctx context.Context, body []byte, with beside) ([]byte, int) {
			inner, envelope := z.codec.UnwrapREST(body, version)
			return z.answerIn(ctx, envelope, inner, with)
		})
	}
}

func (z *Zone) answerIn(ctx context.Context, envelope *zone.Envelope, inner []byte, with beside) ([]byte, int) {
	if inner == nil {
		c := &call{beside: with, cause: errors.New("a message of A2A without a request of the contract")}
		z.log(ctx, c, zone.NewError(zone.ReasonInvalidParams), z.cfg.Now())
		return envelope.Fault(with.correlation)
	}
	return envelope.Wrap(z.answer(ctx, inner, with), z.cfg.NewID()), http.StatusOK
}
