// Package tracingtest receives spans by OTLP over HTTP in tests, as a system that shows
// traces does.
package tracingtest

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one that was received.
type Span struct {
	// Trace, ID and Parent are hexadecimal; Parent is "" for a root.
	Trace, ID, Parent, State string
	Name, Kind               string
	Start, End               time.Time
	// Status is the text of an error, "" without one.
	Status     string
	Failed     bool
	Attributes map[string]string
	// Resource is who has sent it.
	Resource map[string]string
}

// Receiver keeps what it is sent. Its methods may be called concurrently.
type Receiver struct {
	*httptest.Server

	mu sync.Mutex // protects what follows
	// answer, if set, is what requests are answered with.
	answer  int
	spans   []Span
	headers []http.Header
}

// New starts a receiver that ends with the test.
func New(t *testing.T) *Receiver {
	t.Helper()
	r := &Receiver{}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP takes one delivery.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answer != 0 {
		http.Error(w, "not now", r.answer)
		return
	}
	list, err := read(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.headers = append(r.headers, req.Header.Clone())
	r.spans = append(r.spans, list...)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// Answer makes all requests from now on be answered with a status; 0 takes them again.
func (r *Receiver) Answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = status
}

// Spans gives what was received so far, by the times at which they began.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.spans)
	slices.SortStableFunc(list, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return list
}

// Headers gives those of the requests that were taken.
func (r *Receiver) Headers() []http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.headers)
}

func read(req *http.Request) ([]Span, error) {
	if req.Method != http.MethodPost || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
		return nil, fmt.Errorf("%s %s of %s is no OTLP", req.Method, req.URL.Path, req.Header.Get("Content-Type"))
	}
	var body io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(req.Body)
		if err != nil {
			return nil, err
		}
		body = z
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	var m collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	var list []Span
	for _, resource := range m.GetResourceSpans() {
		from := attributes(resource.GetResource().GetAttributes())
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				list = append(list, spanOf(s, from))
			}
		}
	}
	return list, nil
}

func spanOf(s *spans.Span, from map[string]string) Span {
	return Span{
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()), State: s.GetTraceState(),
		Name: s.GetName(), Kind: strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_")),
		Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())), //nolint:gosec // they are times of now
		Status: s.GetStatus().GetMessage(), Failed: s.GetStatus().GetCode() == spans.Status_STATUS_CODE_ERROR,
		Attributes: attributes(s.GetAttributes()), Resource: from,
	}
}

func attributes(list []*common.KeyValue) map[string]string {
	m := make(map[string]string, len(list))
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			m[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.GetKey()] = fmt.Sprint(v.IntValue)
		default:
			m[a.GetKey()] = fmt.Sprint(v)
		}
	}
	return m
}

// Tree draws spans with what is below each of them, by their names; whose parent was not
// received stands at the top, with the id of that in front.
func Tree(list []Span) string {
	known := map[string]bool{}
	below := map[string][]Span{}
	for _, s := range list {
		known[s.ID] = true
	}
	for _, s := range list {
		below[s.Parent] = append(below[s.Parent], s)
	}
	var b strings.Builder
	var draw func(of []Span, depth int)
	draw = func(of []Span, depth int) {
		slices.SortStableFunc(of, func(a, b Span) int { return strings.Compare(a.Name, b.Name) })
		for _, s := range of {
			b.WriteString(strings.Repeat("  ", depth))
			if depth == 0 && s.Parent != "" {
				b.WriteString(s.Parent + " > ")
			}
			b.WriteString(s.Name)
			if s.Status != "" {
				b.WriteString(": " + s.Status)
			}
			b.WriteString("\n")
			draw(below[s.ID], depth+1)
		}
	}
	for _, parent := range slices.Sorted(maps.Keys(below)) {
		if !known[parent] {
			draw(below[parent], 0)
		}
	}
	return b.String()
}
