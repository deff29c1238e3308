package jsonrpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// pieces counts what is written, and fails after so many.
type pieces struct {
	bytes.Buffer
	n, most int
}

func (p *pieces) Write(b []byte) (int, error) {
	if p.n++; p.most > 0 && p.n > p.most {
		return 0, io.ErrClosedPipe
	}
	return p.Buffer.Write(b)
}

// TestRespondTo: a long result from an io.Reader is written while it is read, in
// pieces; one that is cut off, or is no JSON, is an error, as the writer's is. Short
// ones and batches come whole.
func TestRespondTo(t *testing.T) {
	long := `"` + strings.Repeat("x", 100<<10) + `"`
	const call = `{"jsonrpc":"2.0","id":7,"method":"m"}`
	for name, c := range map[string]struct {
		msg    string
		result io.Reader
		most   int // writes
		// want is what was appended and written, fault a piece of the error, notices what the hooks are told.
		want, fault string
		notices     int
	}{
		"long":          {call, strings.NewReader(long), 0, `{"jsonrpc":"2.0","id":7,"result":` + long + `}`, "", 0},
		"exactly":       {call, strings.NewReader(long[:streamPiece-1] + `"`), 0, `{"jsonrpc":"2.0","id":7,"result":` + long[:streamPiece-1] + `"}`, "", 0},
		"short":         {call, strings.NewReader(`[1]`), 0, `{"jsonrpc":"2.0","id":7,"result":[1]}`, "", 0},
		"short, broken": {call, strings.NewReader(`[1`), 0, `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"internal error"`, "", 1},
		"batch":         {`[` + call + `]`, strings.NewReader(long), 0, `[{"jsonrpc":"2.0","id":7,"result":` + long + `}]`, "", 0},
		"cut off":       {call, strings.NewReader(long[:90<<10]), 0, "", "unexpected end", 1},
		"no JSON":       {call, strings.NewReader(long + "]"), 0, "", "", 1},
		"fails":         {call, io.MultiReader(strings.NewReader(long[:90<<10]), failing{}), 0, "", "disk on fire", 1},
		"panics":        {call, io.MultiReader(strings.NewReader(long[:90<<10]), panicking{}), 0, "", "while it is read", 1},
		"not taken":     {call, strings.NewReader(long), 2, "", "closed pipe", 0},
	} {
		t.Run(name, func(t *testing.T) {
			notices := 0
			r := NewResponder(Config{
				MaxMessage: 1 << 20,
				Handler:    HandlerFunc(func(context.Context, *Request) (any, error) { return c.result, nil }),
				Hooks:      Hooks{Notice: func(Notice) { notices++ }},
			})
			defer r.Close()
			w := &pieces{most: c.most}
			got, err := r.RespondTo(t.Context(), []byte(c.msg), nil, w)
			if notices != c.notices {
				t.Errorf("%d notices", notices)
			}
			if c.want == "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) || strings.HasSuffix(w.String(), "}") {
					t.Errorf("error %v after %d bytes", err, w.Len())
				}
				return
			}
			if err != nil || !strings.HasPrefix(w.String()+string(got), c.want) {
				t.Errorf("%v: %.100s", err, w.String()+string(got))
			}
			if whole := len(got) > 0; whole == (name == "long" || name == "exactly") {
				t.Errorf("appended %d bytes, written %d", len(got), w.Len())
			}
		})
	}
}

// hiccup fails once, and takes everything afterwards.
type hiccup struct{ pieces }

func (h *hiccup) Write(b []byte) (int, error) {
	if h.n++; h.n == 2 {
		return 0, io.ErrShortWrite
	}
	return h.Buffer.Write(b)
}

// TestRespondToHole: nothing is written behind what the writer did not take, and
// the error is the writer's.
func TestRespondToHole(t *testing.T) {
	r := NewResponder(Config{Handler: HandlerFunc(func(context.Context, *Request) (any, error) {
		return strings.NewReader(`"` + strings.Repeat("x", 5*streamPiece) + `"`), nil
	})})
	defer r.Close()
	var w hiccup
	_, err := r.RespondTo(t.Context(), []byte(`{"jsonrpc":"2.0","id":7,"method":"m"}`), nil, &w)
	if !errors.Is(err, io.ErrShortWrite) || w.n != 2 {
		t.Errorf("%v after %d writes", err, w.n)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }
