package jsonrpcbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/coder/websocket"
	"github.com/lxzan/gws"
)

// The bare echoes: encoding/json and a transport, with no library between
// them. They check nothing but the grammar.
type bareRequest struct {
	Version string          `json:"jsonrpc"`
	ID      int             `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

type bareResponse struct {
	Version string          `json:"jsonrpc"`
	ID      int             `json:"id"`
	Result  json.RawMessage `json:"result"`
}

func bareAnswer(request []byte) ([]byte, error) {
	var req bareRequest
	if err := json.Unmarshal(request, &req); err != nil {
		return nil, err
	}
	return json.Marshal(bareResponse{Version: req.Version, ID: req.ID, Result: req.Params})
}

// httpClient keeps as many connections as calls are in flight.
func httpClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128, DisableCompression: true}}
}

// bareHTTP is net/http and encoding/json on both sides.
func bareHTTP(context.Context, load) (*remote, error) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			body, err = bareAnswer(body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	c := httpClient()
	return &remote{
		call: func(ctx context.Context, params []byte, into *[]byte) error {
			body, err := json.Marshal(bareRequest{Version: "2.0", ID: 1, Method: method, Params: params})
			if err != nil {
				return err
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(body))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := c.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if body, err = io.ReadAll(resp.Body); err != nil {
				return err
			}
			var answer bareResponse
			err = json.Unmarshal(body, &answer)
			*into = answer.Result
			return err
		},
		close: func() error {
			c.CloseIdleConnections()
			s.Close()
			return nil
		},
	}, nil
}

// bareWaits matches the answers of a bare WebSocket client with its calls: the
// id is the number of a waiting place.
type bareWaits struct {
	mu     sync.Mutex // of the fields below
	places []chan json.RawMessage
	free   []int
}

// call sends the request and waits. An ended connection leaves it to ctx.
func (b *bareWaits) call(ctx context.Context, params []byte, into *[]byte, send func([]byte) error) error {
	b.mu.Lock()
	if len(b.free) == 0 {
		b.free = append(b.free, len(b.places))
		b.places = append(b.places, make(chan json.RawMessage, 1))
	}
	n := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	place := b.places[n]
	b.mu.Unlock()
	body, err := json.Marshal(bareRequest{Version: "2.0", ID: n, Method: method, Params: params})
	if err == nil {
		err = send(body)
	}
	if err != nil {
		return err
	}
	select {
	case *into = <-place:
	case <-ctx.Done():
		return ctx.Err()
	}
	b.mu.Lock()
	b.free = append(b.free, n)
	b.mu.Unlock()
	return nil
}

func (b *bareWaits) answer(text []byte) error {
	var a bareResponse
	if err := json.Unmarshal(text, &a); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.ID < 0 || a.ID >= len(b.places) {
		return fmt.Errorf("no call has the id %d", a.ID)
	}
	b.places[a.ID] <- a.Result
	return nil
}

// coderWS is coder/websocket and encoding/json on both sides.
func coderWS(ctx context.Context, _ load) (*remote, error) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			_, text, err := c.Read(r.Context())
			if err == nil {
				text, err = bareAnswer(text)
			}
			if err == nil {
				err = c.Write(r.Context(), websocket.MessageText, text)
			}
			if err != nil {
				return
			}
		}
	}))
	c, _, err := websocket.Dial(ctx, s.URL, nil) //nolint:bodyclose // the connection has it
	if err != nil {
		s.Close()
		return nil, err
	}
	var reading sync.WaitGroup
	waits := new(bareWaits)
	reading.Go(func() {
		for {
			_, text, err := c.Read(ctx)
			if err == nil {
				err = waits.answer(text)
			}
			if err != nil {
				return
			}
		}
	})
	return &remote{
		call: func(ctx context.Context, params []byte, into *[]byte) error {
			return waits.call(ctx, params, into, func(b []byte) error { return c.Write(ctx, websocket.MessageText, b) })
		},
		close: func() error {
			err := c.CloseNow()
			reading.Wait()
			s.Close()
			return err
		},
	}, nil
}

// gwsEvents answers requests, or hands answers to the waiting calls.
type gwsEvents struct {
	gws.BuiltinEventHandler
	waits *bareWaits // nil on the server
}

// OnMessage is called for each message, in order.
func (e *gwsEvents) OnMessage(c *gws.Conn, m *gws.Message) {
	defer m.Close()
	if e.waits != nil {
		if e.waits.answer(m.Bytes()) != nil {
			c.WriteClose(1002, nil)
		}
		return
	}
	text, err := bareAnswer(m.Bytes())
	if err == nil {
		err = c.WriteMessage(gws.OpcodeText, text)
	}
	if err != nil {
		c.WriteClose(1002, nil)
	}
}

// gwsWS is lxzan/gws and encoding/json on both sides.
func gwsWS(context.Context, load) (*remote, error) {
	var running sync.WaitGroup
	up := gws.NewUpgrader(new(gwsEvents), nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := up.Upgrade(w, r); err == nil {
			running.Go(c.ReadLoop)
		}
	}))
	waits := new(bareWaits)
	c, _, err := gws.NewClient(&gwsEvents{waits: waits}, &gws.ClientOption{Addr: "ws" + strings.TrimPrefix(s.URL, "http")}) //nolint:bodyclose // the connection has it
	if err != nil {
		s.Close()
		return nil, err
	}
	running.Go(c.ReadLoop)
	return &remote{
		call: func(ctx context.Context, params []byte, into *[]byte) error {
			return waits.call(ctx, params, into, func(b []byte) error { return c.WriteMessage(gws.OpcodeText, b) })
		},
		close: func() error {
			err := c.WriteClose(1000, nil)
			if errors.Is(err, gws.ErrConnClosed) {
				err = nil
			}
			running.Wait()
			s.Close()
			return err
		},
	}, nil
}
