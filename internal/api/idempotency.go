package api

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// headerIdempotencyKey carries the key of a request with many APIs
// (draft-ietf-httpapi-idempotency-key-header). Here it may stand in the place of the
// member: who sends one must not begin a second run because nobody has looked.
const headerIdempotencyKey = "Idempotency-Key"

// idempotencyKey gives the key of a request that begins a run: the member, or else the
// header, without the quotes that the draft wants around it. Two keys that differ are a
// finding, and so are several headers.
func (o *object) idempotencyKey(h http.Header) string {
	const member = "idempotency_key"
	key := o.text(member, 1, maxText)
	given := h.Values(headerIdempotencyKey)
	if len(given) == 0 {
		if key == nil {
			return ""
		}
		return *key
	}
	header := given[0]
	if n := len(header); n > 1 && strings.HasPrefix(header, `"`) && strings.HasSuffix(header, `"`) {
		header = header[1 : n-1]
	}
	switch {
	case len(given) > 1:
		o.wrong(member, "value", "value_error", "must be one: the header "+headerIdempotencyKey+" was sent more than once")
	case strings.ContainsFunc(header, func(r rune) bool { return r < ' ' || r > '~' }):
		o.wrong(member, "value", "value_error", "must be printable ASCII where the header "+headerIdempotencyKey+" carries it; others go into the body")
	case header == "":
		o.wrong(member, "value", "string_too_short", "must have at least 1 character(s), also as the header "+headerIdempotencyKey)
	case key != nil && *key != header:
		o.wrong(member, "value", "value_error", "must be the same as the header "+headerIdempotencyKey+", or one of the two")
	}
	return header
}

// beginParams are the headers that every request takes which begins a run.
func beginParams() []*huma.Param {
	key := headerParam(headerIdempotencyKey, "In place of the member idempotency_key; with both they must be equal.")
	key.Schema.MinLength = new(1)
	return append(traceParams(), key)
}
