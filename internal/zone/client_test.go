package zone_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/jsonrpc"
)

const (
	taskID  = "6f1f9a52-6f0f-4c0e-9b6e-0d1a4f3c2b10"
	fetchID = "00000000-0000-4000-8000-000000000001"
	token   = "xoxb-17-TheTokenOfTheTest"
)

// scripted is a Transport that answers what it was told to.
type scripted struct {
	body     string
	info     zone.Info
	err      error
	sent     []string
	meta     zone.Meta
	released string
}

func (s *scripted) Call(_ context.Context, body []byte, meta zone.Meta) ([]byte, zone.Info, error) {
	s.sent, s.meta = append(s.sent, string(body)), meta
	return []byte(s.body), s.info, s.err
}

func (s *scripted) Release(_ context.Context, affinity string) error {
	s.released = affinity
	return nil
}

func client(s *scripted, profile zone.Profile) *zone.Client {
	return zone.NewClient(zone.ClientConfig{Transport: s, Profile: profile, NewID: func() string { return fetchID }, MaxResponse: 1 << 16, MaxFile: 100})
}

func question() zone.Call {
	return zone.Call{ID: taskID, Task: zone.Task{
		Channel: "C1", Text: "why <b> & how?", BotToken: parley.NewSecret([]byte(token)), CorrelationID: "c-1", ThreadTS: "17.5", TeamID: "T1", UserID: "U1",
		Attachments: []zone.Attachment{{ID: "F1", Name: "a.txt", MIMEType: "text/plain", Size: 5, PresignedURL: "https://files.example/a?x=1&y=2"}},
	}, Meta: zone.Meta{Affinity: "a-1"}}
}

// TestZN2_Request writes the requests of both profiles to the byte: with
// ProfileRelaxed the token stays here.
func TestZN2_Request(t *testing.T) {
	const shared = `"correlation_id":"c-1","thread_ts":"17.5","attachments":[{"id":"F1","name":"a.txt","mimetype":"text/plain","size":5,` +
		`"presigned_url":"https://files.example/a?x=1&y=2"}],"team_id":"T1","user_id":"U1"},"id":"` + taskID + `"}`
	for profile, want := range map[zone.Profile]string{
		zone.ProfileStrict:  `{"jsonrpc":"2.0","method":"execute_task","params":{"channel":"C1","text":"why <b> & how?","bot_token":"` + token + `",` + shared,
		zone.ProfileRelaxed: `{"jsonrpc":"2.0","method":"execute_task","params":{"channel":"C1","text":"why <b> & how?",` + shared,
	} {
		s := &scripted{body: `{"jsonrpc":"2.0","result":{"status":"success","response_text":"x"},"id":"` + taskID + `"}`}
		if _, _, err := client(s, profile).Ask(t.Context(), question()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, s.sent[0]); diff != "" || len(s.sent) != 1 {
			t.Errorf("%s, sent %d times (-want +got):\n%s", profile, len(s.sent), diff)
		}
		if want := (zone.Meta{CorrelationID: "c-1", IdempotencyKey: taskID, Affinity: "a-1", Task: taskID}); s.meta != want {
			t.Errorf("meta %+v, want %+v", s.meta, want)
		}
	}
}

