package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc"
)

// inParts gives a message in parts, as a stream gives one that is larger than its buffer.
func inParts(text string) (parts []jsonrpc.Part) {
	const size = 256 << 10
	for len(text) > size {
		parts = append(parts, jsonrpc.Part{Data: []byte(text[:size])})
		text = text[size:]
	}
	return append(parts, jsonrpc.Part{Data: []byte(text), End: true})
}

// converse carries one message of side A, which ends then unless it speaks HTTP, and what
// side B says to it. It gives what side A got. The connection has to end without an error,
// and at once.
func converse(t *testing.T, overHTTP bool, call, answer string) (got string, err error) {
	posts, lines, b := newPostStream(nil), newScripted(), newScripted()
	var a jsonrpc.Stream = lines
	if overHTTP {
		a = posts
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- carry(ctx, newTestTracer(io.Discard), 1, a, b) }()
	x := &exchange{body: strings.NewReader(call), reply: make(chan []byte, 1)}
	if overHTTP {
		posts.posts <- x
	} else {
		for _, part := range inParts(call) {
			lines.steps <- part
		}
		lines.steps <- io.EOF
	}
	synctest.Wait() // until it has all gone there
	began := time.Now()
	for _, part := range inParts(answer) {
		select {
		case b.steps <- part:
		case err := <-ended:
			return "", errors.Join(errors.New("it ended before the answer"), err)
		}
	}
	synctest.Wait()
	if overHTTP {
		select {
		case reply := <-x.reply:
			got = string(reply)
		default:
			got = "nothing at all"
		}
		cancel()
	} else {
		got = strings.TrimSuffix(strings.Join(lines.lines(), ""), "\n")
	}
	if err = <-ended; err == nil && time.Since(began) != 0 {
		err = fmt.Errorf("it ended %s after the answer", time.Since(began))
	}
	return got, err
}

// A conversation is a message of side A, and what side B says to it.
type conversation struct{ call, answer string }

// converses runs conversations over HTTP and in lines. Each answer has to reach side A.
func converses(t *testing.T, all map[string]conversation) {
	for name, c := range all {
		for _, overHTTP := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, over HTTP %v", name, overHTTP), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					if got, err := converse(t, overHTTP, c.call, c.answer); got != c.answer || err != nil {
						t.Errorf("side A got %d bytes of %d, %.80q: %v", len(got), len(c.answer), got, err)
					}
				})
			})
		}
	}
}

// TestProxyAnswersBatchOfNoMessages proves that the answer to a batch whose entries are no
// messages reaches side A (JSON-RPC 2.0 section 7 has such batches): it is an error for
// each of them.
func TestProxyAnswersBatchOfNoMessages(t *testing.T) {
	t.Parallel()
	const (
		fault = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request"}}`
		named = `{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"invalid request"}}`
	)
	converses(t, map[string]conversation{
		"numbers":             {`[1,2,3]`, `[` + fault + `,` + fault + `,` + fault + `]`},
		"with an id":          {`[{"method":"a","id":7}]`, `[` + named + `]`},
		"beside notification": {`[{"jsonrpc":"2.0","method":"a"},{"foo":"boo"}]`, `[` + fault + `]`},
	})
}

// TestProxyAnswerWithItsIDBehind proves that an answer counts whose id stands behind a
// result that is larger than what is kept of a message.
func TestProxyAnswerWithItsIDBehind(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 2*traceKeep)
	converses(t, map[string]conversation{
		"result": {`{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","result":"` + large + `","id":1}`},
		"error": {
			`{"jsonrpc":"2.0","id":1,"method":"m"}`,
			`{"jsonrpc":"2.0","error":{"code":1,"message":"m","data":"` + large + `"},"id":1}`,
		},
	})
}

// TestInFlightCountsUnseenAnswers proves that an answer whose id was not seen is one only.
func TestInFlightCountsUnseenAnswers(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	f.add([]asked{{id: "1"}, {id: "2"}}, time.Now(), false)
	drained := f.drained()
	f.answered([]string{unseenID})
	select {
	case <-drained:
		t.Error("one answer is enough for two requests")
	default:
	}
	if f.none() {
		t.Error("one answer is enough for two requests")
	}
	f.answered([]string{"2"})
	<-drained
	if !f.none() {
		t.Error("two answers are not enough for two requests")
	}
}

// TestProxyLargeBatch proves that batches of which only the beginning is kept are answered,
// and answer, by the entry that is cut there too.
func TestProxyLargeBatch(t *testing.T) {
	t.Parallel()
	const (
		call   = `[{"jsonrpc":"2.0","id":1,"method":"m"}]`
		answer = `[{"jsonrpc":"2.0","id":1,"result":1}]`
	)
	large := strings.Repeat("x", 2*traceKeep)
	converses(t, map[string]conversation{
		"answer":            {call, `[{"jsonrpc":"2.0","id":1,"result":"` + large + `"}]`},
		"answer, id behind": {call, `[{"jsonrpc":"2.0","result":"` + large + `","id":1}]`},
		"answer, second": {
			`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]`,
			`[{"jsonrpc":"2.0","id":2,"result":1} , {"jsonrpc":"2.0","id":1,"result":"` + large + `"}]`,
		},
		"requests":            {`[{"jsonrpc":"2.0","id":1,"method":"m","params":["` + large + `"]}]`, answer},
		"requests, id behind": {`[{"jsonrpc":"2.0","method":"m","params":["` + large + `"],"id":1}]`, answer},
	})
}
