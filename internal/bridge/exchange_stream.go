package bridge

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
)

// maxStreamed is how much one stream may bring in all, as a multiple of
// MaxResponse (1 GiB with its default).
const maxStreamed = 64

// Stream is [Exchange.Do] for a request that may be answered by a stream of
// events. The label of the answer says so, never the request: with a 2xx status
// text/event-stream gives a body, everything else a reply. ctx and
// agent.Timeout bound the exchange until the head of a stream is there; the
// stream goes on until its owner closes it.
func (x *Exchange) Stream(ctx context.Context, task parley.Task, agent parley.Agent, r Request) (*StreamBody, Reply, error) {
	p, err := x.post(ctx, &errand{task, agent}, r)
	if err != nil {
		return nil, Reply{}, err
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.inner = inner
	patience := time.AfterFunc(p.timeout, cancel)
	interest := context.AfterFunc(ctx, cancel)
	end := func() bool { return patience.Stop() && interest() }

	resp, err := p.authorized((*post).send)
	if err != nil {
		end()
		cancel()
		return nil, Reply{}, err
	}
	if !isStream(resp) {
		reply, err := p.receive(resp)
		end()
		cancel()
		_ = resp.Body.Close()
		return nil, reply, err
	}
	body := &StreamBody{post: p, resp: resp, cancel: cancel, left: maxStreamed * int64(x.limits.MaxResponse)}
	if !end() { // too late, or not wanted any more
		err := p.broken(context.Canceled, true)
		body.Close()
		return nil, Reply{}, err
	}
	p.outer = context.WithoutCancel(ctx)
	return body, Reply{}, nil
}

func isStream(resp *http.Response) bool {
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return false
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	encoding := resp.Header.Get("Content-Encoding")
	return kind == "text/event-stream" && (encoding == "" || encoding == "identity")
}

// StreamBody is the body of a response that goes on for as long as the agent
// has something to say.
type StreamBody struct {
	post   *post
	resp   *http.Response
	cancel context.CancelFunc
	left   int64
	closed atomic.Bool
}

// Read gives io.EOF where the agent has ended the stream, and an
// [*ExchangeError] with the disposition Lost where it was cut, closed on this
// side, or grew larger than 64 times the limit of a response. It is called by
// one goroutine at a time.
func (s *StreamBody) Read(b []byte) (int, error) {
	n, err := s.resp.Body.Read(b)
	s.left -= int64(n)
	switch {
	case s.closed.Load():
		return 0, s.post.fail(Lost, parley.CodeCancelled, false, "the stream was closed on this side")
	case s.left < 0:
		return 0, s.post.tooLarge("max_response", maxStreamed*s.post.x.limits.MaxResponse, "stream")
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return n, io.EOF
	}
	return n, s.post.broken(err, true)
}

// Close ends the stream, and a Read that waits. It may be called at any time,
// from any goroutine, and again.
func (s *StreamBody) Close() {
	if !s.closed.Swap(true) {
		s.cancel()
		_ = s.resp.Body.Close()
	}
}
