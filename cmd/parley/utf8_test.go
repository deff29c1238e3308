package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTextsThatAreNotUTF8: what a terminal of another encoding gives is refused, since
// another text would reach the server in its place.
func TestTextsThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	const latin1 = "M\xfcller"
	for _, line := range [][]string{
		{"run", "start", "hello", "--set", "name=" + latin1},
		{"run", "start", "hello", "--input", `{"name":"` + latin1 + `"}`},
		{"run", "start", "hello", "--label", "name=" + latin1},
		{"run", "cancel", "run-1", "--reason", latin1},
		{"run", "answer", "run-1", "--text", latin1},
		{"agent", "call", "greeter", "--text", latin1},
		{"event", "publish", "paid", "--key", latin1},
		{"schedule", "add", "hello", "--every", "1h", "--name", latin1},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			t.Errorf("%q: %s %s was sent", line, r.Method, r.URL)
		}))
		a, _, errs := apiApp(t, s.URL, true)
		if code := a.execute(t.Context(), line); code != exitUsage || !strings.Contains(errs.String(), "UTF-8") {
			t.Errorf("%q: exit code %d, %s", line, code, errs)
		}
		s.Close()
	}
}
