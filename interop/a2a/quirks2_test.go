package a2a

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// errLost is why a replyEater gives no response.
var errLost = errors.New("lost on the way")

// replyEater stands between Parley and an agent and loses the response to the
// first answer of a person that passes. A proxy of connections could not: the
// polls of the task use the same ones.
type replyEater struct {
	*httptest.Server
	// passed counts the answers that went to the agent, lost those of which
	// Parley never got the response.
	passed, lost atomic.Int32
}

// newReplyEater makes a replyEater in front of the HTTP server at base.
func newReplyEater(t *testing.T, base string) *replyEater {
	t.Helper()
	target, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	e := new(replyEater)
	pass := func(eat bool) *httputil.ReverseProxy {
		return &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(target)
				r.Out.Host = target.Host
			},
			ModifyResponse: func(resp *http.Response) error {
				if !eat {
					return nil
				}
				// The agent is through with it, and has told all that it had to,
				// whether it ends its stream well or not.
				_, err := io.Copy(io.Discard, resp.Body)
				e.lost.Add(1)
				return errors.Join(errLost, err)
			},
			// Parley's connection breaks, in place of a 502.
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		}
	}
	through, eating := pass(false), pass(true)
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`.answer-`)) && e.passed.Add(1) == 1 {
			eating.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
			return
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

// at is raw with the address of e.
func (e *replyEater) at(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = e.Listener.Addr().String()
	return u.String()
}

// TestLostReply loses the response to a person's answer. The task is known, so
// it tells what became of the answer, in both dialects; to send it again would
// have the Java agent execute it on the finished task.
func TestLostReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range routes() {
		for _, send := range []string{"nonblocking", "blocking", "stream"} {
			t.Run(r.name()+"/"+send, func(t *testing.T) {
				parallel(t)
				a := sharedAgent(t, r.kind)
				url, counts := r.loseReply(t, a)
				name := w.register(t, registration{
					url: url, config: r.pins(map[string]any{"send": send}), policy: parley.OutcomeLookup,
				})
				id := w.start(t, name, "ask which colour?")
				w.asked(t, id)
				w.answer(t, id, "blue")
				run := w.end(t, id)
				if passed, lost := counts(); passed != 1 || lost != 1 {
					t.Errorf("the answer was sent %d times, and %d responses were lost", passed, lost)
				}
				executions, _ := a.entries(t, id)
				if len(executions) != 2 || executions[0].Task != executions[1].Task || executions[1].Text != "blue" {
					t.Errorf("question and answer were executed as %+v", executions)
				}
				if o := done(t, run); o.Text != "answer: blue" {
					t.Errorf("output %s", o.raw)
				}
				if t.Failed() {
					t.Log(w.history(t, id))
				}
			})
		}
	}
}

// loseReply puts a proxy in front of a that loses the response to the first
// answer of a person. counts says how many answers the agent got, and how many
// responses were lost.
func (r route) loseReply(t *testing.T, a *agent) (url string, counts func() (passed, lost int)) {
	t.Helper()
	if r.binding == "GRPC" {
		p := newFrameProxy(t, a, ".answer-", fateLost)
		return p.through(t, r.url(a)), p.counts
	}
	e := newReplyEater(t, a.where["url"])
	return e.at(t, r.url(a)), func() (passed, lost int) { return int(e.passed.Load()), int(e.lost.Load()) }
}

// TestQuirkSecondMessage answers while the agent works. A second message would
// be refused by Go, executed beside the first by Python 0.3 and JavaScript, and
// dropped by Python 1.0: the run takes none, so the agent gets none.
func TestQuirkSecondMessage(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, s *scene) {
		id := s.start(t, s.name, "hold "+s.key())
		s.accepted(t, id)
		_, err := s.Answer(t.Context(), parley.AnswerRequest{Run: id, Reply: parley.Reply{Text: "blue"}})
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != http.StatusConflict {
			t.Errorf("the answer to a working agent gives %v, want status 409", err)
		}
		s.agent.release(t, s.key())
		if o := done(t, s.end(t, id)); o.Text != "held "+s.key() {
			t.Errorf("output %s", o.raw)
		}
		s.once(t, id)
	})
}
