// Package practice holds the methods that every peer program serves, apart
// from the JSON-RPC library that serves them: what differs between two peers
// is then the library alone.
package practice

import (
	"context"
	"encoding/json"
	"os"
	"sync"
)

// A Fault is the error member of an answer.
type Fault struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// The codes of the specification that the methods answer with.
const (
	MethodNotFound = -32601
	InvalidParams  = -32602
	Cancelled      = -32800
)

// A Back calls a method of whoever sent the request.
type Back func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *Fault)

// A Call is one request or notification.
type Call struct {
	Method string
	Params json.RawMessage
	Back   Back
}

// Server counts what its methods have to remember. The zero value is ready,
// and safe for concurrent use.
type Server struct {
	mu        sync.Mutex
	notes     int
	last      json.RawMessage
	waiting   int
	cancelled int
}

// Answer runs a method and returns its result or its fault:
//
//	echo       the params
//	subtract   {"minuend":a,"subtrahend":b} or [a,b]
//	fail       the fault that the params describe
//	note       remembers the params; notes tells {"count":n,"last":params}
//	back       calls {"method":m,"params":p} of the caller, passes its answer on
//	wait       waits to be cancelled; waits tells {"waiting":n,"cancelled":n}
//	print      writes {"text":t} to standard output, past the library
//	exit       ends the process with code 3, without an answer
func (s *Server) Answer(ctx context.Context, c Call) (json.RawMessage, *Fault) {
	switch c.Method {
	case "echo":
		if c.Params == nil {
			return json.RawMessage("null"), nil
		}
		return c.Params, nil
	case "subtract":
		return subtract(c.Params)
	case "fail":
		f := new(Fault)
		if err := json.Unmarshal(c.Params, f); err != nil {
			return nil, invalid(err)
		}
		return nil, f
	case "note":
		s.note(c.Params)
		return json.RawMessage("null"), nil
	case "notes":
		return s.noted(), nil
	case "back":
		var to struct {
			Method string
			Params json.RawMessage
		}
		if err := json.Unmarshal(c.Params, &to); err != nil {
			return nil, invalid(err)
		}
		return c.Back(ctx, to.Method, to.Params)
	case "wait":
		return s.wait(ctx)
	case "waits":
		return s.waits(), nil
	case "print":
		return printed(c.Params)
	case "exit":
		os.Exit(3)
	}
	return nil, &Fault{Code: MethodNotFound, Message: "no method " + c.Method}
}

func invalid(err error) *Fault { return &Fault{Code: InvalidParams, Message: err.Error()} }

func subtract(params json.RawMessage) (json.RawMessage, *Fault) {
	var named struct{ Minuend, Subtrahend *int64 }
	var placed []int64
	if json.Unmarshal(params, &placed) == nil && len(placed) == 2 {
		named.Minuend, named.Subtrahend = &placed[0], &placed[1]
	} else if err := json.Unmarshal(params, &named); err != nil {
		return nil, invalid(err)
	}
	if named.Minuend == nil || named.Subtrahend == nil {
		return nil, &Fault{Code: InvalidParams, Message: "minuend and subtrahend are needed"}
	}
	return must(*named.Minuend - *named.Subtrahend), nil
}

func printed(params json.RawMessage) (json.RawMessage, *Fault) {
	var p struct{ Text string }
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, invalid(err)
	}
	// A library writes each message at once, so that this lands between two.
	if _, err := os.Stdout.WriteString(p.Text); err != nil {
		return nil, &Fault{Code: -32000, Message: err.Error()}
	}
	return json.RawMessage("true"), nil
}

func (s *Server) note(params json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes++
	s.last = append(s.last[:0], params...)
}

func (s *Server) noted() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return must(map[string]any{"count": s.notes, "last": append(json.RawMessage(nil), s.last...)})
}

func (s *Server) wait(ctx context.Context) (json.RawMessage, *Fault) {
	s.mu.Lock()
	s.waiting++
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.waiting--
	s.cancelled++
	s.mu.Unlock()
	return nil, &Fault{Code: Cancelled, Message: "cancelled"}
}

func (s *Server) waits() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return must(map[string]int{"waiting": s.waiting, "cancelled": s.cancelled})
}

// must encodes what cannot fail to be encoded.
func must(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
