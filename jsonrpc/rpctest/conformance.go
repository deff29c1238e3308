package rpctest

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
)

// The cases are data, so that programs in other languages can run them too;
// the head of the file describes it.
//
//go:embed testdata/conformance.json
var conformanceFile []byte

// A Case is one conformance case: what is sent to a server and what must come
// back.
type Case struct {
	// Name is unique and begins with the group and a slash.
	Name, Group string
	// Send is one message without the newline that ends it; in the group
	// "framing" any bytes.
	Send []byte
	// Answers are the messages that must come back, in any order: objects
	// with the id, and the result or the error, or arrays of them for batches.
	Answers []json.RawMessage
	// Lenient says that the specification leaves the case open.
	Lenient bool
	// Why is the rule or the reason of the decision, where it is not plain.
	Why string
}

// Conformance returns all conformance cases, which belong to the caller. They are about
// a server with the methods of package rpcpractice and the limits of
// ConformanceConfig. The file that they are in, testdata/conformance.json, describes
// itself for programs in other languages.
func Conformance() []Case {
	var file struct {
		Cases []struct {
			Name, Group, Why string
			Send             json.RawMessage
			Answers          []json.RawMessage
			Lenient          bool
		}
	}
	if err := json.Unmarshal(conformanceFile, &file); err != nil {
		panic("rpctest: conformance cases: " + err.Error())
	}
	cases := make([]Case, 0, len(file.Cases))
	for _, c := range file.Cases {
		send, err := parts(c.Send)
		if err != nil {
			panic("rpctest: conformance case " + c.Name + ": " + err.Error())
		}
		cases = append(cases, Case{Name: c.Name, Group: c.Group, Send: send, Answers: c.Answers, Lenient: c.Lenient, Why: c.Why})
	}
	return cases
}

