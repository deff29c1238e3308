package agentcore

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
	"github.com/parley-project/parley/jsonrpc"
)

// The codes with which the platform answers for a runtime that speaks A2A.
const (
	codeNotFound   jsonrpc.Code = -32051
	codeValidation jsonrpc.Code = -32052
	codeThrottling jsonrpc.Code = -32053
	codeConflict   jsonrpc.Code = -32054
	codeRuntime    jsonrpc.Code = -32055
)

// A refusal is what the platform itself answered.
type refusal struct {
	status int
	kind   string // the type of the error, "" if it has none
	// again says to send the request again.
	again bool
	// clock says that the clocks differ, which the SDK corrects when it signs again.
	clock bool
	// alert says that somebody has to do something.
	alert bool
}

// Error names status and type; the message of the platform may quote anything.
func (r *refusal) Error() string {
	if r.kind == "" {
		return fmt.Sprintf("AgentCore answered HTTP %d", r.status)
	}
	return fmt.Sprintf("AgentCore answered HTTP %d %s", r.status, r.kind)
}

// judge says what an answer of the platform means: nil if it is the container's
// (zones.md §1.3, §2).
func judge(a direct.Answer, now time.Time) *zone.TransportError {
	if a.Status >= 200 && a.Status < 300 {
		return direct.Judge(a, now)
	}
	r := &refusal{status: a.Status, kind: errorType(a)}
	fault := &zone.TransportError{RetryAfter: direct.RetryAfter(a.Header, now), Err: r}
	if class, ok := r.byType(a, now); ok {
		fault.Class = class
		return fault
	}
	rpc, isResponse := a.Response()
	if class, ok := r.byCode(rpc.Code); ok && isResponse {
		fault.Class = class
		return fault
	}
	if isResponse {
		return nil
	}
	fault.Class = r.byStatus()
	return fault
}

// byType goes by the error type, which only the platform sends.
func (r *refusal) byType(a direct.Answer, now time.Time) (zone.Class, bool) {
	switch r.kind {
	case "ThrottlingException", "ThrottledException":
		r.again = true
		return zone.ClassThrottled, true
	case "ServiceQuotaExceededException":
		r.alert = true
		return zone.ClassThrottled, true
	case "RetryableConflictException":
		r.again = true
		return zone.ClassConflict, true
	case "ConflictException":
		return zone.ClassConflict, true
	case "RuntimeClientError", "InternalServerException", "ServiceException":
		return zone.ClassUnknownOutcome, true
	case "InvalidSignatureException", "SignatureDoesNotMatch", "RequestExpired", "RequestTimeTooSkewed":
		r.clock = clocksDiffer(a, now)
		return zone.ClassAuth, true
	case "AccessDeniedException", "UnauthorizedException", "UnrecognizedClientException", "ExpiredTokenException", "SubscriptionRequiredException":
		return zone.ClassAuth, true
	case "ValidationException", "ResourceNotFoundException", "InvalidInputException":
		return r.byStatus(), true
	}
	return "", false
}

// byCode goes by the code of a JSON-RPC error that came with an error status.
func (r *refusal) byCode(code jsonrpc.Code) (zone.Class, bool) {
	switch code {
	case codeNotFound, codeValidation:
		return zone.ClassBadResponse, true
	case codeThrottling:
		r.again = true
		return zone.ClassThrottled, true
	case codeConflict:
		r.again = true
		return zone.ClassConflict, true
	case codeRuntime:
		return zone.ClassUnknownOutcome, true
	}
	return "", false
}

// byStatus goes by the status where nothing else is known.
func (r *refusal) byStatus() zone.Class {
	switch r.status {
	case http.StatusTooManyRequests:
		r.again = true
		return zone.ClassThrottled
	case http.StatusPaymentRequired: // a quota, as the SDK's model has it
		r.alert = true
		return zone.ClassThrottled
	case http.StatusConflict:
		return zone.ClassConflict
	case http.StatusUnauthorized, http.StatusForbidden:
		return zone.ClassAuth
	case http.StatusRequestEntityTooLarge:
		return zone.ClassTooLarge
	case http.StatusFailedDependency, http.StatusRequestTimeout:
		return zone.ClassUnknownOutcome
	}
	if r.status >= 500 {
		return zone.ClassUnknownOutcome
	}
	return zone.ClassBadResponse
}

// again says whether to send a request again that failed so.
func again(f *zone.TransportError) bool {
	if r, ok := errors.AsType[*refusal](f.Err); ok {
		return r.again
	}
	return f.Class == zone.ClassNotSent
}

// maxSkew is how far clocks may differ before it is taken for the reason of a
// refusal; signatures are believed for 5 minutes.
const maxSkew = 4 * time.Minute

func clocksDiffer(a direct.Answer, now time.Time) bool {
	at, err := http.ParseTime(a.Header.Get("Date"))
	return err == nil && at.Sub(now).Abs() > maxSkew
}

// errorType reads the type of an error from its header or from the body, without
// namespace and address.
func errorType(a direct.Answer) string {
	kind := a.Header.Get("X-Amzn-Errortype")
	if kind == "" {
		var w struct {
			Type any `json:"__type"`
			Code any `json:"code"`
		}
		if json.Unmarshal(a.Body, &w) == nil {
			kind, _ = w.Type.(string)
			if code, ok := w.Code.(string); ok && kind == "" {
				kind = code
			}
		}
	}
	kind, _, _ = strings.Cut(kind, ":")
	if i := strings.LastIndexByte(kind, '#'); i >= 0 {
		kind = kind[i+1:]
	}
	if len(kind) > 64 || strings.ContainsFunc(kind, func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') }) {
		return ""
	}
	return kind
}
