package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// uploads is a handler that streams the params of each method.
type uploads struct{ HandlerFunc }

func (uploads) StreamsParams(method []byte) bool { return string(method) != "whole" }

// write sends text as it is, in pieces.
func (p *rawPeer) write(text string) {
	p.t.Helper()
	if _, err := p.s.Write([]byte(text)); err != nil {
		p.t.Errorf("peer: writing: %v", err)
	}
}

const (
	uploadHead = `{"jsonrpc":"2.0","id":7,"correlation_id":"c-1","method":"upload","params":["`
	uploadSize = 800_000 // bytes; Streams keep 256 KiB
)

// TestParamsStreamed proves that a handler reads params that are longer than any
// buffer while they come, and is answered for at their end (RPC-24).
func TestParamsStreamed(t *testing.T) {
	half := strings.Repeat("x", uploadSize/2)
	var meta Meta
	h := func(ctx context.Context, req *Request) (any, error) {
		if req.Params() != nil {
			t.Error("the params are there already")
		}
		first := make([]byte, 2+uploadSize/4)
		if _, err := io.ReadFull(req.ParamsReader(), first); err != nil {
			return nil, err
		}
		meta, _ = MetaFrom(ctx)
		rest, err := io.ReadAll(req.ParamsReader())
		return len(first) + len(rest), err
	}
	withPeer(t, Config{Handler: uploads{h}}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for _, end := range []string{`"]}`, `"] , "tracestate" : "x=1" }`} {
			peer.write(uploadHead + half)
			synctest.Wait()
			if meta.CorrelationID != "c-1" {
				t.Error(meta)
			}
			meta = Meta{}
			go peer.send(half + end)
			peer.want(`{"jsonrpc":"2.0","id":7,"result":800004}`)
		}
		peer.quiet()
	})
}

// TestParamsStreamedOrWhole proves that what cannot be streamed is there as a
// whole, and that Decode serves both.
func TestParamsStreamedOrWhole(t *testing.T) {
	x := strings.Repeat("x", uploadSize)
	var mux Mux
	var streamed bool
	lengths := HandlerFunc(func(_ context.Context, req *Request) (any, error) {
		streamed = req.Params() == nil
		var texts []string
		if err := req.Decode(&texts); err != nil {
			return nil, err
		}
		return len(texts[0]), nil
	})
	mux.RegisterStreaming("upload", lengths)
	mux.Register("whole", lengths)
	withPeer(t, Config{Handler: &mux}, func(t *testing.T, c *Conn, peer *rawPeer) {
		for _, m := range []struct {
			text string
			want bool
		}{
			{`{"jsonrpc":"2.0","id":7,"method":"upload","params":["` + x + `"]}`, true},
			{`{"jsonrpc":"2.0","method":"upload","params":["` + x + `"],"id":7}`, false},
			{`{"jsonrpc":"2.0","id":7,"method":"whole","params":["` + x + `"]}`, false},
			{`{"id":7,"method":"upload","params":["` + x + `"],"jsonrpc":"2.0"}`, false},
		} {
			peer.send(m.text)
			peer.want(`{"jsonrpc":"2.0","id":7,"result":800000}`)
			if streamed != m.want {
				t.Errorf("%.60s: streamed %v, want %v", m.text, streamed, m.want)
			}
		}
		peer.send(`{"jsonrpc":"2.0","id":7,"method":"upload","params":["short"]}`)
		peer.want(`{"jsonrpc":"2.0","id":7,"result":5}`)
		peer.quiet()
	})
}

// TestParamsStreamedTyped proves that a typed handler that is registered for
// streaming gets long params as it gets short ones, and not none, and that params
// that turn out to be malformed do not reach it.
func TestParamsStreamedTyped(t *testing.T) {
	var mux Mux
	called := 0
	mux.RegisterStreaming("upload", Typed(func(_ context.Context, texts []string) (int, error) {
		called++
		return len(texts[0]), nil
	}))
	x := strings.Repeat("x", uploadSize)
	withPeer(t, Config{Handler: &mux}, func(t *testing.T, c *Conn, peer *rawPeer) {
		peer.send(uploadHead + `short"]}`)
		peer.want(`{"jsonrpc":"2.0","id":7,"result":5}`)
		peer.send(uploadHead + x + `"]}`)
		peer.want(`{"jsonrpc":"2.0","id":7,"result":800000}`)
		peer.send(uploadHead + x + `"}}`)
		if got := peer.next(); !strings.Contains(got, `"code":-32700`) {
			t.Error(got)
		}
	})
	if called != 2 {
		t.Errorf("called %d times", called)
	}
}