// parts puts together what a case sends.
func parts(raw json.RawMessage) ([]byte, error) {
	if raw[0] == '"' {
		var text string
		err := json.Unmarshal(raw, &text)
		return []byte(text), err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	var send []byte
	for _, item := range list {
		if item[0] == '"' {
			text, err := parts(item)
			if err != nil {
				return nil, err
			}
			send = append(send, text...)
			continue
		}
		var part struct {
			Repeat string
			Times  int
			Base64 string
		}
		if err := json.Unmarshal(item, &part); err != nil {
			return nil, err
		}
		data, err := base64.StdEncoding.DecodeString(part.Base64)
		if err != nil {
			return nil, err
		}
		send = append(send, strings.Repeat(part.Repeat, part.Times)...)
		send = append(send, data...)
	}
	return send, nil
}

// ConformanceConfig returns the limits that the cases are about.
func ConformanceConfig() jsonrpc.Config {
	return jsonrpc.Config{Name: "conformance", MaxMessage: 65536, MaxDepth: 64, MaxBatch: 100}
}

// An Exchange sends the bytes of a case to a server, with what the transport
// has to end a message, and returns the messages that come back, one per line.
// It returns as soon as it has as many as answers says, or when no more can
// come; it need not look for more than that, since what is too much is found
// before the answer to the next message. When ctx ends it returns, with an error.
// RunConformance calls it from one goroutine at a time, and leaves what it works with
// to whoever made it.
type Exchange func(ctx context.Context, send []byte, answers int) ([]byte, error)

// StreamExchange returns an Exchange over the client's end of a Stream of
// lines. It closes the Stream when a context ends, and leaves that to the caller
// otherwise.
func StreamExchange(s jsonrpc.Stream) Exchange {
	return func(ctx context.Context, send []byte, answers int) ([]byte, error) {
		stop := context.AfterFunc(ctx, func() { _ = s.Close() })
		defer stop()
		if _, err := s.Write(append(slices.Clip(send), '\n')); err != nil {
			return nil, err
		}
		var got []byte
		for range answers {
			for {
				part, err := s.Read()
				if err != nil {
					return got, err
				}
				got = append(got, part.Data...)
				if part.End {
					break
				}
			}
			got = append(got, '\n')
		}
		return got, nil
	}
}

// ConformanceOptions say how RunConformance goes about it.
type ConformanceOptions struct {
	// Skip names the cases to leave out, with the reason, which is logged; it
	// may be nil. Transports with a framing of their own leave out the group
	// "framing".
	Skip func(Case) string
	// Foreign is for servers by others: in lenient cases any valid answer will
	// do, and none.
	Foreign bool
}

// RunConformance runs every case against a server. After each of them the
// connection must still answer. A case that ends the connection, or is answered
// more often than it should be, ends the run.
func RunConformance(t *testing.T, exchange Exchange, opts ConformanceOptions) {
	t.Helper()
	for i, c := range Conformance() {
		if opts.Skip != nil {
			if reason := opts.Skip(c); reason != "" {
				t.Logf("%s: left out: %s", c.Name, reason)
				continue
			}
		}
		alive := false
		t.Run(c.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			got, err := exchange(ctx, c.Send, len(c.Answers))
			if err != nil {
				t.Fatalf("%v\nhaving answered %s", err, got)
			}
			anything := opts.Foreign && c.Lenient
			if err := c.Check(got); err != nil && !anything {
				t.Errorf("%v\nsent     %.300q\nwant     %s\nanswered %s", err, c.Send, c.Answers, got)
			}
			id := fmt.Sprintf(`"probe-%d"`, i)
			probe := Case{Answers: []json.RawMessage{json.RawMessage(`{"id":` + id + `,"result":[` + id + `]}`)}}
			got, err = exchange(ctx, []byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"echo","params":[`+id+`]}`), 1)
			if err == nil {
				err = probe.Check(got)
			}
			if err != nil {
				t.Fatalf("afterwards the connection should still answer: %v\nanswered %s", err, got)
			}
			alive = true
		})
		if !alive {
			return
		}
	}
}

// Check compares what came back, one message per line, with what must. The error says
// what is different, in words.
func (c Case) Check(got []byte) error {
	var answers []json.RawMessage
	for line := range bytes.Lines(got) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			answers = append(answers, line)
		}
	}
	return sameSet(answers, c.Answers, func(got, want json.RawMessage) error {
		if want[0] != '[' {
			return sameAnswer(got, want)
		}
		var gotBatch, wantBatch []json.RawMessage
		if err := errors.Join(json.Unmarshal(got, &gotBatch), json.Unmarshal(want, &wantBatch)); err != nil {
			return err
		}
		return sameSet(gotBatch, wantBatch, sameAnswer)
	})
}

// sameSet compares two lists whose order does not matter.
func sameSet(got, want []json.RawMessage, same func(got, want json.RawMessage) error) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d answers, want %d", len(got), len(want))
	}
	open := slices.Clone(want)
	for _, g := range got {
		var first error
		at := slices.IndexFunc(open, func(w json.RawMessage) bool {
			err := same(g, w)
			if first == nil {
				first = err
			}
			return err == nil
		})
		if at < 0 {
			return fmt.Errorf("unexpected answer: %w", first)
		}
		open = slices.Delete(open, at, at+1)
	}
	return nil
}

// sameAnswer compares one response with what it must be. A response has no
// other members than those of the specification, section 5.
func sameAnswer(got, want json.RawMessage) error {
	var g, w map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(got, &g), json.Unmarshal(want, &w)); err != nil {
		return err
	}
	switch {
	case string(g["jsonrpc"]) != `"2.0"`:
		return errors.New(`no "jsonrpc":"2.0"`)
	case string(g["id"]) != string(w["id"]):
		return fmt.Errorf("id %s, want %s", g["id"], w["id"])
	case len(g) != len(w)+1:
		return fmt.Errorf("%d members", len(g))
	case w["result"] != nil && !sameValue(g["result"], w["result"]):
		return fmt.Errorf("result %.200s, want %.200s", g["result"], w["result"])
	case w["error"] != nil:
		return sameError(g["error"], w["error"])
	}
	return nil
}

func sameError(got, want json.RawMessage) error {
	var g, w map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(got, &g), json.Unmarshal(want, &w)); err != nil {
		return err
	}
	var message string
	if err := json.Unmarshal(g["message"], &message); err != nil || message == "" {
		return fmt.Errorf("an error without a message: %s", got)
	}
	if string(g["code"]) != string(w["code"]) {
		return fmt.Errorf("code %s, want %s", g["code"], w["code"])
	}
	if w["data"] != nil && !sameValue(g["data"], w["data"]) {
		return fmt.Errorf("data %s, want %s", g["data"], w["data"])
	}
	for name := range g {
		if name != "code" && name != "message" && name != "data" {
			return fmt.Errorf("an error with a member %q", name)
		}
	}
	return nil
}

// sameValue compares two JSON values, numbers digit by digit.
func sameValue(a, b json.RawMessage) bool {
	decode := func(raw json.RawMessage) (v any) {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if dec.Decode(&v) != nil {
			return errors.New("no JSON")
		}
		return v
	}
	return a != nil && b != nil && reflect.DeepEqual(decode(a), decode(b))
}
