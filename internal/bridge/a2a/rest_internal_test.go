package a2a

import (
	"fmt"
	"testing"
)

// TestRESTErrors: which error of A2A an error of HTTP+JSON is. A reason of A2A
// says it; without one the status does, as far as it can (A2A 1.0 §5.4, §11.6).
func TestRESTErrors(t *testing.T) {
	every := []verb{verbSend, verbStream, verbGet, verbList, verbCancel, verbSubscribe}
	one := []verb{verbGet, verbCancel, verbSubscribe}
	info := func(reason, domain string) string {
		return `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"` + reason + `"` + domain + `}`
	}
	const own = `,"domain":"a2a-protocol.org"`
	for _, tt := range []struct {
		name    string
		status  int
		details string
		verbs   []verb
		want    int64 // 0: none
	}{
		{"bad request", 400, "", every, codeInvalidParams},
		{"unprocessable", 422, "", every, codeInvalidParams},
		{"no such path", 404, "", []verb{verbSend, verbStream, verbList}, codeMethodNotFound},
		{"no such task", 404, "", one, codeTaskNotFound},
		{"no such operation", 405, "", every, codeUnsupported},
		{"not implemented", 501, "", every, codeUnsupported},
		{"not cancelable 1.0.0", 409, "", []verb{verbCancel}, codeNotCancelable},
		{"a conflict", 409, "", []verb{verbSend, verbGet, verbList, verbSubscribe}, 0},
		{"content type 1.0.0", 415, "", every, codeContentType},
		{"internal", 500, "", every, codeInternal},
		{"unauthenticated", 401, "", every, codeUnauthenticated},
		{"unauthorized", 403, "", every, codeUnauthorized},
		{"unavailable", 503, "", every, 0},

		{"a reason", 400, info("PUSH_NOTIFICATION_NOT_SUPPORTED", own), every, codePushNotSupported},
		{"a reason without a domain", 400, info("PUSH_NOTIFICATION_NOT_SUPPORTED", ""), every, codePushNotSupported},
		{"a reason against the status", 500, info("TASK_NOT_FOUND", own), every, codeTaskNotFound},
		{"behind the agent's own", 400, info("QUOTA", "") + "," + info("VERSION_NOT_SUPPORTED", own), every, codeVersionNotSupported},
		{"behind somebody else's", 400, info("TASK_NOT_FOUND", `,"domain":"example.org"`) + "," + info("VERSION_NOT_SUPPORTED", own), every, codeVersionNotSupported},
		{"somebody else's", 400, info("TASK_NOT_FOUND", `,"domain":"example.org"`), every, codeInvalidParams},
		{"no reason", 400, `{"@type":"type.googleapis.com/google.rpc.ErrorInfo"},"odd",null`, every, codeInvalidParams},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forms := []string{fmt.Sprintf(`{"error":{"code":%d,"status":"X","message":"m","details":[%s]}}`, tt.status, tt.details)}
			if tt.details == "" {
				forms = append(forms, fmt.Sprintf(`{"type":"about:blank","title":"m","status":%d}`, tt.status))
			}
			for _, body := range forms {
				for _, vb := range tt.verbs {
					_, f, err := (&restBinding{}).open(operation{verb: vb}, []byte(body))
					if err != nil || f == nil || f.code != tt.want || f.hasCode != (tt.want != 0) || f.message != "m" {
						t.Errorf("%v, %s: %+v, %v, want the code %d", vb, body, f, err, tt.want)
					}
				}
			}
		})
	}
}