// TestParamsStreamedFramed proves that it depends on the length of params whether
// they are streamed, and not on the pieces in which they arrive.
func TestParamsStreamedFramed(t *testing.T) {
	text := uploadHead + strings.Repeat("x", uploadSize) + `"]}`
	for name, framed := range map[string]struct {
		framing Framing
		text    string
	}{
		"lines":   {NewLineStream, text + "\n"},
		"headers": {NewHeaderStream, fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				streamed := make(chan bool, 1)
				near, far := bytePipe()
				c := NewConn(framed.framing(near), Config{Handler: uploads{func(_ context.Context, req *Request) (any, error) {
					streamed <- req.Params() == nil
					return io.Copy(io.Discard, req.ParamsReader())
				}}})
				first := strings.Index(framed.text, "jsonrpc")
				for _, piece := range []string{framed.text[:first], framed.text[first : first+20], framed.text[first+20:]} {
					synctest.Wait()
					if _, err := far.Write([]byte(piece)); err != nil {
						t.Error(err)
					}
				}
				if !<-streamed {
					t.Error("the params were there as a whole")
				}
				c.Close()
				far.Close()
			})
		})
	}
}

// TestParamsStreamedFail proves that a request that turns out to be none is
// refused as any other, whatever its handler returned, and that the connection
// goes on.
func TestParamsStreamedFail(t *testing.T) {
	x := strings.Repeat("x", uploadSize)
	var read error
	h := func(_ context.Context, req *Request) (any, error) {
		_, read = io.Copy(io.Discard, req.ParamsReader())
		return "done", nil
	}
	for _, c := range []struct {
		text, want string
		readFails  bool
	}{
		{x + "\x01" + `"]}`, `"code":-32700`, true},
		{x + `"}}`, `"code":-32700`, true},
		{x + `"]`, `"code":-32700`, false},
		{x + `"],"id":8}`, `"code":-32600`, false},
		{x + `"],"params":[]}`, `"code":-32600`, false},
		{x + `",` + strings.Repeat(`[`, 200) + strings.Repeat(`]`, 200) + `]}`, `"error":{"code":-32`, true},
		{strings.Repeat(x, 2) + `"]}`, `"code":-32600`, true},
	} {
		withPeer(t, Config{Handler: uploads{h}}, func(t *testing.T, conn *Conn, peer *rawPeer) {
			peer.send(uploadHead + c.text)
			if got := peer.next(); !strings.Contains(got, c.want) {
				t.Errorf("…%s: answered %s", c.text[len(c.text)-12:], got)
			}
			synctest.Wait()
			if (read != nil) != c.readFails {
				t.Errorf("…%s: the handler read %v", c.text[len(c.text)-12:], read)
			}
			peer.quiet()
		})
	}
}

// TestParamsStreamedDeep proves that params that are nested too deeply are refused
// as in a message that is there as a whole: with the id, unless it is no JSON.
func TestParamsStreamedDeep(t *testing.T) {
	x := strings.Repeat("x", uploadSize)
	deeply := strings.Repeat(`[`, 200) + strings.Repeat(`]`, 200)
	var read error
	h := func(_ context.Context, req *Request) (any, error) {
		_, read = io.Copy(io.Discard, req.ParamsReader())
		return "done", nil
	}
	for end, want := range map[string]string{
		`",` + deeply + `]}`:             `"id":7,"error":{"code":-32600,"message":"invalid request: the message is nested too deeply","data":{"limit":128,"unit":"levels"}}`,
		`",` + deeply + `}}`:             `"id":null,"error":{"code":-32700`,
		`",` + deeply + `],"params":[]}`: `"id":7,"error":{"code":-32600,"message":"invalid request: the member \"params\" is there twice"`,
	} {
		withPeer(t, Config{Handler: uploads{h}}, func(t *testing.T, conn *Conn, peer *rawPeer) {
			peer.send(uploadHead + x + end)
			if got := peer.next(); !strings.Contains(got, want) {
				t.Errorf("…%s: answered %s", end[len(end)-12:], got)
			}
			synctest.Wait()
			if read == nil {
				t.Errorf("…%s: the handler read it all", end[len(end)-12:])
			}
			peer.quiet()
		})
	}
}

// TestParamsStreamedEarly proves that a handler that does not read holds up
// nobody for longer than it runs, or than StallTimeout.
func TestParamsStreamedEarly(t *testing.T) {
	x := strings.Repeat("x", uploadSize)
	var after error
	h := func(_ context.Context, req *Request) (any, error) {
		if req.Method() == "sleep" {
			time.Sleep(9 * time.Second)
			_, _ = req.ParamsReader().Read(make([]byte, 1)) // the last that it takes
			time.Sleep(time.Minute)
			_, after = req.ParamsReader().Read(make([]byte, 1))
		}
		return "early", nil
	}
	withPeer(t, Config{Handler: uploads{h}, StallTimeout: 10 * time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
		peer.send(uploadHead + x + `"]}`)
		peer.want(`{"jsonrpc":"2.0","id":7,"result":"early"}`)
		start := time.Now()
		go peer.send(strings.Replace(uploadHead, "upload", "sleep", 1)+x+`"]}`, `{"jsonrpc":"2.0","id":8,"method":"m"}`)
		peer.want(`{"jsonrpc":"2.0","id":8,"result":"early"}`)
		if d := time.Since(start); d != 19*time.Second {
			t.Error("the next request waited", d)
		}
		peer.want(`{"jsonrpc":"2.0","id":7,"result":"early"}`)
		if after == nil || errors.Is(after, io.EOF) {
			t.Error("read after the stall:", after)
		}
	})
}

