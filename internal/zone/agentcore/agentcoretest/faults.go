package agentcoretest

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/parley-project/parley/internal/zone"
)

// A Fault is a way in which an invocation fails.
type Fault struct {
	// Status, Type (the error type header, "" for none), Header and Body are what is
	// answered.
	Status int
	Type   string
	Header map[string]string
	Body   string
	// How is what happens in place of the answer, or with it.
	How How
	// AfterWork lets the container do its work before.
	AfterWork bool
}

// How a connection fails.
type How int

// The ways. Half answers are of what the container has answered.
const (
	Answers How = iota
	// HangsUp closes the connection before the first byte.
	HangsUp
	// CutsOff sends half an answer, and breaks the connection.
	CutsOff
	// EndsEarly sends half an answer and ends it in order, without a length.
	EndsEarly
	// KeepsQuiet answers nothing until the caller goes; StallsHalfway after half an
	// answer.
	KeepsQuiet
	StallsHalfway
)

func (f *Fault) serve(w http.ResponseWriter, r *http.Request, work []byte) {
	for name, value := range f.Header {
		w.Header().Set(name, value)
	}
	half := work[:len(work)/2]
	switch f.How {
	case HangsUp:
		panic(http.ErrAbortHandler)
	case KeepsQuiet:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case CutsOff, EndsEarly, StallsHalfway:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(half)
		_ = http.NewResponseController(w).Flush()
		if f.How == StallsHalfway {
			<-r.Context().Done()
		}
		if f.How != EndsEarly {
			panic(http.ErrAbortHandler)
		}
		return
	case Answers:
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	if f.Type != "" {
		w.Header().Set("X-Amzn-Errortype", f.Type)
	}
	w.WriteHeader(f.Status)
	if f.Status != http.StatusNoContent {
		_, _ = io.WriteString(w, f.Body)
	}
}

// A Row is a failure of the platform, and what a transport makes of it: the class,
// "" where the body is returned, and how often the request is sent if the platform
// always fails so and three attempts are allowed.
type Row struct {
	Name     string
	Fault    Fault
	Class    zone.Class
	Attempts int
}

func message(s string) string { return fmt.Sprintf(`{"message":%q}`, s) }

func rpc(code int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","error":{"code":%d,"message":"platform"},"id":null}`, code)
}

// Rows gives every row of zones.md §1.3, and of §2 for errors as JSON-RPC.
func Rows() []Row {
	return append(append(throttles(), others()...), responses()...)
}

func throttles() []Row {
	return []Row{
		{"429 ThrottlingException", Fault{Status: 429, Type: "ThrottlingException", Body: message("slow down")}, zone.ClassThrottled, 3},
		{"429 ThrottledException", Fault{Status: 429, Type: "ThrottledException", Body: message("slow down")}, zone.ClassThrottled, 3},
		{"429 type with namespace", Fault{Status: 429, Type: "com.amazon#ThrottlingException:http://x/", Body: `{}`}, zone.ClassThrottled, 3},
		{"429 type in __type", Fault{Status: 429, Body: `{"__type":"com.amazon#ThrottlingException","message":"x"}`}, zone.ClassThrottled, 3},
		{"429 type in code", Fault{Status: 429, Body: `{"code":"ThrottledException"}`}, zone.ClassThrottled, 3},
		{"429 without type", Fault{Status: 429}, zone.ClassThrottled, 3},
		{"429 HTML", Fault{Status: 429, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>"}, zone.ClassThrottled, 3},
		{"400 ThrottlingException", Fault{Status: 400, Type: "ThrottlingException"}, zone.ClassThrottled, 3},
		{"503 ThrottlingException", Fault{Status: 503, Type: "ThrottlingException"}, zone.ClassThrottled, 3},
		{"429 says when, soon", Fault{Status: 429, Header: map[string]string{"x-amz-retry-after": "30"}}, zone.ClassThrottled, 3},
		{"429 says when, late", Fault{Status: 429, Header: map[string]string{"x-amz-retry-after": "600000"}}, zone.ClassThrottled, 1},
		{"409 RetryableConflictException", Fault{Status: 409, Type: "RetryableConflictException"}, zone.ClassConflict, 3},
		{"409 type in __type", Fault{Status: 409, Body: `{"__type":"RetryableConflictException"}`}, zone.ClassConflict, 3},
		{"402 ServiceQuotaExceededException", Fault{Status: 402, Type: "ServiceQuotaExceededException"}, zone.ClassThrottled, 1},
		{"429 ServiceQuotaExceededException", Fault{Status: 429, Type: "ServiceQuotaExceededException"}, zone.ClassThrottled, 1},
	}
}

func others() []Row {
	wrongDate := map[string]string{"Date": time.Now().Add(6 * time.Hour).UTC().Format(http.TimeFormat)}
	return []Row{
		{"424 RuntimeClientError", Fault{Status: 424, Type: "RuntimeClientError", Body: message("init")}, zone.ClassUnknownOutcome, 1},
		{"424 without type", Fault{Status: 424}, zone.ClassUnknownOutcome, 1},
		{"500 InternalServerException", Fault{Status: 500, Type: "InternalServerException"}, zone.ClassUnknownOutcome, 1},
		{"500 without type", Fault{Status: 500}, zone.ClassUnknownOutcome, 1},
		{"502", Fault{Status: 502, Body: "<html>"}, zone.ClassUnknownOutcome, 1},
		{"503", Fault{Status: 503}, zone.ClassUnknownOutcome, 1},
		{"504", Fault{Status: 504}, zone.ClassUnknownOutcome, 1},
		{"400 ValidationException", Fault{Status: 400, Type: "ValidationException", Body: message("no")}, zone.ClassBadResponse, 1},
		{"400 of a runtime", Fault{Status: 400, Body: `{"error":"Invalid JSON"}`}, zone.ClassBadResponse, 1},
		{"401", Fault{Status: 401}, zone.ClassAuth, 1},
		{"403 AccessDeniedException", Fault{Status: 403, Type: "AccessDeniedException"}, zone.ClassAuth, 1},
		{"403 InvalidSignatureException", Fault{Status: 403, Type: "InvalidSignatureException"}, zone.ClassAuth, 1},
		{"403 InvalidSignatureException, clocks differ", Fault{Status: 403, Type: "InvalidSignatureException", Header: wrongDate}, zone.ClassAuth, 2},
		{"404 ResourceNotFoundException", Fault{Status: 404, Type: "ResourceNotFoundException"}, zone.ClassBadResponse, 1},
		{"409 ConflictException", Fault{Status: 409, Type: "ConflictException"}, zone.ClassConflict, 1},
		{"413", Fault{Status: 413}, zone.ClassTooLarge, 1},
		{"307", Fault{Status: 307, Header: map[string]string{"Location": "/elsewhere"}}, zone.ClassBadResponse, 1},
		{"204", Fault{Status: 204}, zone.ClassBadResponse, 1},
		{"200 HTML", Fault{Status: 200, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>"}, zone.ClassBadResponse, 1},
		{"200 events", Fault{Status: 200, Header: map[string]string{"Content-Type": "text/event-stream"}, Body: "data: {}\n\n"}, zone.ClassBadResponse, 1},
		{"EOF before headers", Fault{How: HangsUp}, zone.ClassUnknownOutcome, 1},
		{"EOF before headers, work done", Fault{How: HangsUp, AfterWork: true}, zone.ClassUnknownOutcome, 1},
		{"stream cut", Fault{How: CutsOff, AfterWork: true}, zone.ClassUnknownOutcome, 1},
		{"stream ended early", Fault{How: EndsEarly, AfterWork: true}, zone.ClassUnknownOutcome, 1},
		{"slow headers", Fault{How: KeepsQuiet}, zone.ClassUnknownOutcome, 1},
		{"slow body", Fault{How: StallsHalfway, AfterWork: true}, zone.ClassUnknownOutcome, 1},
	}
}

func responses() []Row {
	return []Row{
		{"-32051 NotFound", Fault{Status: 404, Body: rpc(-32051)}, zone.ClassBadResponse, 1},
		{"-32052 Validation", Fault{Status: 400, Body: rpc(-32052)}, zone.ClassBadResponse, 1},
		{"-32053 Throttling", Fault{Status: 429, Body: rpc(-32053)}, zone.ClassThrottled, 3},
		{"-32053 with type", Fault{Status: 429, Type: "ServiceQuotaExceededException", Body: rpc(-32053)}, zone.ClassThrottled, 1},
		{"-32054 Conflict", Fault{Status: 409, Body: rpc(-32054)}, zone.ClassConflict, 3},
		{"-32055 RuntimeClientError", Fault{Status: 424, Body: rpc(-32055)}, zone.ClassUnknownOutcome, 1},
		{"-32603 with 500", Fault{Status: 500, Body: rpc(-32603)}, "", 1},
		{"-32053 with 200 is the container's", Fault{Status: 200, Body: rpc(-32053)}, "", 1},
		{"-32000 with 401 is the container's", Fault{Status: 401, Body: rpc(-32000)}, "", 1},
	}
}
