package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
)

// eventBatch is how many events one read asks for.
const eventBatch = 256

// The greatest seq that events may be asked for after, which every reader of JSON can
// write, and the most events of one page.
const (
	maxAfter  = 1 << 53
	maxEvents = 500
)

// eventsPage is one page of a run's history.
type eventsPage struct {
	Items []parley.Event `json:"items" nullable:"false"`
	// NextAfter is the seq to go on after.
	NextAfter int64 `json:"next_after"`
	// More says that the next page has events already.
	More bool `json:"more"`
}

// eventsQuery is what a request for events asks for.
type eventsQuery struct {
	after  int64
	limit  int
	stream bool
}

func (s *server) eventsQuery(r *http.Request) (eventsQuery, error) {
	q := queryOf(r)
	in := eventsQuery{after: q.integer("after", 0, 0, maxAfter), limit: int(q.integer("limit", 100, 1, maxEvents)), stream: wantsStream(r)}
	if last := r.Header.Get("Last-Event-ID"); in.stream && last != "" {
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil || n < 0 {
			q.found = append(q.found, finding{
				Path: "Last-Event-ID", Code: "value", Detail: "must be the id of an event",
				Field: "header.Last-Event-ID", Message: "must be the id of an event", Type: "int_parsing",
			})
		}
		// A browser that reconnects repeats the first URL with its after.
		in.after = n
	}
	return in, q.done()
}

// runEvents gives a page of the history, or streams it from there on.
func (s *server) runEvents(w http.ResponseWriter, r *http.Request) error {
	q, err := s.eventsQuery(r)
	if err != nil {
		return err
	}
	if q.stream {
		return s.streamRun(w, r, q.after)
	}
	id := r.PathValue("id")
	// One more than asked for tells whether there is a next page.
	events, err := s.cfg.Runs.Events(r.Context(), id, q.after, q.limit+1, false)
	if err != nil {
		return err
	}
	page := eventsPage{Items: events, NextAfter: q.after, More: len(events) > q.limit}
	if page.More {
		page.Items = events[:q.limit]
	}
	page.Items = mapped(page.Items, eventTime)
	if n := len(page.Items); n > 0 {
		page.NextAfter = page.Items[n-1].Seq
	}
	s.reply(w, r, http.StatusOK, page)
	return nil
}

func eventTime(e parley.Event) parley.Event {
	e.At = e.At.UTC()
	if len(e.Data) == 0 {
		e.Data = json.RawMessage(`{}`)
	}
	return e
}

// wantsStream reports whether the client asks for server-sent events. A weight of 0
// says that it does not take them.
func wantsStream(r *http.Request) bool {
	for _, line := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			t, params, err := mime.ParseMediaType(strings.TrimSpace(part))
			if err != nil || t != "text/event-stream" {
				continue
			}
			if q, err := strconv.ParseFloat(params["q"], 64); err != nil || q > 0 {
				return true
			}
		}
	}
	return false
}

// streamRun sends every event of a run after the given one until it has ended.
// A client that has them all and comes again gets 204, which tells browsers to
// stop.
func (s *server) streamRun(w http.ResponseWriter, r *http.Request, after int64) error {
	run, err := s.cfg.Runs.Run(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if run.Status.Terminal() && after >= run.Seq {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return s.stream(w, r, after, func(ctx context.Context, after int64) ([]streamed, error) {
		events, err := s.cfg.Runs.Events(ctx, run.ID, after, eventBatch, true)
		return mapped(events, streamedEvent), err
	})
}

// streamed is one event of a stream: body is its JSON.
type streamed struct {
	seq  int64
	kind string
	body any
}

func streamedEvent(e parley.Event) streamed {
	return streamed{e.Seq, string(e.Type), eventTime(e)}
}

// eventReader waits for the events after one; none are the end.
type eventReader func(ctx context.Context, after int64) ([]streamed, error)

// stream sends what read gives, until its end, or until its key is good no more,
// which is noticed at the next heartbeat.
func (s *server) stream(w http.ResponseWriter, r *http.Request, after int64, read eventReader) error {
	if r.Method == http.MethodHead {
		beginStream(w) // the stream itself would keep the connection until its end
		return nil
	}
	release, ok := s.take()
	if !ok {
		e := refuse(http.StatusTooManyRequests, codeLimit, "the limit streams of %d open event streams is reached; try again later", s.cfg.Limits.Streams)
		e.header = http.Header{"Retry-After": {"5"}}
		return e
	}
	defer release()
	// The reader ends with this context, at the latest when we return, and we
	// return after it.
	ctx, cancel := context.WithCancel(r.Context())
	batches := make(chan eventsRead)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	reader.Go(func() { readEvents(ctx, after, read, batches) })

	beginStream(w)
	out := &eventWriter{s: s, w: w, rc: http.NewResponseController(w)}
	if !out.send([]byte("retry: 2000\n\n")) {
		return nil
	}
	beat := time.NewTicker(s.cfg.Limits.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			if err := s.admitStill(r); err != nil {
				s.streamFailed(out, r, err)
				return nil
			}
			if !out.send([]byte(": heartbeat\n\n")) {
				return nil
			}
		case got := <-batches:
			if got.err != nil {
				s.streamFailed(out, r, got.err)
				return nil
			}
			if len(got.events) == 0 || !out.events(got.events) {
				return nil
			}
		}
	}
}

func beginStream(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
}

// eventsRead is one answer of an eventReader.
type eventsRead struct {
	events []streamed
	err    error
}

// readEvents passes on what it reads, up to an error or the empty batch that
// stands for the end, or until ctx ends.
func readEvents(ctx context.Context, after int64, read eventReader, to chan<- eventsRead) {
	for {
		events, err := read(ctx, after)
		select {
		case to <- eventsRead{events, err}:
		case <-ctx.Done():
			return
		}
		if err != nil || len(events) == 0 {
			return
		}
		after = events[len(events)-1].seq
	}
}

// streamFailed tells the client why the stream ends early; it may come again
// with the last id that it got.
func (s *server) streamFailed(out *eventWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	e := translate(err, false)
	if e.status == http.StatusInternalServerError {
		s.cfg.Logger.Error("event stream failed", "path", r.URL.Path, "request_id", requestID(r), "error", err)
	}
	body, encodeErr := encode(s.problem(r, e))
	if encodeErr == nil {
		out.send(fmt.Appendf(nil, "event: error\ndata: %s\n\n", bytes.TrimSpace(body)))
	}
}

// eventWriter writes server-sent events and flushes each batch.
type eventWriter struct {
	s  *server
	w  http.ResponseWriter
	rc *http.ResponseController
}

// events writes a batch; false means that the client is gone.
func (o *eventWriter) events(events []streamed) bool {
	var b bytes.Buffer
	for _, e := range events {
		data, err := encode(e.body)
		if run, ok := e.body.(parley.Event); ok && err != nil {
			// Only a value that is no JSON gets here: tell the rest.
			run.Data = nil
			data, _ = encode(eventTime(run))
		}
		fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: %s\n\n", e.seq, e.kind, bytes.TrimSpace(data))
	}
	return o.send(b.Bytes())
}

func (o *eventWriter) send(p []byte) bool {
	o.s.deadline(o.rc.SetWriteDeadline)
	if _, err := o.w.Write(p); err != nil {
		return false
	}
	err := o.rc.Flush()
	return err == nil || errors.Is(err, http.ErrNotSupported)
}
