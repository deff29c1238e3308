package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// A request of one's own goes out with the key and the headers that were given, and
// its answer comes as it is.
func TestSend(t *testing.T) {
	var got *http.Request
	var sent string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, sent = r, string(b)
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "as it is\x00")
	})
	resp, err := c.Send(t.Context(), client.Request{
		Method: "POST", Path: "/api/v1/a%2Fb?x=1&x=2", Body: []byte("name: a"),
		Header: http.Header{"Content-Type": {"application/yaml"}, "Authorization": {"Bearer other"}, "X-A": {"1", "2"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "as it is\x00" || resp.Status != http.StatusAccepted || resp.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("%d %q %v", resp.Status, body, err)
	}
	if got.Method != http.MethodPost || got.RequestURI != "/api/v1/a%2Fb?x=1&x=2" || sent != "name: a" || got.Header.Get("Content-Type") != "application/yaml" ||
		strings.Contains(got.Header.Get("Authorization"), "other") || len(got.Header["X-A"]) != 2 {
		t.Errorf("%s %s %v %q", got.Method, got.RequestURI, got.Header, sent)
	}
}

// What could lead the key away from the server is not sent.
func TestSendStaysWithTheServer(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent %s", r.RequestURI) })
	for _, path := range []string{
		"", "runs", "@elsewhere.example/", ":80@elsewhere.example/", "//elsewhere.example/", "http://elsewhere.example/", "/..", "/a/../b", "/./a",
		"/%2e%2e/a", "/a/%2E./b", "/..%2fa", `/..\a`, "/%5c", "/a#b", "/a#", "/%zz", "/a\nb",
	} {
		resp, err := c.Send(t.Context(), client.Request{Method: "GET", Path: path})
		if parley.CodeOf(err) != parley.CodeInvalid {
			t.Errorf("%q: %v", path, err)
		}
		if err == nil {
			resp.Body.Close()
		}
	}
}

// Refusals and breaks have the form that they have everywhere.
func TestSendFails(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gone":
			http.Error(w, "no", http.StatusNotFound)
		case "/moved":
			http.Redirect(w, r, "/gone", http.StatusFound)
		default:
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
		}
	})
	for path, status := range map[string]int{"/gone": http.StatusNotFound, "/moved": http.StatusFound} {
		resp, err := c.Send(t.Context(), client.Request{Method: "GET", Path: path})
		if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Status != status {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			resp.Body.Close()
		}
	}
	resp, err := c.Send(t.Context(), client.Request{Method: "GET", Path: "/half"})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); !errors.Is(err, client.ErrUnreachable) || string(body) != "half" {
		t.Errorf("%q %v", body, err)
	}
}

// A stream ends with the context, as an error of the context.
func TestSendIsInterrupted(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := c.Send(ctx, client.Request{Method: "GET", Path: "/stream"})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 6)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first\n" {
		t.Fatalf("%q %v", first, err)
	}
	cancel()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnreachable) {
		t.Errorf("%v", err)
	}
}