// TestZN5_Fetch asks for a task, the card, and gives up what a transport holds.
func TestZN5_Fetch(t *testing.T) {
	s := &scripted{body: `{"jsonrpc":"2.0","result":{"status":"running","poll_after_ms":1500},"id":"` + fetchID + `"}`, info: zone.Info{Attempts: 1}}
	c := client(s, zone.ProfileRelaxed)
	res, info, err := c.Fetch(t.Context(), zone.Query{TaskID: taskID, CorrelationID: "c-1"}, zone.Meta{IdempotencyKey: taskID, Affinity: "a-1"})
	if err != nil || res.Status != zone.StatusRunning || res.PollAfterMS != 1500 || info.Attempts != 1 {
		t.Errorf("%+v, %+v, %v", res, info, err)
	}
	if want := `{"jsonrpc":"2.0","method":"get_async_task_result","params":{"task_id":"` + taskID + `","correlation_id":"c-1"},"id":"` + fetchID + `"}`; s.sent[0] != want {
		t.Errorf("sent %s", s.sent[0])
	}
	// It is no repetition of the request that began the task.
	if want := (zone.Meta{CorrelationID: "c-1", IdempotencyKey: fetchID, Affinity: "a-1", Task: taskID}); s.meta != want {
		t.Errorf("meta %+v", s.meta)
	}
	s.body = `{"jsonrpc":"2.0","result":{"name":"x"},"id":"` + fetchID + `"}`
	card, _, err := c.Card(t.Context(), zone.Meta{})
	if err != nil || string(card) != `{"name":"x"}` || s.sent[1] != `{"jsonrpc":"2.0","method":"get_agent_card","id":"`+fetchID+`"}` {
		t.Errorf("%s, %v, sent %s", card, err, s.sent[1])
	}
	s.body = `{"jsonrpc":"2.0","result":["x"],"id":"` + fetchID + `"}`
	if _, _, err := c.Card(t.Context(), zone.Meta{}); class(err) != zone.ClassBadResponse {
		t.Errorf("a card that is a list: %v", err)
	}
	if err := c.Release(t.Context(), "a-1"); err != nil || s.released != "a-1" {
		t.Errorf("released %q, %v", s.released, err)
	}
	s.released = ""
	if err := c.Release(t.Context(), ""); err != nil || s.released != "" {
		t.Error("released what is nothing")
	}
	plain := zone.NewClient(zone.ClientConfig{Transport: struct{ zone.Transport }{s}})
	if err := plain.Release(t.Context(), "a-1"); err != nil {
		t.Errorf("a transport that holds nothing: %v", err)
	}
}

func class(err error) zone.Class {
	if e, ok := errors.AsType[*zone.TransportError](err); ok {
		return e.Class
	}
	return ""
}

// told is what a caller learns of a response.
func told(v any, err error) string {
	var text []byte
	switch e := err.(type) {
	case nil:
		text, _ = json.Marshal(v)
	case *zone.Error:
		return fmt.Sprintf("error %d %s %q foreign=%q retry=%d", e.Code, e.Reason, e.Message, e.Foreign, e.RetryAfterMS)
	case *zone.TransportError:
		return fmt.Sprintf("%s: %v", e.Class, e.Err)
	default:
		return fmt.Sprintf("%T", err)
	}
	return string(text)
}

