package rpchttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// TestBodyMemory proves that a POST has the memory of what came of its body, and
// not of what it says that it will send.
func TestBodyMemory(t *testing.T) {
	s := Handler(ServerConfig{})
	defer s.Close()
	cut := errors.New("cut")
	for _, c := range []struct{ come, most int }{{1, keptBuffer}, {keptBuffer, 1<<20 + 1}, {1 << 20, 1<<20 + 1}} {
		text := bytes.Repeat([]byte("x"), c.come)
		x := new(exchange)
		body := io.MultiReader(bytes.NewReader(text), iotest.ErrReader(cut))
		err := s.readBody(x, &http.Request{ContentLength: 1 << 20, Body: io.NopCloser(body)})
		if whole := c.come == 1<<20; (err == nil) != whole || !bytes.Equal(x.body, text) {
			t.Errorf("%d bytes of %d came: %v, %d bytes", c.come, 1<<20, err, len(x.body))
		}
		if cap(x.body) > c.most {
			t.Errorf("%d bytes of %d came, and %d are kept", c.come, 1<<20, cap(x.body))
		}
	}
	short := strings.NewReader("{}")
	x := new(exchange)
	if err := s.readBody(x, &http.Request{ContentLength: 2, Body: io.NopCloser(short)}); err != nil || string(x.body) != "{}" || cap(x.body) > firstRead {
		t.Errorf("%v, %s, %d", err, x.body, cap(x.body))
	}
}
