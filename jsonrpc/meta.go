package jsonrpc

import "context"

// Meta is what a request carries beside its params to be found again in logs
// and traces. A Conn with Config.SendMeta writes it as the extra members
// "correlation_id", "traceparent" and "tracestate" of the request, which peers
// that do not know them ignore; incoming members of these names are always
// read. Empty strings are absent.
type Meta struct {
	// CorrelationID ties together the messages and log lines of one piece of
	// work (RPC-21).
	CorrelationID string
	// TraceParent and TraceState are the trace context of the W3C
	// recommendation, in its text form.
	TraceParent, TraceState string
}

type metaKey struct{}

// WithMeta returns a context that carries meta: for Call, what goes out with
// the request; for a handler, what came in with it.
func WithMeta(ctx context.Context, meta Meta) context.Context {
	return context.WithValue(ctx, metaKey{}, meta)
}

// MetaFrom returns the Meta that the context carries.
func MetaFrom(ctx context.Context) (Meta, bool) {
	meta, ok := ctx.Value(metaKey{}).(Meta)
	return meta, ok
}

// over returns the metadata of a request that came by way of ctx, which may have
// some too. What the request says itself counts. The two parts of a trace
// context belong together.
func (meta Meta) over(ctx context.Context) Meta {
	under, ok := MetaFrom(ctx)
	if !ok {
		return meta
	}
	if meta.CorrelationID != "" {
		under.CorrelationID = meta.CorrelationID
	}
	if meta.TraceParent != "" {
		under.TraceParent, under.TraceState = meta.TraceParent, meta.TraceState
	}
	return under
}

// hasMeta says whether the message carries any metadata.
func (m *message) hasMeta() bool {
	return m.correlationID != nil || m.traceParent != nil || m.traceState != nil
}

// metadata returns the message's metadata. Members that are no strings are
// extensions of someone else and ignored.
func (m *message) metadata() Meta {
	return Meta{
		CorrelationID: stringValue(m.correlationID),
		TraceParent:   stringValue(m.traceParent),
		TraceState:    stringValue(m.traceState),
	}
}

// stringValue returns the string that raw is the text of, or "".
func stringValue(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return string(unescape(nil, raw[1:len(raw)-1]))
}