// TestZN4_Responses reads responses of every kind: those of our zone, those of
// foreign ones, and what is none (zones.md §2.1, §4.1, §7).
func TestZN4_Responses(t *testing.T) {
	const id = `,"id":"` + taskID + `"}`
	ok := func(result string) string { return `{"jsonrpc":"2.0","result":` + result + id }
	fails := func(text string) string { return `{"jsonrpc":"2.0","error":` + text + id }
	const noJSON, noObject = "bad-response: bad response: it is no JSON in UTF-8", "bad-response: bad response: it is no JSON object"
	const cut = "unknown-outcome: bad response: it ends in the middle"
	either := "bad-response: bad response: it must have either a result or an error"
	other := "bad-response: bad response: it has the id of another request"
	tests := []struct{ name, body, want string }{
		{"success", ok(`{"status":"success","response_text":"hi"}`), `{"status":"success","response_text":"hi"}`},
		{
			"all", ok(`{"status":"success","response_text":"hi","channel":"C1","thread_ts":"1","correlation_id":"c","original_message_ts":"7","n":9007199254740993,"bot_token":"x"}`),
			`{"status":"success","response_text":"hi","channel":"C1","thread_ts":"1","correlation_id":"c","n":9007199254740993,"original_message_ts":"7"}`,
		},
		{"empty-answer", ok(`{"status":"success","response_text":""}`), `{"status":"success","response_text":""}`},
		{
			"token-echoed", ok(`{"status":"success","response_text":"use ` + token + `","bot_token":"` + token + `","more":["` + token + `"]}`),
			`{"status":"success","response_text":"use [redacted]","more":["[redacted]"]}`,
		},
		{"accepted", ok(`{"status":"accepted","task_id":"t-1","poll_after_ms":2000}`), `{"status":"accepted","task_id":"t-1","poll_after_ms":2000}`},
		{"poll-after-odd", ok(`{"status":"accepted","task_id":"t-1","poll_after_ms":"soon"}`), `{"status":"accepted","task_id":"t-1"}`},
		{"poll-after-negative", ok(`{"status":"accepted","task_id":"t-1","poll_after_ms":-5}`), `{"status":"accepted","task_id":"t-1"}`},
		{"poll-after-for-ever", ok(`{"status":"accepted","task_id":"t-1","poll_after_ms":1e300}`), `{"status":"accepted","task_id":"t-1","poll_after_ms":600000}`},
		{"accepted-without-task", ok(`{"status":"accepted"}`), "bad-response: bad response: it accepts without a task_id"},
		{"accepted-with-a-long-task", ok(`{"status":"accepted","task_id":"` + strings.Repeat("t", 1025) + `"}`), "bad-response: bad response: its task_id has 1025 bytes, the limit is 1024"},
		{
			"file", ok(`{"status":"success","file_artifact":{"artifactId":"a","name":"n","parts":[{"kind":"file","contentBase64":"aGk=","fileName":"a","mimeType":"t/p"}]}}`),
			`{"status":"success","response_text":"","file_artifact":{"artifactId":"a","name":"n","parts":[{"kind":"file","contentBase64":"aGk=","fileName":"a","mimeType":"t/p"}]}}`,
		},
		{"no-text", ok(`{"status":"success"}`), "bad-response: bad response: a success without response_text"},
		{"text-null", ok(`{"status":"success","response_text":null}`), "bad-response: bad response: a success without response_text"},
		{"text-number", ok(`{"status":"success","response_text":5}`), "bad-response: bad response: result: response_text must be a string"},
		{"text-of-other-case", ok(`{"status":"success","Response_Text":"x"}`), "bad-response: bad response: result: Response_Text must be spelled response_text"},
		{"no-status", ok(`{"response_text":"hi"}`), "bad-response: bad response: its result has no status"},
		{"other-status", ok(`{"status":"done","response_text":"hi"}`), "bad-response: bad response: its result has a status that is none of execute_task"},
		{"result-null", ok(`null`), "bad-response: bad response: its result is no object"},
		{"result-string", ok(`"hi"`), "bad-response: bad response: its result is no object"},
		{"result-array", ok(`[]`), "bad-response: bad response: its result is no object"},

		{"empty", "", "bad-response: bad response: it is empty"},
		{"spaces", " \n", "bad-response: bad response: it is empty"},
		{"null", "null", noObject},
		{"array", "[" + ok(`{}`) + "]", noObject},
		{"string", `"ok"`, noObject},
		{"html", "<html>502</html>", noObject},
		{"events", "data: {}\n\n", noObject},
		{"nan", ok(`{"status":"success","response_text":NaN}`), noJSON},
		{"byte-order-mark", "\xef\xbb\xbf" + ok(`{}`), noObject},
		{"invalid-utf-8", ok("{\"status\":\"success\",\"response_text\":\"\xff\"}"), noJSON},
		{"lone-surrogate", ok(`{"status":"success","response_text":"\ud83d"}`), noJSON},
		{"two", ok(`{}`) + ok(`{}`), noJSON},
		{"member-twice", ok(`{"status":"success","response_text":"a","response_text":"b"}`), "bad-response: bad response: result.response_text must be there only once"},
		{"deep", ok(strings.Repeat("[", 80) + strings.Repeat("]", 80)), "bad-response: bad response: it is nested more than 64 levels deep"},
		{"large", ok(`"` + strings.Repeat("x", 1<<16) + `"`), "too-large: the response has 65609 bytes, the limit is 65536"},

		{"no-version", `{"result":{}` + id, `bad-response: bad response: it is not marked as JSON-RPC "2.0"`},
		{"version-1", `{"jsonrpc":"1.0","result":{}` + id, `bad-response: bad response: it is not marked as JSON-RPC "2.0"`},
		{"neither", `{"jsonrpc":"2.0"` + id, either},
		{"both", `{"jsonrpc":"2.0","result":{},"error":{"code":1,"message":"x"}` + id, either},
		{"error-null-beside", `{"jsonrpc":"2.0","result":{},"error":null` + id, either},
		{"no-id", `{"jsonrpc":"2.0","result":{}}`, "bad-response: bad response: it has no id"},
		{"id-null", `{"jsonrpc":"2.0","result":{},"id":null}`, other},
		{"id-other", `{"jsonrpc":"2.0","result":{},"id":"x"}`, other},
		{"id-upper-case", `{"jsonrpc":"2.0","result":{},"id":"` + strings.ToUpper(taskID) + `"}`, other},
		{"id-number", `{"jsonrpc":"2.0","result":{},"id":1}`, other},
		{"id-escaped", strings.Replace(ok(`{"status":"success","response_text":"hi"}`), `"id":"6`, `"id":"\u0036`, 1), `{"status":"success","response_text":"hi"}`},

		{"error", fails(`{"code":-32603,"message":"Internal error","data":{"reason":"internal","correlation_id":"c-1"}}`), `error -32603 internal "Internal error" foreign="" retry=0`},
		{"error-overloaded", fails(`{"code":-32000,"message":"m","data":{"reason":"overloaded","retry_after_ms":7000}}`), `error -32000 overloaded "m" foreign="" retry=7000`},
		{"error-retry-negative", fails(`{"code":-32000,"message":"m","data":{"reason":"overloaded","retry_after_ms":-7}}`), `error -32000 overloaded "m" foreign="" retry=0`},
		{"error-retry-for-ever", fails(`{"code":-32000,"message":"m","data":{"reason":"overloaded","retry_after_ms":9000000000}}`), `error -32000 overloaded "m" foreign="" retry=600000`},
		{"error-without-data", fails(`{"code":-32001,"message":"m"}`), `error -32001 timeout "m" foreign="" retry=0`},
		{"error-server", fails(`{"code":-32042,"message":"m"}`), `error -32042 internal "m" foreign="" retry=0`},
		{"error-data-odd", fails(`{"code":-32602,"message":"m","data":[1]}`), `error -32602 invalid_params "m" foreign="" retry=0`},
		{"error-reason-odd", fails(`{"code":-32602,"message":"m","data":{"reason":"<b>\n"}}`), `error -32602 invalid_params "m" foreign="" retry=0`},
		{"error-of-an-exception", fails(`{"code":-32603,"message":"Traceback\n\u001b[31m token=xoxp-12-ab ` + token + `","data":{"detail":"raw"}}`), `error -32603 internal "Traceback  [31m token=[redacted] [redacted]" foreign="" retry=0`},
		{"error-long", fails(`{"code":-32603,"message":"` + strings.Repeat("é", 3000) + `"}`), `error -32603 internal "` + strings.Repeat("é", 128) + `…" foreign="" retry=0`},
		{"error-string", fails(`"boom"`), "bad-response: bad response: its error is no object with code and message"},
		{"error-null", fails(`null`), "bad-response: bad response: its error is no object with code and message"},
		{"error-code-string", fails(`{"code":"E1","message":"m"}`), "bad-response: bad response: the code of its error is no integer"},
		{"error-code-fraction", fails(`{"code":1.5,"message":"m"}`), "bad-response: bad response: the code of its error is no integer"},
		{"error-no-code", fails(`{"message":"m"}`), "bad-response: bad response: the code of its error is no integer"},
		{"error-no-message", fails(`{"code":1}`), "bad-response: bad response: the message of its error is no string"},
		{"error-id-null", `{"jsonrpc":"2.0","error":{"code":-32603,"message":"m"},"id":null}`, "bad-response: bad response: an error with the id of another request"},
		{"error-id-other", `{"jsonrpc":"2.0","error":{"code":-32600,"message":"m"},"id":"x"}`, "bad-response: bad response: an error with the id of another request"},
		{"parse-error-null", `{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"},"id":null}`, `error -32700 parse_error "m" foreign="" retry=0`},
		{"invalid-null", `{"jsonrpc":"2.0","error":{"code":-32600,"message":"m"},"id":null}`, `error -32600 invalid_request "m" foreign="" retry=0`},
		{"invalid-own", fails(`{"code":-32600,"message":"m"}`), `error -32600 invalid_request "m" foreign="" retry=0`},
		{"unauthorized-null", `{"jsonrpc":"2.0","error":{"code":-32000,"message":"m","data":{"reason":"unauthorized"}},"id":null}`, `error -32000 unauthorized "m" foreign="" retry=0`},

		{"status-error", ok(`{"status":"error","error_code":"bedrock_timeout","error_message":"raw ` + token + `"}`), `error -32001 timeout "the task took longer than it may" foreign="bedrock_timeout" retry=0`},
		{"status-error-throttled", ok(`{"status":"error","error_code":"bedrock_throttling"}`), `error -32000 overloaded "overloaded, try again later" foreign="bedrock_throttling" retry=0`},
		{"status-error-file", ok(`{"status":"error","error_code":"unsupported_file_type"}`), `error -32000 attachment "an attachment could not be read" foreign="unsupported_file_type" retry=0`},
		{"status-error-missing", ok(`{"status":"error","error_code":"missing_text"}`), `error -32602 invalid_params "Invalid params" foreign="missing_text" retry=0`},
		{"status-error-new", ok(`{"status":"error","error_code":"something_new"}`), `error -32000 task_failed "the task failed" foreign="something_new" retry=0`},
		{"status-error-odd", ok(`{"status":"error","error_code":"<script>"}`), `error -32000 task_failed "the task failed" foreign="" retry=0`},
		{"status-error-alone", ok(`{"status":"error"}`), `error -32000 task_failed "the task failed" foreign="" retry=0`},

		{"runtime-sdk", `{"error":"KeyError: secret"}`, `bad-response: bad response: it is not marked as JSON-RPC "2.0"`},
		{"fastify", `{"statusCode":415,"code":"FST_ERR","error":"Unsupported Media Type","message":"m"}`, `bad-response: bad response: it is not marked as JSON-RPC "2.0"`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := &scripted{body: tc.body, info: zone.Info{Status: 200, ProviderRequestID: "p-1"}}
			res, info, err := client(s, zone.ProfileStrict).Ask(t.Context(), question())
			if got := told(res, err); got != tc.want {
				t.Errorf("%.200s\n got %.400s\nwant %s", tc.body, got, tc.want)
			}
			for name := range res.More {
				if name != "n" && name != "more" && name != "original_message_ts" {
					t.Errorf("%s is in More", name)
				}
			}
			if e, ok := err.(*zone.TransportError); info != s.info || ok && e.Info != s.info {
				t.Errorf("information got lost: %+v, %v", info, err)
			}
		})
	}
	whole := ok(`{"status":"success","response_text":"a\u00e9é\n","more":[1,{"x":null}]}`)
	for n := 1; n < len(whole); n++ {
		_, _, err := client(&scripted{body: whole[:n]}, zone.ProfileStrict).Ask(t.Context(), question())
		if got := told(nil, err); got != cut {
			t.Errorf("cut after %d bytes: %s", n, got)
		}
	}
}

