package zonetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/parley-project/parley/internal/zone"
)

// Memory returns the Transport that calls POST /invocations of h in this process.
func Memory(h http.Handler) zone.Transport { return MemoryAt(h, "/invocations") }

// MemoryAt is Memory for another path.
func MemoryAt(h http.Handler, path string) zone.Transport { return memory{h, path} }

type memory struct {
	h    http.Handler
	path string
}

// Call implements zone.Transport.
func (m memory) Call(ctx context.Context, body []byte, meta zone.Meta) ([]byte, zone.Info, error) {
	info := zone.Info{Attempts: 1}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, m.path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if meta.CorrelationID != "" {
		r.Header.Set("X-Correlation-ID", meta.CorrelationID)
	}
	if !meta.Trace.IsZero() {
		r.Header.Set("Traceparent", meta.Trace.Parent)
		r.Header.Set("Tracestate", meta.Trace.State)
	}
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		m.h.ServeHTTP(w, r)
		answered <- w
	}()
	select {
	case <-ctx.Done():
		return nil, info, &zone.TransportError{Class: zone.ClassUnknownOutcome, Info: info, Err: ctx.Err()}
	case w := <-answered:
		res := w.Result()
		info.Status, info.ContentType = res.StatusCode, res.Header.Get("Content-Type")
		if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden {
			return nil, info, &zone.TransportError{Class: zone.ClassAuth, Info: info, Err: fmt.Errorf("status %d", res.StatusCode)}
		}
		text, err := io.ReadAll(res.Body)
		if err != nil {
			return nil, info, &zone.TransportError{Class: zone.ClassUnknownOutcome, Info: info, Err: errors.New("the response was cut")}
		}
		return text, info, nil
	}
}
