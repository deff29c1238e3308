package s3_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/values"
	"github.com/parley-project/parley/internal/values/s3"
)

// bucket is as much of a server as a mark needs: one object.
type bucket struct {
	// refuses is what a write gets that has a condition, 0 if the server knows none.
	refuses int
	// faster is what another process writes right after the first look.
	faster string

	mu   sync.Mutex
	held string
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case r.URL.Path != "/b/p/"+values.MarkName:
		answer(w, http.StatusForbidden, "AccessDenied")
	case r.Method == http.MethodPut && r.Header.Get("If-None-Match") == "*" && b.refuses != 0 && (b.held != "" || b.refuses != http.StatusPreconditionFailed):
		answer(w, b.refuses, "Refused")
	case r.Method == http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			answer(w, http.StatusBadRequest, err.Error())
			return
		}
		b.held = string(body)
	case b.held == "":
		b.held, b.faster = b.faster, ""
		answer(w, http.StatusNotFound, "NoSuchKey")
	default:
		_, _ = io.WriteString(w, b.held)
	}
}

func answer(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants</Message></Error>", code)
}

// The first mark stays, on servers that know the condition for it and, but for who comes
// at the same moment, on those that do not.
func TestMark(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		*bucket
		want string
	}{
		"a server that knows it":                {&bucket{refuses: http.StatusPreconditionFailed}, "mine"},
		"another is faster":                     {&bucket{refuses: http.StatusPreconditionFailed, faster: "other"}, "other"},
		"another writes at that moment":         {&bucket{refuses: http.StatusConflict, faster: "other"}, "other"},
		"a server that passes it by":            {&bucket{}, "mine"},
		"a server that lacks it":                {&bucket{refuses: http.StatusNotImplemented}, "mine"},
		"a server that takes it for a mistake":  {&bucket{refuses: http.StatusBadRequest}, "mine"},
		"one is there that this server refuses": {&bucket{refuses: http.StatusNotImplemented, held: "other"}, "other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.bucket)
			defer server.Close()
			s, err := s3.Open(t.Context(), s3.Config{
				Endpoint: server.URL, Region: "eu-test-1", Bucket: "b", Prefix: "p/", PathStyle: true,
				AccessKey: "somebody", SecretKey: parley.NewSecret([]byte("secret-of-the-bucket")),
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				held, err := s.Mark(t.Context(), []byte("mine"))
				if err != nil || string(held) != c.want {
					t.Errorf("the mark is %q, want %q; %v", held, c.want, err)
				}
			}
			if at := s.MarkedAt(); !strings.Contains(at, "p/"+values.MarkName) || !strings.Contains(at, "bucket b") {
				t.Errorf("it is at %s", at)
			}
		})
	}
}

// Where a mark cannot be written, or not be looked for, none is given.
func TestMarkRefused(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusForbidden, http.StatusPreconditionRequired} {
		server := httptest.NewServer(&bucket{refuses: status})
		defer server.Close()
		for _, prefix := range []string{"p/", "q/"} {
			s, err := s3.Open(t.Context(), s3.Config{
				Endpoint: server.URL, Region: "eu-test-1", Bucket: "b", Prefix: prefix, PathStyle: true,
				AccessKey: "somebody", SecretKey: parley.NewSecret([]byte("secret-of-the-bucket")),
			})
			if err != nil {
				t.Fatal(err)
			}
			if held, err := s.Mark(t.Context(), []byte("mine")); err == nil {
				t.Errorf("%s, %d: the mark is %q", prefix, status, held)
			}
		}
	}
}