// TestZN4_ForeignStatus tells failures of a foreign zone while it had the request
// from refusals of it.
func TestZN4_ForeignStatus(t *testing.T) {
	for status, want := range map[int]zone.Class{200: zone.ClassBadResponse, 400: zone.ClassBadResponse, 415: zone.ClassBadResponse, 500: zone.ClassUnknownOutcome, 503: zone.ClassUnknownOutcome} {
		s := &scripted{body: `{"error":"ValueError: ` + token + `"}`, info: zone.Info{Status: status}}
		_, _, err := client(s, zone.ProfileStrict).Ask(t.Context(), question())
		if class(err) != want || strings.Contains(err.Error(), "ValueError") {
			t.Errorf("status %d: %v, want %s", status, err, want)
		}
	}
	s := &scripted{body: `{"jsonrpc":"2.0","error":{"code":-32603,"message":"m"},"id":"` + taskID + `"}`, info: zone.Info{Status: 500}}
	if _, _, err := client(s, zone.ProfileStrict).Ask(t.Context(), question()); class(err) != "" {
		t.Errorf("a JSON-RPC error with status 500: %v", err)
	}
}

// TestZN5_AsyncResponses reads the results of get_async_task_result.
func TestZN5_AsyncResponses(t *testing.T) {
	tests := map[string]string{
		`{"status":"running"}`: `{"status":"running"}`,
		`{"status":"completed","result":{"status":"success","response_text":"hi"}}`: `{"status":"completed","result":{"status":"success","response_text":"hi"}}`,
		`{"status":"completed","result":{"status":"error","error_code":"generic"}}`: `{"status":"failed","error":{"code":-32603,"message":"Internal error","data":{"reason":"internal"}}}`,
		`{"status":"completed"}`:                                                   "bad-response: bad response: a completed task without a result",
		`{"status":"completed","result":null}`:                                     "bad-response: bad response: its result is no object",
		`{"status":"completed","result":"hi"}`:                                     "bad-response: bad response: its result is no object",
		`{"status":"completed","result":{"status":"accepted","task_id":"x"}}`:      "bad-response: bad response: a completed task that is not",
		`{"status":"failed","error":{"code":-32001,"message":"m","data":{"x":1}}}`: `{"status":"failed","error":{"code":-32001,"message":"m","data":{"reason":"timeout"}}}`,
		`{"status":"failed","error":"raw text"}`:                                   `{"status":"failed","error":{"code":-32000,"message":"the task failed","data":{"reason":"task_failed"}}}`,
		`{"status":"failed"}`:                                                      `{"status":"failed","error":{"code":-32000,"message":"the task failed","data":{"reason":"task_failed"}}}`,
		`{"status":"expired"}`:                                                     `{"status":"expired","error":{"code":-32000,"message":"no such task, or it was long ago","data":{"reason":"unknown_task"}}}`,
		`{"status":"success","response_text":"hi"}`:                                "bad-response: bad response: its result has a status that is none of get_async_task_result",
		`{}`:           "bad-response: bad response: its result has a status that is none of get_async_task_result",
		`{"status":5}`: "bad-response: bad response: result: status must be a string",
		`[]`:           "bad-response: bad response: its result is no object",
	}
	for result, want := range tests {
		s := &scripted{body: `{"jsonrpc":"2.0","result":` + result + `,"id":"` + fetchID + `"}`}
		res, _, err := client(s, zone.ProfileRelaxed).Fetch(t.Context(), zone.Query{TaskID: taskID}, zone.Meta{})
		if got := told(res, err); got != want {
			t.Errorf("%s\n got %s\nwant %s", result, got, want)
		}
	}
}