// TestParamsStreamedSlowly proves that a handler may take as long as it wants, as
// long as it takes something now and then.
func TestParamsStreamedSlowly(t *testing.T) {
	h := func(_ context.Context, req *Request) (any, error) {
		n, piece := 0, make([]byte, 50_000)
		for {
			time.Sleep(9 * time.Second)
			k, err := io.ReadFull(req.ParamsReader(), piece)
			if n += k; err != nil {
				return n, nil //nolint:nilerr // the length tells whether it was the end
			}
		}
	}
	withPeer(t, Config{Handler: uploads{h}, StallTimeout: 10 * time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
		half := strings.Repeat("x", uploadSize/2)
		peer.write(uploadHead + half)
		time.Sleep(5 * time.Minute) // nor is a peer that is slow held against it
		go peer.send(half + `"]}`)
		peer.want(`{"jsonrpc":"2.0","id":7,"result":800004}`)
	})
}

// TestParamsStreamedAndLent proves that no caller that reads for itself waits for
// a handler: not for one of a request that it begins to read, and not for one
// that was reading its params before.
func TestParamsStreamedAndLent(t *testing.T) {
	x := strings.Repeat("x", uploadSize)
	h := func(_ context.Context, req *Request) (any, error) {
		time.Sleep(20 * time.Second)
		n, err := io.Copy(io.Discard, req.ParamsReader())
		return n, err
	}
	fails := func(t *testing.T, c *Conn, d time.Duration) {
		t.Helper()
		start := time.Now()
		err := c.Call(t.Context(), "m", nil, nil, WithTimeout(d))
		if took := time.Since(start); !errors.Is(err, ErrTimeout) || took != d {
			t.Errorf("%v after %v, want %v", err, took, d)
		}
	}
	t.Run("before", func(t *testing.T) {
		withPeer(t, Config{Handler: uploads{h}}, func(t *testing.T, c *Conn, peer *rawPeer) {
			for range 2 * lendAfter {
				go peer.answer()
				if err := c.Call(t.Context(), "m", []int{1}, nil); err != nil {
					t.Error(err)
				}
			}
			go peer.send(uploadHead + x + `"]}`)
			fails(t, c, time.Second)
			go readAll(peer.s)
		})
	})
	t.Run("within", func(t *testing.T) {
		withPeer(t, Config{Handler: uploads{h}}, func(t *testing.T, c *Conn, peer *rawPeer) {
			go readAll(peer.s)
			peer.write(uploadHead + x[:300_000])
			time.Sleep(30 * time.Second) // what has come is read
			l := c.token.lent
			l.requests.Store(c.report.requests.Load())
			l.alone.Store(lendAfter)
			l.called(c) // by a caller whose answer came just before the request
			if l.lent.Load() {
				t.Error("callers are to read params")
			}
			go peer.send(x + x[:100_000] + `"]}`)
			fails(t, c, time.Second)
		})
	})
}

// TestParamsStreamedNoPlace proves that a request for whose handler there is no
// place is refused, once.
func TestParamsStreamedNoPlace(t *testing.T) {
	x := strings.Repeat("x", uploadSize)
	withPeer(t, Config{Handler: uploads{func(_ context.Context, req *Request) (any, error) {
		if req.Method() == "wait" {
			time.Sleep(time.Minute)
		}
		return "done", nil
	}}, MaxHandlers: 1}, func(t *testing.T, c *Conn, peer *rawPeer) {
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"wait"}`)
		go peer.send(uploadHead + x + `"]}`)
		if got := peer.next(); !strings.Contains(got, `"id":7,"error":{"code":-32050`) {
			t.Error(got)
		}
		peer.want(`{"jsonrpc":"2.0","id":1,"result":"done"}`)
		peer.quiet()
	})
}

// TestParamsStreamedCut proves that a handler that waits for the rest of its
// params learns at once that there is none, from a peer that hangs up and from
// its own side's end.
func TestParamsStreamedCut(t *testing.T) {
	var read error
	var learned time.Time
	h := func(_ context.Context, req *Request) (any, error) {
		_, read = io.Copy(io.Discard, req.ParamsReader())
		learned = time.Now()
		return nil, read
	}
	for name, cut := range map[string]func(*Conn, *rawPeer){
		"peer": func(_ *Conn, peer *rawPeer) { peer.s.Close() },
		"own":  func(c *Conn, _ *rawPeer) { c.Close() },
	} {
		withPeer(t, Config{Handler: uploads{h}, Grace: time.Second}, func(t *testing.T, c *Conn, peer *rawPeer) {
			peer.write(uploadHead + strings.Repeat("x", uploadSize))
			synctest.Wait()
			start := time.Now()
			cut(c, peer)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if read == nil {
				t.Error(name, "the params ended as if they were whole")
			}
			if d := learned.Sub(start); name == "peer" && d != 0 || d > 2*time.Second {
				t.Error(name, "the handler learned of it after", d)
			}
		})
	}
}