// TestZN5_LargestResponse: what the other zone sends with the default of its max_result,
// 10 MiB, is read by default.
func TestZN5_LargestResponse(t *testing.T) {
	before, after := `{"jsonrpc":"2.0","result":{"status":"success","response_text":"`, `"},"id":"`+taskID+`"}`
	s := &scripted{}
	c := zone.NewClient(zone.ClientConfig{Transport: s, Profile: zone.ProfileRelaxed})
	for extra, want := range map[int]zone.Class{0: "", 1: zone.ClassTooLarge} {
		s.body = before + strings.Repeat("x", 10<<20-len(before)-len(after)+extra) + after
		if _, _, err := c.Ask(t.Context(), question()); class(err) != want || (err == nil) != (want == "") {
			t.Errorf("%d bytes: %.200v", len(s.body), err)
		}
	}
}

// TestZN5_Files leaves out files that are beyond the limit or none, and keeps the
// answer that came with them.
func TestZN5_Files(t *testing.T) {
	file := func(content, more string) string {
		return `{"artifactId":"a","name":"n","parts":[{"kind":"file","contentBase64":"` + content + `","fileName":"a.txt","mimeType":"text/plain"}` + more + `]}`
	}
	for text, want := range map[string]string{
		file(strings.Repeat("QUFB", 33), ""):    "",
		file(strings.Repeat("QUFB", 34), ""):    zone.FileTooLarge,
		file(strings.Repeat("QUFB", 10000), ""): zone.FileTooLarge,
		file("***", ""):                         zone.FileMalformed,
		file("QUFB", `,{}`):                     zone.FileMalformed,
		`{"parts":[{"kind":"text"}]}`:           zone.FileMalformed,
		`{}`:                                    zone.FileMalformed,
		`"x"`:                                   zone.FileMalformed,
		`[]`:                                    zone.FileMalformed,
	} {
		s := &scripted{body: `{"jsonrpc":"2.0","result":{"status":"success","response_text":"hi","file_artifact":` + text + `},"id":"` + taskID + `"}`}
		res, _, err := client(s, zone.ProfileRelaxed).Ask(t.Context(), question())
		if err != nil || res.ResponseText != "hi" || res.FileRefused != want || (res.FileArtifact == nil) != (want != "") {
			t.Errorf("%.80s: %q, want %q; %v", text, res.FileRefused, want, err)
		}
	}
}

// TestZN6_TransportErrors passes on what a transport says, and takes the worst from
// one that says nothing of use.
func TestZN6_TransportErrors(t *testing.T) {
	known := &zone.TransportError{Class: zone.ClassThrottled, Info: zone.Info{Attempts: 3}, Err: errors.New("429")}
	for _, tc := range []struct {
		err  error
		want zone.Class
	}{{known, zone.ClassThrottled}, {fmt.Errorf("wrapped: %w", known), zone.ClassThrottled}, {context.DeadlineExceeded, zone.ClassUnknownOutcome}} {
		_, info, err := client(&scripted{err: tc.err}, zone.ProfileRelaxed).Ask(t.Context(), question())
		if class(err) != tc.want || tc.want == zone.ClassThrottled && info.Attempts != 3 {
			t.Errorf("%v: %v, %+v", tc.err, err, info)
		}
		if !errors.Is(err, tc.err) && tc.want == zone.ClassUnknownOutcome {
			t.Errorf("the reason got lost: %v", err)
		}
	}
	c := question()
	c.Task.Text = strings.Repeat("x", zone.MaxPayload)
	s := &scripted{}
	if _, _, err := client(s, zone.ProfileRelaxed).Ask(t.Context(), c); class(err) != zone.ClassTooLarge || len(s.sent) > 0 {
		t.Errorf("%v, sent %d", err, len(s.sent))
	}
}

// TestZN6_Classes says which requests may be sent again: those that nobody began.
func TestZN6_Classes(t *testing.T) {
	for class, safe := range map[zone.Class]bool{
		zone.ClassNotSent: true, zone.ClassThrottled: true, zone.ClassConflict: true, zone.ClassUnavailable: true,
		zone.ClassAuth: false, zone.ClassTooLarge: false, zone.ClassUnknownOutcome: false, zone.ClassBadResponse: false, "new": false,
	} {
		if class.Safe() != safe {
			t.Errorf("%s: %v", class, class.Safe())
		}
	}
}

// TestZN4_NullIDs answers with the id null whatever id there was, where ZN-4 says so.
func TestZN4_NullIDs(t *testing.T) {
	codec := zone.NewCodec(zone.ProfileRelaxed)
	for _, r := range zone.Reasons() {
		want := `"id":"x"}`
		if r == zone.ReasonParseError || r == zone.ReasonInvalidRequest {
			want = `"id":null}`
		}
		if got := string(codec.EncodeError(jsonrpc.StringID("x"), zone.NewError(r))); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s", r, got)
		}
	}
	if got := string(codec.EncodeError(jsonrpc.StringID("x"), &zone.Error{Code: 5, Message: "\xff", Reason: "\xff"})); !strings.Contains(got, `"message":"\ufffd"`) {
		t.Errorf("a message that is not UTF-8: %s", got)
	}
}

// TestZN4_Reasons gives every reason a code and a text.
func TestZN4_Reasons(t *testing.T) {
	codes := map[zone.Reason]jsonrpc.Code{
		zone.ReasonParseError: -32700, zone.ReasonInvalidRequest: -32600, zone.ReasonUnknownMethod: -32601, zone.ReasonInvalidParams: -32602,
		zone.ReasonIDReused: -32602, zone.ReasonInternal: -32603, zone.ReasonTimeout: -32001,
	}
	texts := make(map[string]bool)
	for _, r := range zone.Reasons() {
		want := codes[r]
		if want == 0 {
			want = zone.CodeServer
		}
		e := zone.NewError(r)
		if e.Code != want || e.Reason != r || e.Message == "" || texts[e.Message] {
			t.Errorf("%s: %v", r, e)
		}
		texts[e.Message] = true
	}
	if len(texts) != 15 {
		t.Errorf("%d reasons", len(texts))
	}
}
